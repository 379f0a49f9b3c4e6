"""The pictures of a run's report as files, for papers and slides."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ddcl.report.page.contents import Contents
from ddcl.report.page.dynamics import epochs_of
from ddcl.report.page.mapping import spread_colours
from ddcl.report.page.merging import Branch, branches
from ddcl.report.page.texts import shown
from ddcl.report.reproduction.six_panels import draw_dynamics
from ddcl.report.saving import save
from ddcl.report.style import COLOURS, INK, QUIET, colour, new_figure, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".svg", ".png")
NAMED = 60
"""Rows and columns up to which all are named in a picture."""


def write_figures(contents: Contents, folder: Path) -> list[Path]:
    """Every picture there is something for, as .svg and .png; gives the files.

    A character that the font has nothing for is a box in the picture: titles are texts of others, in any script.
    """
    drawings: dict[str, Callable[[Contents], Figure]] = {}
    if contents.metrics:
        drawings["training"] = _training
    if contents.map is not None:
        drawings["map"] = _map
    if contents.heat.rows:
        drawings["assignment"] = _assignment
    if contents.phases is not None:
        drawings |= {"phases": _phases, "merges": _merges}
    written = []
    with warnings.catch_warnings():
        for said in (r"Glyph \d+ .*missing from", r"Matplotlib currently does not support .* natively"):
            warnings.filterwarnings("ignore", said, UserWarning)
        for name, draw in drawings.items():
            figure = draw(contents)
            for ending in FORMATS:
                save(figure, folder / f"{name}{ending}")
                written.append(folder / f"{name}{ending}")
    return written


def _training(contents: Contents) -> Figure:
    known = epochs_of(contents.metrics)
    epochs = {name: [math.nan if value is None else value for value in line] for name, line in known.items()}
    epochs["distinct / K"] = [count / contents.num_prototypes for count in epochs["distinct"]]
    return draw_dynamics(epochs, quality=("distinct / K", "usage"), num_prototypes=contents.num_prototypes)


def _map(contents: Contents) -> Figure:
    assert contents.map is not None, "asked for only where there is one"
    layout = contents.map["tsne"] or contents.map["pca"]
    rows, prototypes = np.asarray(layout["rows"]), np.asarray(layout["prototypes"])
    colours = spread_colours(prototypes)
    figure = new_figure(9.0, 6.4)
    axes = figure.subplots()
    own = [colour(colours[row.prototype]) for row in contents.mapped]
    axes.scatter(rows[:, 0], rows[:, 1], s=7, c=own, alpha=0.6, linewidths=0)
    own = [colour(one) for one in colours]
    axes.scatter(prototypes[:, 0], prototypes[:, 1], s=42, c=own, marker="D", edgecolors="white", linewidths=0.8)
    if len(prototypes) <= NAMED:
        for number, (x, y) in enumerate(prototypes.tolist()):
            axes.annotate(str(number), (x, y), (5, 4), textcoords="offset points", fontsize=7, color=INK)
    axes.set_axis_off()
    return figure


def _assignment(contents: Contents) -> Figure:
    heat = contents.heat
    tall, wide = len(heat.rows), len(heat.columns)
    figure = new_figure(min(16.0, 3.2 + 0.16 * wide), min(24.0, 1.8 + 0.16 * tall))
    axes = figure.subplots()
    axes.imshow(heat.shares, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    plain(axes)
    if wide <= 2 * NAMED:
        names = [_literal(name, 24) for name in heat.columns]
        axes.set_xticks(range(wide), names, rotation=90, fontsize=6)
    if tall <= 2 * NAMED:
        axes.set_yticks(range(tall), [f"{row}: {_literal(contents.titles[row], 32)}" for row in heat.rows], fontsize=6)
    return figure


def _phases(contents: Contents) -> Figure:
    assert contents.phases is not None, "asked for only where there are some"
    found = contents.phases
    figure = new_figure(7.0, 3.6)
    axes = figure.subplots()
    relative = np.asarray(found["temperatures"]) / found["critical"]
    axes.plot(relative, found["distinct"], color=COLOURS[0], linewidth=1.8, drawstyle="steps-post")
    axes.set_ylim(bottom=0)
    _temperature_axis(axes, found["reading"] / found["critical"])
    axes.set_ylabel("distinct prototypes", color=INK)
    return figure


def _merges(contents: Contents) -> Figure:
    assert contents.phases is not None, "asked for only where there are some"
    found = contents.phases
    K = len(contents.titles)
    figure = new_figure(8.0, min(24.0, 1.0 + 0.14 * K))
    axes = figure.subplots()
    coldest, hottest = (found["temperatures"][end] / found["critical"] for end in (0, -1))
    leaves: list[int] = []

    def place(branch: Branch) -> tuple[float, float]:
        """Draw a branch; where its line begins."""
        if not branch.parts:
            leaves.append(branch.members[0])
            return coldest, float(len(leaves) - 1)
        ends = [place(part) for part in branch.parts]
        for start, at in ends:
            axes.plot([start, branch.at], [at, at], color=COLOURS[0], linewidth=0.9)
        axes.plot([branch.at, branch.at], [ends[0][1], ends[-1][1]], color=COLOURS[0], linewidth=0.9)
        return branch.at, sum(at for _, at in ends) / len(ends)

    for top in branches(found):
        start, at = place(top)
        axes.plot([start, hottest], [at, at], color=COLOURS[0], linewidth=0.9)
    _temperature_axis(axes, found["reading"] / found["critical"])
    axes.set_yticks(range(K), [f"{leaf}: {_literal(contents.titles[leaf], 36)}" for leaf in leaves], fontsize=6)
    axes.invert_yaxis()
    return figure


def _temperature_axis(axes: Axes, reading: float) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    plain(axes, x="temperature $T / T_c$")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5, 7)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.axvline(1, color=QUIET, linewidth=1, linestyle=":")
    axes.axvline(reading, color=COLOURS[1], linewidth=1.2, linestyle="--")
    top = axes.get_xaxis_transform()
    axes.annotate("read here", (reading, 1), (-3, 2), xycoords=top, textcoords="offset points", ha="right", fontsize=8)


def _literal(text: str, limit: int) -> str:
    """A text in which matplotlib sees no formula."""
    return shown(" ".join(text.split()), limit).replace("$", r"\$")
