"""The map: a point for each of some rows, a mark for each prototype, and what is said of the one pointed at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from ddcl.report.page.drawing import COLOURS, picture, tag

WIDTH, HEIGHT, _MARGIN = 900.0, 600.0, 18.0
NUMBERED = 60
"""Prototypes up to which all show their numbers; of more, only those that are followed do."""
NEIGHBOURS = 7
"""Nearest prototypes on the map whose colours one keeps clear of: one fewer than there are colours."""


def in_frame(layout: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Rows and prototypes of a layout as places in the picture."""
    rows, prototypes = (np.asarray(layout[name], dtype=float).reshape(-1, 2) for name in ("rows", "prototypes"))
    together = np.concatenate([rows, prototypes])
    low, high = together.min(0), together.max(0)
    size = np.array([WIDTH, HEIGHT]) - 2 * _MARGIN
    spread = np.where(high > low, high - low, 1.0)

    def placed(points: np.ndarray) -> np.ndarray:
        found: np.ndarray = _MARGIN + (points - low) / spread * size
        found[:, 1] = HEIGHT - found[:, 1]
        return found.round(1)

    return placed(rows), placed(prototypes)


def spread_colours(prototypes: np.ndarray) -> list[int]:
    """A colour for each prototype, other than that of its nearest on the map and, where it can be, of the next ones.

    Two are neighbours if one is among the nearest of the other, which may have nearer ones itself. There are not
    always colours enough for that: then the closest neighbours come first.
    """
    near = _neighbours(prototypes)
    found: list[int | None] = [None] * len(prototypes)
    used = [0] * COLOURS
    for number in [*range(len(prototypes))] * 2:  # the second time all neighbours are known
        if (before := found[number]) is not None:
            used[before] -= 1
        closest = [NEIGHBOURS] * COLOURS
        for other, rank in near[number].items():
            if (taken := found[other]) is not None:
                closest[taken] = min(closest[taken], rank)
        chosen = min(range(COLOURS), key=lambda one: (-closest[one], used[one], one))
        found[number] = chosen
        used[chosen] += 1
    return [one for one in found if one is not None]


def _neighbours(places: np.ndarray) -> list[dict[int, int]]:
    """For each place those that are among its nearest or have it among theirs, with the smaller rank of the two."""
    near: list[dict[int, int]] = [{} for _ in places]
    for number, place in enumerate(places):
        distance = np.square(places - place).sum(1)
        distance[number] = np.inf
        nearest = np.argsort(distance, kind="stable")[: min(NEIGHBOURS, len(places) - 1)]
        for rank, other in enumerate(nearest.tolist()):
            for one, two in ((number, other), (other, number)):
                near[one][two] = min(rank, near[one].get(two, rank))
    return near


def draw_map(
    rows: np.ndarray, prototypes: np.ndarray, nearest: Sequence[int], colours: Sequence[int], label: str
) -> Markup:
    """Points in the colour of their prototype, and prototypes as numbered diamonds on top of them."""
    points = [
        tag("circle", cx=x, cy=y, r=3, class_=f"f{colours[prototype]}", data_p=prototype)
        for (x, y), prototype in zip(rows.tolist(), nearest, strict=True)
    ]
    many = len(prototypes) > NUMBERED
    marks = []
    for number, (x, y) in enumerate(prototypes.tolist()):
        diamond = tag("path", d="M0-8 8 0 0 8-8 0Z", class_=f"f{colours[number]}")
        name = tag("text", str(number), y=3, text_anchor="middle")
        marks.append(tag("g", diamond, name, transform=f"translate({x} {y})", data_p=number))
    return picture(
        WIDTH,
        HEIGHT,
        tag("g", *points, class_="points"),
        tag("g", *marks, class_="marks many" if many else "marks"),
        label=label,
        id="map",
    )
