"""The look all pictures share, and the one place where matplotlib is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, QUIET = "#22303c", "#8a94a0"
COLOURS = ("#00798c", "#d1495b", "#edae49", "#30638e", "#6a4c93", "#2f9e44", "#9c6644", "#888888")
"""Told apart by people who see colours differently; in this order."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("drawing needs matplotlib, which comes with the extra: pip install 'ddcl[report]'") from error
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def plain(axes: Axes, *, x: str = "", y: str = "", title: str = "") -> None:
    """Axes without what nobody reads."""
    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK)
    axes.set_title(title, color=INK, fontsize=10)
    axes.tick_params(colors=INK, labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(QUIET)


def colour(index: int) -> str:
    """A colour for the n-th thing."""
    return COLOURS[index % len(COLOURS)]
