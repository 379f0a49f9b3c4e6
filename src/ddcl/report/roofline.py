"""The picture of a record of ``ddcl bench kernels``: how near each candidate runs to what the machine allows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from ddcl.experiments.kernels.record import MEASURED, Row, read
from ddcl.experiments.kernels.shapes import KINDS, Kind, Shape
from ddcl.experiments.kernels.verdicts import best_timed
from ddcl.experiments.records import read_rows
from ddcl.report.saving import check_path, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, QUIET = "#22303c", "#8a94a0"
# told apart by colour-blind readers too (Okabe and Ito), and by their form where colours come round again
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKERS = "osD^vP*X<>h"
TITLES: dict[Kind, str] = {"forward": "forward", "forward+backward": "training step (forward + backward)"}


def draw_roofline(
    record: str | Path,
    path: str | Path | None = None,
    *,
    candidates: Sequence[str] | None = None,
    title: str | None = None,
) -> Figure:
    """Two panels, forward and training step: rate of useful operations over operations per byte, below two ceilings.

    Useful are the operations the readout must do, whatever a candidate does; the bytes are the fewest it must move. The
    ceilings are the copy rate and the matrix rate measured in the run. A candidate's time is that of the device
    where a CUDA graph was replayed.

    Args:
        record: the file that ``ddcl bench kernels --out`` wrote.
        path: where to write the picture, a .png, .svg or .pdf file; folders are made as needed.
        candidates: those to draw, in that order; None draws all of them.
        title: above both panels; without it the device and the dtype.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("drawing needs matplotlib, which comes with the extra: pip install 'ddcl[report]'") from error
    check_path(path)
    rows = [row for row in read(record) if row.status == MEASURED and row.kind in KINDS]
    known = list(dict.fromkeys(row.candidate for row in rows))
    chosen = known if candidates is None else list(candidates)
    missing = [name for name in chosen if name not in known]
    if missing or not rows:
        raise ValueError(f"candidates: {missing[0] if missing else 'any'} not measured; the record has {known}")

    figure = Figure(figsize=(11.0, 5.2), layout="constrained", facecolor="white")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, kind in zip(panels, KINDS, strict=True):
        _draw_panel(axes, kind, rows, chosen)
    low, high = panels[0].get_ylim()
    panels[0].set_ylim(low / (high / low) ** 0.32, high)  # room for the names of the sizes
    panels[0].set_ylabel("useful TFLOP/s", color=INK)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=5, frameon=False, labelcolor=INK, fontsize=9, handlelength=1
    )
    origin = read_rows(record)[0]
    device = origin.get("gpu") or origin.get("device", "")
    figure.suptitle(title or f"The readout against what the machine allows: {device}, {rows[0].dtype}", color=INK)
    if path is not None:
        save(figure, path)
    return figure


def _draw_panel(axes: Axes, kind: Kind, rows: Sequence[Row], chosen: Sequence[str]) -> None:
    mine = [row for row in rows if row.kind == kind]
    by_intensity = {row.shape: row.intensity for row in mine if row.intensity is not None}
    shapes = sorted(by_intensity, key=lambda shape: (by_intensity[shape], shape))
    axes.set_xscale("log")
    axes.set_yscale("log")
    _draw_ceilings(axes, mine, [by_intensity[shape] for shape in shapes])
    for number, name in enumerate(chosen):
        points = [(by_intensity[shape], _rate(rows, name, shape, kind)) for shape in shapes]
        found = [(x, y) for x, y in points if y is not None]
        ours = ":" in name
        axes.plot(
            [x for x, _ in found],
            [y for _, y in found],
            color=COLOURS[number % len(COLOURS)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=7 if ours else 5.5,
            linewidth=1.2 if ours else 0.5,
            alpha=1.0 if ours else 0.85,
            label=name,
            zorder=4 if ours else 3,
        )
    axes.set_title(TITLES[kind], color=INK, fontsize=11)
    axes.set_xlabel("useful operations per byte that must be moved; sizes are (N, m, K)", color=INK)
    axes.tick_params(colors=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(QUIET)
    _name_shapes(axes, shapes, by_intensity)


def _rate(rows: Sequence[Row], name: str, shape: Shape, kind: Kind) -> float | None:
    row = best_timed(rows, name, shape, kind)
    return None if row is None or row.operations_per_second is None else row.operations_per_second / 1e12


def _draw_ceilings(axes: Axes, rows: Sequence[Row], intensities: Sequence[float]) -> None:
    """The slope of the copy rate up to the flat of the matrix rate; of several runs in a record, the middle one."""
    copy = median(row.copy_bytes_s for row in rows if row.copy_bytes_s is not None)
    matrix = median(row.matrix_ops_s for row in rows if row.matrix_ops_s is not None)
    ridge = matrix / copy
    left, right = min(*intensities, ridge) / 2, max(*intensities, ridge) * 2
    axes.plot([left, ridge, right], [left * copy / 1e12, matrix / 1e12, matrix / 1e12], color=INK, linewidth=1.6)
    axes.annotate(
        f"matrix product {matrix / 1e12:.3g} TFLOP/s",
        (right, matrix / 1e12),
        (0, 4),
        textcoords="offset points",
        ha="right",
        color=INK,
        fontsize=9,
    )
    axes.annotate(
        f"copy {copy / 1e12:.3g} TB/s",
        (ridge, matrix / 1e12),
        (-12, -6),
        textcoords="offset points",
        ha="right",
        color=INK,
        fontsize=9,
    )
    axes.set_xlim(left, right)


def _name_shapes(axes: Axes, shapes: Sequence[Shape], by_intensity: dict[Shape, float]) -> None:
    """A line for each size, named at its foot; sizes of one K share a line."""
    for x in dict.fromkeys(by_intensity[shape] for shape in shapes):
        names = ", ".join(str(shape) for shape in shapes if by_intensity[shape] == x)
        axes.axvline(x, color=QUIET, linewidth=0.6, linestyle=":", zorder=0)
        axes.annotate(
            names,
            (x, 0.01),
            (-2, 0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            rotation=90,
            ha="right",
            va="bottom",
            color=QUIET,
            fontsize=8,
        )
