"""The picture of a phase diagram: how many prototypes there are at each temperature, and where they go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ddcl.functional.phases.diagram import PhaseDiagram
from ddcl.report.saving import check_path, save
from ddcl.shapes import Float

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, BRANCH, SPLIT, QUIET = "#22303c", "#00798c", "#d1495b", "#8a94a0"


def draw_phase_diagram(diagram: PhaseDiagram, path: str | Path | None = None, *, title: str | None = None) -> Figure:
    """Two panels over T / T_c, falling to the right: K_eff with its splits marked, and the branches of the tree.

    A full mark is a split, a hollow one groups that met again. The branches are the prototypes' first principal
    coordinate, in units of its spread where the bank is coldest.

    Args:
        diagram: from :func:`ddcl.phase_diagram`.
        path: where to write it, a .png, .svg or .pdf file; folders are made as needed.
        title: above both panels; without it K, the dimension and the mode.

    Example:
        >>> from ddcl.functional.phases.diagram import phase_diagram
        >>> diagram = phase_diagram(torch.tensor([[-1.0], [1.0]]), 2, relative=[1.1, 0.5])
        >>> figure = draw_phase_diagram(diagram)
        >>> len(figure.axes)
        2
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
    except ImportError as error:
        raise ImportError("drawing needs matplotlib, which comes with the extra: pip install 'ddcl[report]'") from error
    check_path(path)

    figure = Figure(figsize=(10.5, 4.0), layout="constrained", facecolor="white")
    counts, branches = figure.subplots(1, 2, sharex=True)
    _draw_counts(counts, diagram)
    counts.yaxis.set_major_locator(MaxNLocator(integer=True))
    _draw_branches(branches, diagram)
    for axes in (counts, branches):
        axes.set_xscale("log")
        axes.set_xlim(float(diagram.relative[0]), float(diagram.relative[-1]))
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xlabel("temperature $T / T_c$, falling", color=INK)
        axes.tick_params(colors=INK)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(QUIET)
        if float(diagram.relative[0]) > 1 > float(diagram.relative[-1]):
            axes.axvline(1, color=QUIET, linewidth=1, linestyle=":", zorder=0)
    num_prototypes, dim = diagram.positions.shape[1:]
    plural = "s" if dim > 1 else ""
    figure.suptitle(
        title or f'A bank of {num_prototypes} cooled in {dim} dimension{plural}, mode "{diagram.gradient}"', color=INK
    )
    if path is not None:
        save(figure, path)
    return figure


def principal_coordinate(diagram: PhaseDiagram) -> Float[Tensor, "n K"]:
    """Each prototype's place on the axis along which the coldest bank spreads most, in units of that spread.

    Example:
        >>> from ddcl.functional.phases.diagram import phase_diagram
        >>> diagram = phase_diagram(torch.tensor([[-1.0, 0.0], [1.0, 0.0]]), 2, relative=[1.1, 0.05])
        >>> principal_coordinate(diagram)[-1].abs()
        tensor([1., 1.], dtype=torch.float64)
    """
    coldest = diagram.positions[-1] - diagram.positions[-1].mean(0)
    axis = torch.linalg.svd(coldest, full_matrices=False)[2][0]
    axis = axis * axis[axis.abs().argmax()].sign()  # one of the two signs, always the same
    spread = (coldest @ axis).square().mean().sqrt()
    scale = float(spread) or 1.0  # all in one place
    coordinate: Tensor = (diagram.positions - diagram.positions[-1].mean(0)) @ axis
    return coordinate / scale


def _draw_counts(axes: Axes, diagram: PhaseDiagram) -> None:
    axes.plot(diagram.relative, diagram.distinct, color=BRANCH, linewidth=1.8, drawstyle="steps-post")
    for split in diagram.splits:
        axes.axvline(split.relative, ymax=0.035, color=SPLIT, linewidth=1.2)
    axes.plot([], [], color=SPLIT, marker="|", linestyle="none", markersize=8, label="a group splits")
    K = diagram.positions.shape[1]
    axes.set_ylim(0, max(K + 0.9, 1.12 * K))  # room for the legend
    axes.axhline(K, color=QUIET, linewidth=0.8, linestyle="--", zorder=0)
    axes.annotate(
        f"K = {K}",
        (1, K),
        (0, 3),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        ha="right",
        color=QUIET,
        fontsize=9,
    )
    axes.set_ylabel("distinct prototypes", color=INK)
    axes.legend(frameon=False, loc="upper left", labelcolor=INK, fontsize=9)


def _draw_branches(axes: Axes, diagram: PhaseDiagram) -> None:
    coordinate = principal_coordinate(diagram)
    for k in range(coordinate.shape[1]):
        axes.plot(diagram.relative, coordinate[:, k], color=BRANCH, linewidth=1.3, alpha=0.9)
    for split in diagram.splits:
        # the last temperature at which the group was still whole
        place = max(int((diagram.relative > split.relative).sum()) - 1, 0)
        axes.plot(split.relative, coordinate[place, split.parent[0]], "o", color=SPLIT, markersize=4, zorder=3)
    for merge in diagram.merges:
        place = int((diagram.relative > merge.relative).sum())
        at = coordinate[place, merge.group[0]]
        axes.plot(merge.relative, at, "o", color=SPLIT, markerfacecolor="white", markersize=4, zorder=3)
    axes.set_ylabel("first principal coordinate", color=INK)
