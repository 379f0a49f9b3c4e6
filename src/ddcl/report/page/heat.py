"""Which prototype holds which label, or shares rows with which other prototype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from ddcl.report.page.drawing import picture, tag
from ddcl.report.page.texts import percent, shown

LEAST = 0.01
"""Shares below are left blank."""
MOST_ROWS, MOST_COLUMNS = 200, 200
_LABEL, _HEAD, _SLANT = 220.0, 120.0, 60.0


class HeatMap(NamedTuple):
    """Shares of rows, in the order they are drawn."""

    rows: tuple[int, ...]
    """Numbers of prototypes."""
    columns: tuple[str, ...]
    shares: np.ndarray
    """(rows, columns), between 0 and 1."""
    of_labels: bool


def label_map(prototype: np.ndarray, label: Sequence[str | None], num_prototypes: int) -> HeatMap:
    """For each prototype, how its labelled rows divide among labels; those of one label next to each other."""
    known = np.array([one is not None for one in label], dtype=bool)
    names, numbers = np.unique(np.array([one for one in label if one is not None], dtype=object), return_inverse=True)
    counts = np.zeros((num_prototypes, len(names)))
    np.add.at(counts, (prototype[known], numbers), 1)
    columns = np.sort(np.argsort(-counts.sum(0), kind="stable")[:MOST_COLUMNS])
    held = counts.sum(1)
    shares = counts / np.maximum(held, 1)[:, None]
    rows = np.sort(np.argsort(-held, kind="stable")[:MOST_ROWS])
    rows = rows[held[rows] > 0]
    main = shares[rows][:, columns]
    order = np.lexsort((-main.max(1), main.argmax(1)))
    return HeatMap(
        tuple(rows[order].tolist()), tuple(str(names[column]) for column in columns), main[order], of_labels=True
    )


def mixture_map(leading: np.ndarray, weights: np.ndarray, titles: Sequence[str]) -> HeatMap:
    """For each prototype, the mean share of every prototype in the rows it is nearest to; from leading shares.

    Args:
        leading: (N, n), the leading prototypes of each row, the nearest first.
        weights: (N, n), their shares.
        titles: of all prototypes.
    """
    K = len(titles)
    sums = np.zeros((K, K))
    np.add.at(sums, (leading[:, :1], leading), weights)
    held = np.bincount(leading[:, 0], minlength=K)
    rows = np.sort(np.argsort(-held, kind="stable")[: min(MOST_ROWS, MOST_COLUMNS)])
    rows = rows[held[rows] > 0]
    shares = sums[rows][:, rows] / held[rows, None]
    return HeatMap(tuple(rows.tolist()), tuple(f"{row}: {titles[row]}" for row in rows), shares, of_labels=False)


def draw_heat(found: HeatMap, titles: Sequence[str]) -> Markup:
    """Rows from top to bottom; a cell tells what it is when pointed at."""
    wide = min(24.0, max(9.0, 640 / max(1, len(found.columns))))
    tall = max(12.0, min(wide, 20.0))
    inside = wide * len(found.columns), tall * len(found.rows)
    parts = [tag("rect", x=_LABEL - 1, y=_HEAD - 1, width=inside[0] + 1, height=inside[1] + 1, class_="frame")]
    for place, name in enumerate(found.columns):
        at = f"translate({_LABEL + wide * (place + 0.65):.1f} {_HEAD - 6}) rotate(-60)"
        parts.append(tag("text", shown(name, 18), transform=at, class_="tick"))
    for place, number in enumerate(found.rows):
        top = _HEAD + tall * place
        label = f"{number}: {shown(titles[number], 32)}"
        parts.append(tag("text", label, x=_LABEL - 6, y=top + tall / 2 + 3.5, text_anchor="end", class_="tick"))
        cells = []
        for column in np.flatnonzero(found.shares[place] >= LEAST).tolist():
            share = float(found.shares[place, column])
            said = tag("title", f"{label}, {shown(found.columns[column], 60)}: {percent(share)}")
            left = _LABEL + wide * column
            cells.append(
                tag("rect", said, x=left, y=top, width=wide - 1, height=tall - 1, fill_opacity=round(share, 3))
            )
        parts.append(tag("g", *cells, class_="cells"))
    what = "labels" if found.of_labels else "prototypes"
    label = f"Heat map of {len(found.rows)} prototypes against {len(found.columns)} {what}"
    return picture(_LABEL + inside[0] + _SLANT, _HEAD + inside[1] + 4, *parts, label=label, fixed=True)
