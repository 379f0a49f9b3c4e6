"""Results on disk: one row per run, each with the command, versions and device that made it."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from ddcl.experiments.environment import environment


def write_rows(rows: Sequence[Mapping[str, object]], path: str | Path, command: str) -> None:
    """Write a table; the columns are those of the first row, then where it was measured."""
    about = environment(command)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], *about], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, **about} for row in rows)


def read_rows(path: str | Path) -> list[dict[str, str]]:
    """The rows of a written table, as text."""
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))
