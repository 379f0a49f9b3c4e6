"""The paper's picture of a training run: decomposition, variance, separation, entropy, quality, phase portrait."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ddcl.report.saving import check_path, save
from ddcl.report.style import COLOURS, INK, QUIET, new_figure, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Series = Mapping[str, Sequence[float]]


def draw_dynamics(
    epochs: Series,
    path: str | Path | None = None,
    *,
    title: str = "",
    quality: Sequence[str] = ("acc", "nmi", "ari"),
    num_prototypes: int | None = None,
    prefix: str = "",
) -> Figure:
    """The six panels of the paper's Figure 2 for one run.

    Args:
        epochs: figures over the epochs as a record keeps them, with ``epoch`` among them.
        path: where to write it.
        title: above all panels.
        quality: which figures the fifth panel shows, those that are there.
        num_prototypes: K, to mark ln K in the entropy's panel.
        prefix: of the figures' names, such as ``"level1/0/"`` where a model has several banks.

    Example:
        >>> names = ("total", "reconstruction", "variance", "separation", "entropy")
        >>> figure = draw_dynamics({"epoch": [1, 2], **{name: [2.0, 1.0] for name in names}})
        >>> [axes.get_title() for axes in figure.axes[3:6]]
        ['assignment entropy $H(Q)$', 'quality', 'phase portrait']
    """
    check_path(path)
    figure = new_figure(10.5, 5.6)
    panels = figure.subplots(2, 3)
    when = list(epochs["epoch"])
    terms = {"total": "$L_q$", "reconstruction": "$R$", "variance": "$V$", "quantization": "min $d$"}
    _lines(panels[0, 0], when, {label: epochs.get(prefix + name) for name, label in terms.items()})
    plain(panels[0, 0], title="$L_q = R + V$", y="per token")
    _lines(panels[0, 1], when, {"": epochs.get(f"{prefix}variance")})
    plain(panels[0, 1], title="variance $V \\geq 0$")
    panels[0, 1].set_ylim(bottom=0)
    _lines(panels[0, 2], when, {"": epochs.get(f"{prefix}separation")})
    plain(panels[0, 2], title="separation $S(P)$")
    panels[0, 2].set_ylim(bottom=0)
    _lines(panels[1, 0], when, {"": epochs.get(f"{prefix}entropy")})
    plain(panels[1, 0], title="assignment entropy $H(Q)$", x="epoch")
    if num_prototypes is not None:
        panels[1, 0].axhline(math.log(num_prototypes), color=QUIET, linestyle=":", linewidth=1)
        panels[1, 0].annotate("ln K", (when[0], math.log(num_prototypes)), color=QUIET, fontsize=8, va="bottom")
    panels[1, 0].set_ylim(bottom=0)  # last: limits no longer follow what is drawn after it
    _lines(panels[1, 1], when, {name.upper(): epochs.get(name) for name in quality})
    plain(panels[1, 1], title="quality", x="epoch")
    _portrait(panels[1, 2], epochs.get(f"{prefix}variance"), epochs.get(f"{prefix}separation"), when)
    plain(panels[1, 2], title="phase portrait", x="$V$ per token", y="$S(P)$")
    figure.suptitle(title, color=INK)
    if path is not None:
        save(figure, path)
    return figure


def _lines(axes: Axes, when: Sequence[float], lines: Mapping[str, Sequence[float] | None]) -> None:
    for (label, values), tone in zip(lines.items(), COLOURS, strict=False):
        if values is not None:
            axes.plot(when, values, color=tone, linewidth=1.4, label=label)
    if any(label for label, values in lines.items() if values is not None):
        axes.legend(frameon=False, fontsize=8)


def _portrait(
    axes: Axes, variance: Sequence[float] | None, separation: Sequence[float] | None, when: Sequence[float]
) -> None:
    if variance is None or separation is None:
        return
    axes.plot(variance, separation, color=QUIET, linewidth=0.8, zorder=1)
    points = axes.scatter(variance, separation, c=np.asarray(when), cmap="viridis", s=14, zorder=2)
    axes.get_figure().colorbar(points, ax=axes, label="epoch")  # type: ignore[union-attr]
