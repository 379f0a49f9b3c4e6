"""Write what docs/claims.json says into docs/claims.md: ``python docs/fill_claims.py``.

Headings, sentences and quoted numbers of claims are replaced, and the tables between ``<!-- rows: NAME -->`` and
``<!-- end -->``, of the claims whose names begin with NAME. Explanations are written by hand and stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

PAGE = Path(__file__).parent / "claims.md"
RECORD = Path(__file__).parent / "claims.json"
WIDTH = 120
CLAIM = re.compile(r"^### `([\w.-]+)`: .*\n\n(?:.+\n)+\n(?:> .*\n)+", flags=re.MULTILINE)
ROWS = re.compile(r"(<!-- rows: ([\w-]+) -->\n).*?(<!-- end -->)", flags=re.DOTALL)

Entry = Mapping[str, Any]


def filled(text: str, claims: Sequence[Entry]) -> str:
    """The page as the record has it."""
    named = {entry["name"]: entry for entry in claims}

    def rows(found: re.Match[str]) -> str:
        chosen = [entry for entry in claims if entry["name"].startswith(f"{found[2]}-")]
        return f"{found[1]}\n{_table(chosen)}\n\n{found[3]}"

    return ROWS.sub(rows, CLAIM.sub(lambda found: _claim(named[found[1]]), text))


def _claim(entry: Entry) -> str:
    says = fill(f"{entry['says']} ({entry['where']})", WIDTH, break_on_hyphens=False)
    number = fill(entry["number"], WIDTH - 2, initial_indent="> ", subsequent_indent="> ", break_on_hyphens=False)
    return f"### `{entry['name']}`: {_verdict(entry)}\n\n{says}\n\n{number}\n"


def _table(entries: Sequence[Entry]) -> str:
    """A line for each row, then the records that they were judged from."""
    lines = ["| row | what it says | verdict | what decides |", "|---|---|---|---|"]
    for entry in entries:
        decides = "; ".join(part for part in (entry["number"], entry["counterexample"]) if part)
        cells = (f"`{entry['name']}`", entry["says"], _verdict(entry), decides)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    sources = dict.fromkeys(entry["source"] for entry in entries if entry["source"])
    if sources:
        lines += ["", f"Judged from {'; '.join(sources)}."]
    return "\n".join(lines)


def _verdict(entry: Entry) -> str:
    return f"{entry['verdict']} {entry['condition']}".strip()


def main() -> None:
    """Fill the page."""
    claims = json.loads(RECORD.read_text(encoding="utf-8"))["claims"]
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), claims), encoding="utf-8")


if __name__ == "__main__":
    main()
