"""Write what records say into docs/reproduce/*.md and draw its figures: ``python docs/fill_reproductions.py``.

A page has tables and sentences between ``<!-- table: NAME -->`` or ``<!-- notes: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from ddcl.experiments.reproduce import load_study
from ddcl.experiments.reproduce.record import read
from ddcl.experiments.reproduce.running import record_file
from ddcl.experiments.reproduce.summary import sentences, table

PAGES = Path(__file__).parent / "reproduce"
RECORDS = Path(__file__).parent.parent / "results" / "reproduce"
MARKED = re.compile(r"(<!-- (table|notes): (\w+) -->\n).*?(<!-- end -->)", flags=re.DOTALL)


def filled(text: str, records: Path = RECORDS) -> str:
    """A page with every marked part as its record has it."""

    def part(found: re.Match[str]) -> str:
        study, finished = load_study(found[3]), read(record_file(records, found[3]))
        shown = table(study, finished) if found[2] == "table" else sentences(study, finished)
        return f"{found[1]}\n{shown}\n\n{found[4]}"

    return MARKED.sub(part, text)


def studies(text: str) -> list[str]:
    """The studies a page shows."""
    return list(dict.fromkeys(found[3] for found in MARKED.finditer(text)))


def main() -> None:
    """All pages."""
    from ddcl.report.reproduction import draw

    for page in sorted(PAGES.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        page.write_text(filled(text), encoding="utf-8")
        for name in studies(text):
            for path in draw(name, RECORDS, PAGES / "figures"):
                print(f"{page.name}: {path.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
