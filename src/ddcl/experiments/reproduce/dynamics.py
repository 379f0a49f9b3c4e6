"""A training run as the record wants it: the library's own figures, epoch by epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ddcl.training import Progress

KEPT = (
    "total",
    "reconstruction",
    "variance",
    "quantization",
    "entropy",
    "relative_entropy",
    "separation",
    "relative_separation",
    "usage",
    "perplexity",
    "paper_usage",
    "distinct",
    "soft_perplexity",
    "soft_hard_gap",
    "relative_temperature",
    "relative_trace",
)
"""Figures of :class:`ddcl.CollapseMonitor` that the pictures and tables show, those that are there."""


class Watch:
    """A callback of the Trainer that also scores the model where the banks were measured."""

    def __init__(self, score: Callable[[], Mapping[str, float]] | None = None) -> None:
        self.score = score
        self.epochs: dict[str, list[float]] = {"epoch": []}

    def __call__(self, progress: Progress) -> None:
        """Called after each epoch; kept where the banks were measured."""
        if not progress.metrics:
            return
        # with several banks a figure is called bank/head/name
        row = {name: value for name, value in progress.metrics.items() if name.rpartition("/")[2] in KEPT}
        row["loss"] = progress.loss
        if self.score is not None:
            row |= self.score()
        self.add(progress.epoch, row)

    def add(self, epoch: int, row: Mapping[str, Any]) -> None:
        """One more epoch, with the same figures as those before."""
        self.epochs["epoch"].append(epoch)
        for name, value in row.items():
            self.epochs.setdefault(name, []).append(float(value))


def best(epochs: Mapping[str, Sequence[float]], metric: str) -> tuple[float, int]:
    """The largest value of a figure over a run, and its epoch: what the paper calls best epoch."""
    found = list(epochs[metric])
    where = max(range(len(found)), key=found.__getitem__)
    return found[where], int(epochs["epoch"][where])


def thinned(epochs: Mapping[str, Sequence[float]], points: int = 60) -> dict[str, list[float]]:
    """At most so many epochs, evenly spaced, the first and the last among them: what a record keeps of a long run.

    Example:
        >>> thinned({"epoch": [1, 2, 3, 4, 5], "acc": [0.1, 0.2, 0.3, 0.4, 0.5]}, points=3)
        {'epoch': [1, 3, 5], 'acc': [0.1, 0.3, 0.5]}
    """
    count = len(epochs["epoch"])
    if count <= points:
        return {name: list(values) for name, values in epochs.items()}
    kept = [round(i * (count - 1) / (points - 1)) for i in range(points)]
    return {name: [values[i] for i in kept] for name, values in epochs.items()}
