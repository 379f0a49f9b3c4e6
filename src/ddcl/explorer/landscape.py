"""The map and the phases of a run, in the coordinates of the page: between -1 and 1 along both axes."""

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
        points: all that must be seen, (n, 2).
    """

    def __init__(self, points: np.ndarray) -> None:
        low, high = points.min(0), points.max(0)
        self.middle, self.half = (low + high) / 2, np.maximum((high - low) / 2, 1e-12)

    def placed(self, points: np.ndarray) -> list[Any]:
        """Points (..., 2) as nested lists."""
        found: list[Any] = np.round((points - self.middle) / self.half, DIGITS).tolist()
        return found


def entropies(
    z: Float[Tensor, "n m"], prototypes: Float[Tensor, "K m"], temperatures: Float[Tensor, " t"]
) -> list[float]:
    """The mean entropy of the mixtures of some rows at each temperature, in nats."""
    distances = squared_distances(z, prototypes)
    nearest = distances - distances.min(-1, keepdim=True).values
    means = [torch.special.entr((-nearest / one).softmax(-1)).sum(-1).mean() for one in temperatures.tolist()]
    return [round(float(one), 6) for one in means]
