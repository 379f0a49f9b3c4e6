"""Rules that the rows of tables share: a row makes statements, each true or not, and the verdict counts them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, stdev
from typing import NamedTuple

from ddcl.experiments.claims.ledger import Numbers, Verdict, fails, holds, holds_if, unsettled

CLOSE = 0.01
"""A figure counts as reproduced within this, or within two standard deviations over seeds where they are larger."""
ALIKE = 0.5
"""Share of the paper's distance between two rows that must be there behind another encoder than the paper's."""
FIGURE_RULE = "a figure counts as reproduced within the larger of 0.01 and two standard deviations over seeds"
DISTANCE_RULE = (
    "the paper's bert-base-uncased is not to be had here, so figures cannot be compared, the order of rows can: it "
    "counts beyond two standard errors, and its distance from half of the paper's on, for every encoder in the record"
)
BY_DEFAULT = "the bank is trained by this library's default and not by the paper's recipe"


class Figure(NamedTuple):
    """A number over seeds."""

    mean: float
    sd: float
    runs: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.sd:.3f}" if self.runs > 1 else f"{self.mean:.3f}"


class Part(NamedTuple):
    """One statement of a row."""

    says: str
    true: bool | None
    """None where the runs do not reach far enough to tell."""


def recorded(key: str, values: Sequence[float]) -> dict[str, float]:
    """Mean, spread and count over seeds, as the numbers of a claim."""
    spread = stdev(values) if len(values) > 1 else 0.0
    return {key: mean(values), f"{key}_sd": spread, f"{key}_runs": float(len(values))}


def figure(n: Numbers, key: str) -> Figure:
    """What :func:`recorded` has put there."""
    return Figure(n[key], n[f"{key}_sd"], n[f"{key}_runs"])


def close(ours: Figure, paper: float) -> bool:
    """Whether a figure of the paper is reproduced."""
    return abs(ours.mean - paper) <= max(CLOSE, 2 * ours.sd)


def exceeds(a: Figure, b: Figure) -> bool:
    """Whether a mean is above another by more than two standard errors of their difference."""
    return a.mean - b.mean > 2 * math.sqrt(a.sd**2 / a.runs + b.sd**2 / b.runs)


def across(says: str, true: Mapping[str, bool]) -> list[Part]:
    """One statement where all places (encoders, sets) agree on it, else two that name the places."""
    yes, no = ([place for place, is_true in true.items() if is_true is wanted] for wanted in (True, False))
    if not yes or not no:
        return [Part(says, not no)]
    return [Part(f"{says} ({', '.join(yes)})", True), Part(f"{says} ({', '.join(no)})", False)]


def above(pairs: Mapping[str, tuple[Figure, Figure]], says: str, paper: float | None = None) -> list[Part]:
    """That the first of each pair is above the second, and by a distance like the paper's where it has one."""
    order = {place: exceeds(a, b) for place, (a, b) in pairs.items()}
    if paper is None or not any(order.values()):
        return across(says, order)
    far = {place: order[place] and a.mean - b.mean >= ALIKE * paper for place, (a, b) in pairs.items()}
    distance = across(f"{says} by at least half of {paper:.3f}", far)
    # whoever is far above is above
    return distance if all(far.values()) else across(says, order) + distance


def conclude(parts: Sequence[Part], number: str) -> Verdict:
    """Holds if all parts are true, holds if no more is meant than some of them, fails if none is."""
    met, rest = _said(parts, True), _untrue(parts)
    if all(part.true for part in parts):
        return holds(number)
    if met:
        return holds_if(f"no more is meant than that {met}", number, rest)
    if any(part.true is False for part in parts):
        return fails(number, rest)
    return unsettled(number)


def conclude_either(recipe: Sequence[Part], default: Sequence[Part], number: str) -> Verdict:
    """By the paper's recipe; failing that, by the default, which the condition then names."""
    if all(part.true for part in default) and not all(part.true for part in recipe):
        return holds_if(BY_DEFAULT, number, f"by the paper's recipe {_untrue(recipe)}")
    if any(part.true for part in recipe) or not any(part.true for part in default):
        return conclude(recipe, number)
    condition = f"{BY_DEFAULT}, and no more is meant than that {_said(default, True)}"
    return holds_if(condition, number, f"by the paper's recipe {_untrue(recipe)}")


def places_of(n: Numbers) -> list[str]:
    """The places (encoders, sets) in the numbers of a claim, whose keys are ``place/figure``."""
    return list(dict.fromkeys(key.partition("/")[0] for key in n if "/" in key))


def _untrue(parts: Iterable[Part]) -> str:
    told = (("not true: that", False), ("not to be told: that", None))
    return "; ".join(f"{how} {_said(parts, wanted)}" for how, wanted in told if _said(parts, wanted))


def _said(parts: Iterable[Part], wanted: bool | None) -> str:
    return ", that ".join(part.says for part in parts if part.true is wanted)
