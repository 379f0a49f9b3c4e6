"""The battery: many cases, a row of a table for each, counts of what collapsed."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import torch

from ddcl.experiments.collapse.cases import ABOUT, Case
from ddcl.experiments.collapse.running import Outcome, run
from ddcl.experiments.environment import environment


class Row(NamedTuple):
    """A case and what became of it."""

    case: Case
    outcome: Outcome


def run_all(cases: Sequence[Case], *, jobs: int = 1, progress: Callable[[int, Row], None] | None = None) -> list[Row]:
    """Run the cases, in their order, over several processes of one thread each."""
    rows = []
    for count, row in enumerate(_run_each(cases, jobs), start=1):
        rows.append(row)
        if progress is not None:
            progress(count, row)
    return rows


def _run_each(cases: Sequence[Case], jobs: int) -> Iterator[Row]:
    if jobs == 1:
        yield from (Row(case, run(case)) for case in cases)
        return
    with ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        yield from (Row(case, outcome) for case, outcome in zip(cases, pool.map(run, cases), strict=True))


def write(rows: Iterable[Row], path: str | Path, command: str) -> None:
    """One line for each run, with the command, versions and device that made it."""
    about = environment(command)
    records = [
        {**asdict(case), **_rounded(outcome), "collapsed": " ".join(outcome.reasons), **about} for case, outcome in rows
    ]
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)


def read(path: str | Path) -> list[Row]:
    """The rows of a written table."""
    with Path(path).open(newline="") as file:
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
            for one in csv.DictReader(file)
        ]


def _rounded(outcome: Outcome) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in asdict(outcome).items()}


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
