"""Results as a file and as a table to read."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

Row = dict[str, str | int]


class Result(NamedTuple):
    """What a benchmark found: rows for the file, a table for the eye, one line per target."""

    rows: list[Row]
    table: str
    verdicts: list[str]


def write_csv(path: Path, rows: Sequence[Row], provenance: Row) -> None:
    """Write the rows, each with where and how it was measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    complete = [{**row, **provenance} for row in rows]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(complete[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(complete)


def format_table(header: Sequence[str], body: Sequence[Sequence[object]]) -> str:
    """Columns wide enough for their entries, aligned to the right."""
    lines = [list(header), *([str(entry) for entry in line] for line in body)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(entry.rjust(width) for entry, width in zip(line, widths, strict=True)) for line in lines)
