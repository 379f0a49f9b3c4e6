"""The map and the phases of a run as the page draws them: places between -1 and 1 along both axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ddcl.ops import squared_distances
from ddcl.shapes import Float

DIGITS = 4
"""Of a coordinate: finer than the pixels of a screen."""


class Frame:
    """From the coordinates of a layout to those of the page.

    Args:
        points: all that must be seen, each (..., 2).
    """

    def __init__(self, *points: np.ndarray) -> None:
        whole = np.concatenate([one.reshape(-1, 2) for one in points])
        low, high = whole.min(0), whole.max(0)
        self.middle, self.half = (low + high) / 2, np.maximum((high - low) / 2, np.finfo(np.float32).tiny)

    def places(self, points: np.ndarray) -> list[Any]:
        """Points (..., 2) as nested lists."""
        found: list[Any] = np.round((points - self.middle) / self.half, DIGITS).tolist()
        return found


class Landscape:
    """What is drawn of a run.

    Args:
        found: what map.json holds.
        phases: what phases.json holds; None for a bank that was not heated.
    """

    def __init__(self, found: Mapping[str, Any], phases: Mapping[str, Any] | None) -> None:
        self._map, self._phases = found, phases
        self._layouts = {
            "plane": _arrays(found["pca"]),
            **({} if found["tsne"] is None else {"neighbours": _arrays(found["tsne"])}),
        }
        self._warmed = [] if phases is None else [np.array(phases["positions"], dtype=np.float64)]

    def drawn(self, prototype: np.ndarray) -> dict[str, Any]:
        """Rows on the map with the nearest prototype of each, and all places: in the ``plane``, and if there is such a
        layout by ``neighbours``.

        Args:
            prototype: of every row of the run.
        """
        rows = self._map["rows"]
        found: dict[str, Any] = {"rows": rows, "prototype": prototype[rows].tolist()}
        for name, layout in self._layouts.items():
            frame = self._frame(name)
            found[name] = {part: frame.places(points) for part, points in layout.items()}
        return found

    def warmed(self, sample: Float[Tensor, "n m"], prototypes: Float[Tensor, "K m"]) -> dict[str, Any] | None:
        """Groups and places of the prototypes as the bank warms, and how undecided the rows of a sample then are."""
        if self._phases is None:
            return None
        temperatures = torch.tensor(self._phases["temperatures"], dtype=torch.float64)
        return {
            "relative": (temperatures / self._phases["critical"]).tolist(),
            "distinct": self._phases["distinct"],
            "groups": self._phases["groups"],
            "positions": self._frame("plane").places(self._warmed[0]),
            "entropy": entropies(sample, prototypes, temperatures),
        }

    def _frame(self, layout: str) -> Frame:
        return Frame(*self._layouts[layout].values(), *(self._warmed if layout == "plane" else []))


def entropies(
    z: Float[Tensor, "n m"], prototypes: Float[Tensor, "K m"], temperatures: Float[Tensor, " t"]
) -> list[float]:
    """The mean entropy, in nats, of the mixtures of some rows at each temperature.

    Example:
        >>> from ddcl.explorer.landscape import entropies
        >>> bank = torch.tensor([[0.0], [2.0]])
        >>> entropies(torch.tensor([[1.0]]), bank, torch.tensor([0.5, 3.0]))  # midway: ln 2, however cold
        [0.693147, 0.693147]
    """
    distances = squared_distances(z, prototypes)
    means = [torch.special.entr((-distances / one).softmax(-1)).sum(-1).mean() for one in temperatures.tolist()]
    return [round(float(one), 6) for one in means]


def _arrays(layout: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {part: np.array(layout[part], dtype=np.float64) for part in ("rows", "prototypes")}
