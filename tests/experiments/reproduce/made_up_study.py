"""A study of nothing, for tests of the frame: it can be imported by name and takes no time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ddcl.experiments.reproduce import Paper, Result, Run, Study
from ddcl.experiments.reproduce.study import Column


@dataclass(frozen=True)
class Setting:
    """What a run takes."""

    epochs: int
    sizes: tuple[int, ...] = (2, 3)


def runs(quick: bool, seeds: int) -> list[Run]:
    """Two methods; the second case only in full."""
    return [
        Run(case, method, seed, Setting(2))
        for case in (["easy"] if quick else ["easy", "hard"])
        for method in ("theirs", "ours")
        for seed in range(seeds)
    ]


def execute(run: Run, device: str) -> Result:
    """Figures that depend on nothing but the run."""
    if run.case == "hard" and device != "cpu":
        raise FileNotFoundError("no such data here")
    acc = 0.5 + 0.1 * run.seed + (0.25 if run.method == "ours" else 0.0)
    return Result({"acc": acc, "third": 1 / 3}, {"epoch": [1, 2], "acc": [0.1, acc]}, {"points": np.eye(2)})


STUDY = Study(
    name="nothing",
    title="Nothing",
    shows="Table 0",
    runs=runs,
    execute=execute,
    columns=(Column("acc", "ACC", 2), Column("loss", "loss"), Column("third", "third, %", 1, 100.0)),
    paper=(Paper("easy", "Theirs", {"acc": 0.4}), Paper("nowhere", "Theirs", {"acc": 0.3})),
    seeds=3,
    notes=lambda finished: [f"{len(finished)} runs"],
)
