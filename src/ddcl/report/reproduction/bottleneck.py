"""Use in the first epoch against error at the end: one mark per run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ddcl.experiments.reproduce.study import Done
from ddcl.experiments.reproduce.summary import cases, methods
from ddcl.report.saving import save
from ddcl.report.style import MARKERS, colour, new_figure, plain


def draw(finished: Sequence[Done], arrays: Path, into: Path) -> list[Path]:  # noqa: ARG001
    """A panel per size."""
    sizes = cases(finished)
    figure = new_figure(5.0 * len(sizes) + 2.4, 4.2)
    panels = figure.subplots(1, len(sizes), squeeze=False)[0]
    for axes, case in zip(panels, sizes, strict=True):
        for index, method in enumerate(methods(finished)):
            here = [one for one in finished if one.case == case and one.method == method]
            axes.scatter(
                [100 * one.metrics["first_usage"] for one in here],
                [1e3 * one.metrics["mse"] for one in here],
                color=colour(index),
                marker=MARKERS[index % 8],
                s=42,
                alpha=0.85,
                label=method,
            )
        axes.set_yscale("log")
        plain(axes, title=case, x="codes used in epoch 1, %", y="hard MSE at the end, 1e-3")
    panels[-1].legend(frameon=False, fontsize=8, bbox_to_anchor=(1.02, 1), loc="upper left")
    save(figure, into / "bottleneck.svg")
    return [into / "bottleneck.svg"]
