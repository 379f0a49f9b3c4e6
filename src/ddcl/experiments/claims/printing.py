"""The ledger as a table for a terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import zip_longest
from textwrap import wrap
from typing import TextIO

from ddcl.experiments.claims.ledger import Claim, Finding, Outcome

HEADINGS = ("claim", "where", "verdict", "the number that decides")
NARROW = (30, 14, 8)
"""Widths of the first three columns; the last takes what is left."""
COLOURS = {Outcome.HOLDS: "32", Outcome.CONDITIONAL: "33", Outcome.FAILS: "31", Outcome.UNSETTLED: "2"}


class Table:
    """Prints findings as they come, in columns that fit the terminal (100 where there is none)."""

    def __init__(self, out: TextIO | None = None) -> None:
        self.out = sys.stdout if out is None else out
        self.colour = self.out.isatty() and "NO_COLOR" not in os.environ
        columns = shutil.get_terminal_size((100, 24)).columns if self.out.isatty() else 100
        self.width = max(80, min(columns, 130))
        self.widths = (*NARROW, self.width - sum(NARROW) - 2 * len(NARROW))
        self.family = ""

    def heading(self, count: int) -> None:
        """What is being run, and the names of the columns."""
        text = (
            f"{count} claims, each run as a small experiment, rows of tables judged from records. "
            "Verdicts are computed from the numbers by the rule that "
            "`ddcl claims --list` states; `e.g.` marks a counterexample."
        )
        self._write(*wrap(text, self.width), "")
        self._write("  ".join(name.ljust(size) for name, size in zip(HEADINGS, self.widths, strict=True)).rstrip())

    def row(self, family: str, finding: Finding) -> None:
        """One claim."""
        if family != self.family:
            self.family = family
            self._write(self._paint(f"{f' {family} ':-^{self.width}}", "1"))
        claim, verdict = finding.claim, finding.verdict
        decides = [f"if {verdict.condition}:"] if verdict.condition else []
        decides.append(verdict.number)
        if verdict.counterexample:
            decides.append(f"e.g. {verdict.counterexample}")
        if finding.source:
            decides.append(f"record: {finding.source}")
        texts = ([claim.name, claim.says], [claim.where], [verdict.outcome.value], decides)
        cells = [
            [line for text in parts for line in wrap(text, size, break_on_hyphens=False)]
            for parts, size in zip(texts, self.widths, strict=True)
        ]
        for number, lines in enumerate(zip_longest(*cells, fillvalue="")):
            shown = [line.ljust(size) for line, size in zip(lines, self.widths, strict=True)]
            shown[-1] = shown[-1].rstrip()
            if number == 0:
                shown[0] = self._paint(shown[0], "1")
            shown[2] = self._paint(shown[2], COLOURS[verdict.outcome])
            self._write("  ".join(shown).rstrip())
        self._write("")

    def summary(self, findings: Iterable[Finding], seconds: float) -> None:
        """How many of each verdict, and how long it took."""
        counts = Counter(finding.verdict.outcome for finding in findings)
        parts = [f"{counts[outcome]} {outcome.value}" for outcome in Outcome if counts[outcome]]
        self._write(f"{', '.join(parts)}; {seconds:.0f} s.")

    def _paint(self, text: str, code: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self.colour and text.strip() else text

    def _write(self, *lines: str) -> None:
        for line in lines:
            print(line, file=self.out, flush=True)


def listing(families: Iterable[tuple[str, Iterable[Claim]]], width: int = 100) -> str:
    """Names, sentences and rules of claims, without running any."""
    lines = []
    for family, claims in families:
        lines.append(f"{f' {family} ':-^{width}}")
        for claim in claims:
            lines.append(f"{claim.name}  ({claim.where})")
            for text in (claim.says, f"rule: {claim.rule}"):
                lines += wrap(text, width, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join(lines)
