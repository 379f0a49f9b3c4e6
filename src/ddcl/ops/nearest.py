"""Nearest prototype and its distance, block by block: what k-means and every hard count need."""

from __future__ import annotations

import torch
from torch import Tensor

from ddcl.ops.blocks import block_rows, row_blocks
from ddcl.ops.centring import bank_center
from ddcl.ops.precision import without_autocast
from ddcl.shapes import Float, Int


@without_autocast
def nearest(
    points: Float[Tensor, "N m"], centers: Float[Tensor, "K m"]
) -> tuple[Int[Tensor, " N"], Float[Tensor, " N"]]:
    """Index of the nearest centre of each point and the squared distance to it.

    The distance is taken from the difference, so it keeps its digits however small; centres whose distances agree
    to rounding of ``|x| |p|`` may be taken for each other.
    """
    origin = bank_center(centers)
    shifted = centers - origin
    doubled, squared_norm = (2 * shifted).mT, shifted.square().sum(-1)
    indices = torch.empty(len(points), dtype=torch.int64, device=points.device)
    squared_distance = torch.empty(len(points), dtype=points.dtype, device=points.device)
    step = block_rows(len(points), max(centers.shape), points.device)
    for rows in row_blocks(len(points), step):
        x = points[rows] - origin
        best = torch.mm(x, doubled).sub_(squared_norm).max(-1).indices
        indices[rows] = best
        squared_distance[rows] = (x - shifted[best]).square().sum(-1)
    return indices, squared_distance


@without_autocast
def squared_distances(a: Float[Tensor, "N m"], b: Float[Tensor, "K m"]) -> Float[Tensor, "N K"]:
    """All squared distances at once, for two sets small enough to hold them; never negative."""
    origin = bank_center(b)
    a, b = a - origin, b - origin
    return (a.square().sum(-1, keepdim=True) - 2 * a @ b.mT + b.square().sum(-1)).clamp_min(0.0)
