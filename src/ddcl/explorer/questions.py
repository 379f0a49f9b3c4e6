"""What the address of a request says about rows, checked before anything looks at it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ddcl.explorer.guards import RefusedError
from ddcl.explorer.rows import LARGEST_PAGE, Question, Sort

SORTS: dict[str, Sort] = {"row": "row", "confidence": "confidence", "entropy": "entropy", "prototype": "prototype"}
LONGEST_SEARCH = 1000
_KNOWN = {
    *("search", "prototype", "label", "held_out", "wrong", "sort", "descending", "offset", "limit"),
    *("least_confidence", "most_confidence", "least_entropy", "most_entropy"),
}
_LARGEST = 2**31 - 1


def question(parameters: Mapping[str, str]) -> Question:
    """Which rows are asked for; an empty value is as good as none."""
    if unknown := set(parameters) - _KNOWN:
        raise RefusedError(400, f"rows: {sorted(unknown)[0]!r} is not known; expected {', '.join(sorted(_KNOWN))}")
    given = {name: value for name, value in parameters.items() if value}
    search = given.get("search", "")
    if len(search) > LONGEST_SEARCH:
        raise RefusedError(400, f"search: got {len(search)} characters, expected at most {LONGEST_SEARCH}")
    sort = given.get("sort", "row")
    if sort not in SORTS:
        raise RefusedError(400, f"sort: got {sort!r}, expected {', '.join(SORTS)}")
    return Question(
        search=search.encode("utf-8", "replace").decode("utf-8"),
        prototype=integer("prototype", given["prototype"]) if "prototype" in given else None,
        label=given.get("label"),
        held_out=_flag("held_out", given["held_out"]) if "held_out" in given else None,
        wrong=_flag("wrong", given.get("wrong", "false")),
        least_confidence=_number(given, "least_confidence"),
        most_confidence=_number(given, "most_confidence"),
        least_entropy=_number(given, "least_entropy"),
        most_entropy=_number(given, "most_entropy"),
        sort=SORTS[sort],
        descending=_flag("descending", given.get("descending", "false")),
    )


def paging(parameters: Mapping[str, str]) -> tuple[int, int]:
    """From which row found, and how many."""
    offset = integer("offset", parameters.get("offset") or 0)
    limit = integer("limit", parameters.get("limit") or 50)
    if not 1 <= limit <= LARGEST_PAGE:
        raise RefusedError(400, f"limit: got {limit}, expected 1 to {LARGEST_PAGE}")
    return offset, limit


def integer(name: str, value: Any) -> int:
    """A whole number from 0 on, or a refusal."""
    try:
        found = int(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else -1
    except ValueError:
        found = -1
    if not 0 <= found <= _LARGEST:
        raise RefusedError(400, f"{name}: expected a whole number from 0 on")
    return found


def _number(given: Mapping[str, str], name: str) -> float | None:
    if name not in given:
        return None
    try:
        found = float(given[name])
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise RefusedError(400, f"{name}: expected a number")
    return found


def _flag(name: str, value: str) -> bool:
    if value not in ("true", "false"):
        raise RefusedError(400, f"{name}: expected true or false")
    return value == "true"
