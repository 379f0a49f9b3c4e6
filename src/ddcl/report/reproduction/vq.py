"""Figure 4: what each quantiser makes of its codes over the epochs, what it costs in the end, and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np

from ddcl.experiments.reproduce.record import load_arrays
from ddcl.experiments.reproduce.study import Done
from ddcl.experiments.reproduce.summary import cases, methods, values
from ddcl.report.saving import save
from ddcl.report.style import INK, MARKERS, colour, new_figure, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(finished: Sequence[Done], arrays: Path, into: Path) -> list[Path]:
    """Codes over the epochs, errors by size, and pictures drawn again where they were kept."""
    paths = [_codes(finished, into / "vq-codes.svg"), _errors(finished, into / "vq-errors.svg")]
    pictures = _pictures(finished, arrays, into / "vq-pictures.png")
    return [*paths, *([pictures] if pictures else [])]


def _codes(finished: Sequence[Done], path: Path) -> Path:
    """A row per size: hard usage and perplexity over the epochs."""
    sizes = cases(finished)
    figure = new_figure(10.5, 2.5 * len(sizes) + 0.6)
    panels = figure.subplots(len(sizes), 2, squeeze=False)
    for row, case in zip(panels, sizes, strict=True):
        for axes, metric, title in zip(
            row, ("usage", "perplexity"), ("codes used in an epoch, share", "perplexity of the codes"), strict=True
        ):
            for index, method in enumerate(methods(finished)):
                _line(axes, finished, case, method, metric, index)
            plain(axes, title=f"{case}: {title}", x="epoch" if case == sizes[-1] else "")
            axes.set_ylim(bottom=0)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    save(figure, path)
    return path


def _line(axes: Axes, finished: Sequence[Done], case: str, method: str, metric: str, index: int) -> None:
    series = [one.epochs[metric] for one in finished if one.case == case and one.method == method]
    if not series:
        return
    rows = np.array(series)
    when = np.arange(1, rows.shape[1] + 1)
    look = _look(method, index)
    axes.plot(when, rows.mean(0), label=method, **look)
    axes.fill_between(when, rows.min(0), rows.max(0), color=look["color"], alpha=0.12, linewidth=0)


def _look(method: str, index: int) -> dict[str, Any]:
    """Ours in ink, whoever else there is in colours."""
    if not method.startswith("ddcl"):
        return {"color": colour(index), "linewidth": 1.2}
    return {"color": INK, "linewidth": 2.2, "linestyle": "-" if "default" in method else ":"}


def _errors(finished: Sequence[Done], path: Path) -> Path:
    """Hard reconstruction error against the number of codes."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    figure = new_figure(8.5, 4.4)
    axes = figure.subplots()
    for index, method in enumerate(methods(finished)):
        points = []
        for case in cases(finished):
            found = [1e3 * one for one in values(finished, case, method, "mse")]
            if found:
                points.append((int(case.rpartition(" ")[2]), mean(found), stdev(found) if len(found) > 1 else 0.0))
        sizes, middle, spread = zip(*points, strict=True)
        axes.errorbar(sizes, middle, spread, marker=MARKERS[index % 8], label=method, **_look(method, index))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xticks(sizes, [str(size) for size in sizes])
    plain(axes, x="codes K", y="hard reconstruction MSE on test pictures, 1e-3", title="CIFAR-10, mean over seeds")
    axes.legend(frameon=False, fontsize=8, bbox_to_anchor=(1.02, 1), loc="upper left")
    save(figure, path)
    return path


def _pictures(finished: Sequence[Done], arrays: Path, path: Path) -> Path | None:
    """Rows of the same test pictures, drawn again by each method at the largest size."""
    case = cases(finished)[-1]
    rows = {method: load_arrays(arrays, case, method) for method in methods(finished)}
    kept = {method: found["drawn"] for method, found in rows.items() if "drawn" in found}
    if not kept:
        return None
    figure = new_figure(8.0, 1.25 * len(kept) + 0.4)
    for axes, (method, pixels) in zip(np.atleast_1d(figure.subplots(len(kept), 1)), kept.items(), strict=True):
        axes.imshow(np.concatenate(list(pixels), axis=1))
        axes.set_yticks([])
        axes.set_xticks([])
        axes.set_title(method, loc="left", fontsize=8, color=INK, pad=2)
    figure.suptitle(f"{case}: test pictures drawn again from their codes", color=INK)
    save(figure, path)
    return path
