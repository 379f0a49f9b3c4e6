"""What a benchmark found, and a table to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Row = dict[str, str | int]


class Result(NamedTuple):
    """What a benchmark found: rows for the file, a table for the eye, one line per target."""

    rows: list[Row]
    table: str
    verdicts: list[str]


def format_table(header: Sequence[str], body: Sequence[Sequence[object]]) -> str:
    """Columns wide enough for their entries, aligned to the right."""
    lines = [list(header), *([str(entry) for entry in line] for line in body)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(entry.rjust(width) for entry, width in zip(line, widths, strict=True)) for line in lines)
