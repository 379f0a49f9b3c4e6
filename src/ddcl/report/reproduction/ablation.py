"""The paper's Figure 6: accuracy and separation against the ratio of the learning rates, with phase portraits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

from ddcl.experiments.reproduce.study import Done
from ddcl.experiments.reproduce.summary import cases
from ddcl.report.saving import check_path, save
from ddcl.report.style import COLOURS, INK, QUIET, new_figure, plain

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PORTRAITS = 3
"""Ratios whose phase portraits are shown: the smallest, the middle, the largest."""
SEED = 0


def draw(finished: Sequence[Done], arrays_folder: Path, into: Path) -> list[Path]:  # noqa: ARG001
    """One picture for each set of the record."""
    paths = []
    for case in cases(finished):
        paths.append(into / f"ablation_{case.lower()}.svg")
        draw_ratios(
            [one for one in finished if one.case == case], paths[-1], title=f"{case}: encoder's rate over bank's"
        )
    return paths


def draw_ratios(finished: Sequence[Done], path: str | Path | None = None, *, title: str = "") -> Figure:
    """A row for each temperature: ACC (bars) and S(P) (line) by ratio, then phase portraits of three ratios.

    Args:
        finished: runs on one set.
        path: where to write it.
        title: above all panels.
    """
    check_path(path)
    arms = list(dict.fromkeys(str(one.run["settings"]["arm"]) for one in finished))
    ratios = sorted({float(one.run["settings"]["ratio"]) for one in finished})
    shown = [ratios[i] for i in sorted({0, len(ratios) // 2, len(ratios) - 1})][:PORTRAITS]
    figure = new_figure(4.2 + 2.6 * len(shown), 2.7 * len(arms))
    grid = figure.subplots(len(arms), 1 + len(shown), squeeze=False, width_ratios=[1.7] + [1.0] * len(shown))
    handles: list[Artist] = []
    for row, arm in zip(grid, arms, strict=True):
        of_arm = [one for one in finished if one.run["settings"]["arm"] == arm]
        handles = _bars(row[0], of_arm, ratios, arm)
        for axes, ratio in zip(row[1:], shown, strict=True):
            here = [one for one in of_arm if one.run["settings"]["ratio"] == ratio and one.seed == SEED]
            if here:
                _portrait(axes, here[0])
            plain(axes, title=f"ratio {ratio:g}", x="$V$ per token", y="$S(P)$")
    figure.legend(handles=handles, frameon=False, fontsize=8, loc="outside lower left", ncols=3)
    figure.suptitle(title, color=INK)
    if path is not None:
        save(figure, path)
    return figure


def _bars(axes: Axes, of_arm: Sequence[Done], ratios: Sequence[float], arm: str) -> list[Artist]:
    """ACC at the best and at the last epoch, S(P) over its start on a second axis; returns what a legend explains."""
    where = np.arange(len(ratios))

    def means(value: str) -> list[float]:
        return [mean(one.metrics[value] for one in of_arm if one.run["settings"]["ratio"] == ratio) for ratio in ratios]

    axes.bar(where - 0.2, means("acc_best"), 0.38, color=COLOURS[0], alpha=0.45, label="ACC, best epoch")
    axes.bar(where + 0.2, means("acc"), 0.38, color=COLOURS[0], label="ACC, last epoch")
    axes.set_xticks(where, [f"{ratio:g}" for ratio in ratios])
    axes.set_ylim(0, 1)
    plain(axes, title=arm, x="ratio", y="ACC")
    second = axes.twinx()
    share = [s / start for s, start in zip(means("separation"), means("separation_start"), strict=True)]
    second.plot(where, share, color=COLOURS[1], marker="o", label="$S(P)$ over its start")
    second.set_ylim(bottom=0)
    second.tick_params(colors=COLOURS[1], labelsize=8)
    second.spines[["top", "left", "bottom"]].set_visible(False)
    return [*axes.get_legend_handles_labels()[0], *second.get_legend_handles_labels()[0]]


def _portrait(axes: Axes, one: Done) -> None:
    variance, separation = one.epochs["variance"], one.epochs["separation"]
    axes.plot(variance, separation, color=QUIET, linewidth=0.8, zorder=1)
    points = axes.scatter(variance, separation, c=np.asarray(one.epochs["epoch"]), cmap="viridis", s=10, zorder=2)
    axes.set_ylim(bottom=0)
    axes.get_figure().colorbar(points, ax=axes, label="epoch")  # type: ignore[union-attr]
