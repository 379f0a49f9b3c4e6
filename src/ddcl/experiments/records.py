"""Results on disk: one row per run, each with the command, versions and device that made it."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path


def write_rows(rows: Sequence[Mapping[str, object]], path: str | Path, origin: Mapping[str, object]) -> None:
    """Write a table; the columns are those of the first row, then those of ``environment`` as it was at the start."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], *origin], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, **origin} for row in rows)


def append_row(row: Mapping[str, object], path: str | Path, origin: Mapping[str, object]) -> None:
    """Add one row to a table, begun with its header if there is none: what takes long must survive being stopped."""
    path = Path(path)
    if not path.exists():
        write_rows([row], path, origin)
        return
    with path.open(newline="") as file:
        columns = next(csv.reader(file))
    if columns != [*row, *origin]:
        raise ValueError(f"{path.name}: its columns are not those of this table; write to another file")
    with path.open("a", newline="") as file:
        csv.DictWriter(file, columns, lineterminator="\n").writerow({**row, **origin})


def read_rows(path: str | Path) -> list[dict[str, str]]:
    """The rows of a written table, as text."""
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))
