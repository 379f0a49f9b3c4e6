"""The battery: many cases, a row of a table for each, counts of what collapsed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import torch

from ddcl.experiments.collapse.cases import ABOUT, Case
from ddcl.experiments.collapse.running import Outcome, run
from ddcl.experiments.records import append_row, read_rows, write_rows


class Row(NamedTuple):
    """A case and what became of it."""

    case: Case
    outcome: Outcome


def run_all(cases: Sequence[Case], *, jobs: int = 1, progress: Callable[[int, Row], None] | None = None) -> list[Row]:
    """Run the cases over several processes of one thread each; the rows come back in the order of the cases."""
    # the long ones first, so that no process is left with one at the end
    queue = sorted(cases, key=lambda case: -case.prototypes)
    found = {}
    for count, row in enumerate(_run_each(queue, jobs), start=1):
        found[row.case] = row
        if progress is not None:
            progress(count, row)
    return [found[case] for case in cases]


def _run_each(cases: Sequence[Case], jobs: int) -> Iterator[Row]:
    if jobs == 1:
        yield from (Row(case, run(case)) for case in cases)
        return
    spawned = get_context("spawn")
    with ProcessPoolExecutor(jobs, spawned, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield from (Row(case, outcome) for case, outcome in zip(cases, pool.map(run, cases), strict=True))


def write(rows: Iterable[Row], path: str | Path, origin: Mapping[str, object]) -> None:
    """One line for each run, with where it was made."""
    write_rows([_line(row) for row in rows], path, origin)


def append(row: Row, path: str | Path, origin: Mapping[str, object]) -> None:
    """One more line."""
    append_row(_line(row), path, origin)


def _line(row: Row) -> dict[str, object]:
    return {**asdict(row.case), **_rounded(row.outcome), "collapsed": " ".join(row.outcome.reasons)}


def read(path: str | Path) -> list[Row]:
    """The rows of a written table."""
    return [
        Row(
            Case(
                one["method"],  # type: ignore[arg-type]
                one["encoder"],  # type: ignore[arg-type]
                float(one["scale"]),
                int(one["prototypes"]),
                float(one["ratio"]),
                int(one["seed"]),
            ),
            Outcome(**{name: float(one[name]) for name in Outcome.__dataclass_fields__}),
        )
        for one in read_rows(path)
    ]


def _rounded(outcome: Outcome) -> dict[str, float]:
    """Eight digits: fewer could carry a figure over the threshold it is judged by."""
    return {name: float(f"{value:.8g}") for name, value in asdict(outcome).items()}


REASONS = ("uniform", "merged", "unused", "shrunk")


def summary(rows: Sequence[Row]) -> str:
    """How many runs of each method collapsed, and why, as a Markdown table."""
    lines = [
        "| method | runs | collapsed | frozen | linear | mlp | transformer | " + " | ".join(REASONS) + " |",
        "|---|---|---|---|---|---|---|" + "---|" * len(REASONS),
    ]
    for method in ABOUT:
        mine = [row for row in rows if row.case.method == method]
        if not mine:
            continue
        cells = [method, str(len(mine)), _count(mine)]
        for encoder in ("frozen", "linear", "mlp", "transformer"):
            cells.append(_count([row for row in mine if row.case.encoder == encoder]))
        cells += [str(sum(reason in row.outcome.reasons for row in mine)) for reason in REASONS]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _count(rows: Sequence[Row]) -> str:
    return f"{sum(bool(row.outcome.reasons) for row in rows)} / {len(rows)}" if rows else "-"
