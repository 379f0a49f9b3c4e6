"""Tokens and prototypes in the plane."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ddcl.report.saving import check_path, save
from ddcl.report.style import INK, new_figure, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Groups = tuple[str, np.ndarray, Sequence[str] | None]
"""A panel: its title, a group for each point, and the groups' names if there are few."""


def draw_map(
    points: np.ndarray,
    panels: Sequence[Groups],
    path: str | Path | None = None,
    *,
    prototypes: np.ndarray | None = None,
    title: str = "",
    axes_names: tuple[str, str] = ("first coordinate", "second coordinate"),
) -> Figure:
    """The same points in each panel, coloured by one grouping or another; stars mark prototypes.

    Args:
        points: (N, 2).
        panels: for each a title, a group for each point and names of the groups (None: no legend).
        path: where to write it.
        prototypes: (K, 2).
        title: above all panels.
        axes_names: what the two coordinates are.

    Example:
        >>> figure = draw_map(np.zeros((3, 2)), [("all alike", np.zeros(3, dtype=int), ["one"])])
        >>> len(figure.axes)
        1
    """
    check_path(path)
    figure = new_figure(5.2 * len(panels), 4.6)
    for axes, (name, groups, names) in zip(np.atleast_1d(figure.subplots(1, len(panels))), panels, strict=True):
        _points(axes, points, groups, names)
        if prototypes is not None:
            x, y = prototypes.T
            axes.scatter(x, y, marker="*", s=150, color="white", edgecolor=INK, linewidth=1.1, zorder=3)
        plain(axes, title=name, x=axes_names[0], y=axes_names[1])
    figure.suptitle(title, color=INK)
    if path is not None:
        save(figure, path)
    return figure


def _points(axes: Axes, points: np.ndarray, groups: np.ndarray, names: Sequence[str] | None) -> None:
    from matplotlib import colormaps

    count = int(groups.max()) + 1
    tones = colormaps["tab10"] if count <= 10 else colormaps["tab20"]
    for group in range(count):
        chosen = groups == group
        label = names[group] if names is not None else None
        # thousands of points as vectors would make files of megabytes
        x, y = points[chosen].T
        axes.scatter(x, y, s=7, color=tones(group % tones.N), alpha=0.7, label=label, rasterized=True)
    if names is not None:
        axes.legend(frameon=False, fontsize=8, markerscale=2)
