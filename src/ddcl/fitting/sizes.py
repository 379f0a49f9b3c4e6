"""How many prototypes data call for, read off their phase diagram."""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

import torch
from torch import Tensor

from ddcl.fitting.errors import BadInputError
from ddcl.functional import phase_diagram
from ddcl.functional.phases import cooling_grid
from ddcl.shapes import Float

MOST_PROTOTYPES = 32
"""The cap of the choice: the diagram is that of a bank of one more."""
SAMPLE, DIRECTIONS = 512, 32
"""Rows and leading principal directions the diagram is drawn from: splits follow the directions of largest variance."""
_COLDEST, _POINTS, _STEPS = 0.02, 50, 200


class Size(NamedTuple):
    """A number of prototypes and why."""

    prototypes: int
    reason: str
    """To be said aloud and kept in the run's configuration."""


@torch.no_grad()
def choose_size(rows: Float[Tensor, "N m"], seed: int, most: int = MOST_PROTOTYPES) -> Size:
    r"""The number K whose plateau of :math:`K_\text{eff}(T)` is the longest for its size.

    A bank is cooled from above :math:`T_c` to a fiftieth of it, and its distinct prototypes are counted at rest. Groups
    that stand well apart leave a plateau: the number is the same over a long range of temperatures, a length
    :math:`\ell_K` in :math:`\ln T`. In data without structure the plateaus shrink as 1/K all the same
    (:math:`K_\text{eff}` is a power of T), so the criterion is the largest :math:`K \ell_K` for K from 2 to ``most``.

    Args:
        rows: embeddings; :data:`SAMPLE` of them are drawn, along their :data:`DIRECTIONS` leading directions.
        seed: of the draw.
        most: the largest K to consider.

    Example:
        >>> from ddcl.fitting.sizes import choose_size
        >>> centers = 9 * torch.eye(5, 8)
        >>> choose_size(centers[torch.arange(200) % 5] + 0.1 * torch.randn(200, 8), seed=0).prototypes
        5
    """
    random = torch.Generator().manual_seed(seed)
    drawn = rows[torch.randperm(len(rows), generator=random)[:SAMPLE]].double()
    centred = drawn - drawn.mean(0)
    if not bool(centred.any()):
        raise BadInputError("all rows are the same: there is nothing to find prototypes of")
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    flat = centred @ directions[:DIRECTIONS].mT
    most = min(most, len(drawn) - 1)
    grid = cooling_grid(1.1, _COLDEST, _POINTS)
    # one more than is asked for: a full bank stays as it is, which says nothing of the data
    counted = Counter(phase_diagram(flat, most + 1, relative=grid, steps=_STEPS).distinct.tolist())
    step = math.log(float(grid[0] / grid[1]))
    lengths = {K: counted[K] * step for K in range(2, most + 1) if counted[K]}
    if not lengths:
        return Size(2, "no number of prototypes lasts over a range of temperatures")
    best = max(lengths, key=lambda K: K * lengths[K])
    return Size(
        best,
        f"of 2 to {most}, the number that stays the same over the longest range of temperatures for its size, "
        f"a factor of {math.exp(lengths[best]):.3g}",
    )
