"""Who is near whom in a frozen space, and vectors made smooth over it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ddcl.functional.checks import check_count, check_finite, check_float_tensor
from ddcl.ops import arithmetic_dtype, without_autocast
from ddcl.ops.blocks import block_rows, row_blocks
from ddcl.shapes import Float, Int

_REFERENCES_AT_ONCE = 8192


class NeighbourGraph(NamedTuple):
    """Who is a neighbour of whom, in both directions; row n begins at ``targets[offsets[n]]``."""

    targets: Tensor
    """(2 N k,): the k neighbours of a point and all points it is a neighbour of. Who is both stands twice."""
    offsets: Tensor
    """(N,)."""


@torch.no_grad()
@without_autocast
def nearest_neighbours(
    points: Float[Tensor, "N m"], reference: Float[Tensor, "R m"], num_neighbours: int, *, skip_self: bool = False
) -> Int[Tensor, "N k"]:
    """Indices of the nearest reference points of each point, nearest first; exact, in blocks of both.

    Args:
        points: whose neighbours are sought.
        reference: among which; with ``skip_self`` the same points in the same order.
        num_neighbours: k, at most the number of reference points (one less with ``skip_self``).
        skip_self: leave point n out of its own neighbours; others that equal it are kept.

    Example:
        >>> line = torch.tensor([[0.0], [1.0], [3.0]])
        >>> nearest_neighbours(line, line, 1, skip_self=True).flatten()
        tensor([1, 0, 1])
    """
    _check(points, reference, num_neighbours, skip_self)
    dtype = arithmetic_dtype(reference.dtype)
    origin = reference.mean(0, dtype=dtype)  # far from the origin, differences keep the digits
    place = torch.arange(len(reference), device=reference.device)
    found = torch.empty(len(points), num_neighbours, dtype=torch.int64, device=points.device)
    width = min(len(reference), _REFERENCES_AT_ONCE)
    for rows in row_blocks(len(points), block_rows(len(points), width, points.device)):
        x = points[rows].to(dtype) - origin
        near, index = [], []
        for block in row_blocks(len(reference), width):
            r = reference[block].to(dtype) - origin
            scores = (x @ (2 * r).mT).sub_(r.square().sum(-1))  # -|x - r|^2 but for |x|^2, which ranks nothing
            if skip_self:
                scores.masked_fill_(place[rows, None] == place[block], -torch.inf)
            best = scores.topk(min(num_neighbours, len(r)), dim=-1)
            near.append(best.values)
            index.append(place[block][best.indices])
        chosen = torch.cat(near, -1).topk(num_neighbours, dim=-1).indices
        found[rows] = torch.cat(index, -1).gather(-1, chosen)
    return found


def _check(points: Tensor, reference: Tensor, num_neighbours: int, skip_self: bool) -> None:
    for name, value in (("points", points), ("reference", reference)):
        check_float_tensor(name, value)
        if value.dim() != 2 or value.shape[-1] != reference.shape[-1]:
            raise ValueError(f"{name}: got shape {tuple(value.shape)}, expected (N, {reference.shape[-1]})")
        check_finite(name, value)
    check_count("num_neighbours", num_neighbours)
    available = len(reference) - int(skip_self)
    if num_neighbours > available:
        raise ValueError(f"num_neighbours: got {num_neighbours}, expected at most {available}, as many as there are")
    if skip_self and len(points) != len(reference):
        raise ValueError(f"points: got {len(points)}, expected the {len(reference)} reference points with skip_self")


@torch.no_grad()
def neighbour_graph(z: Float[Tensor, "N m"], num_neighbours: int = 15) -> NeighbourGraph:
    """Every point joined to its k nearest and to all those it is one of the k nearest of; N k numbers, never N x N.

    Example:
        >>> graph = neighbour_graph(torch.tensor([[0.0], [1.0], [3.0]]), 1)
        >>> graph.targets, graph.offsets  # 1 is the neighbour of 0 and of 2, and has 0 for its own
        (tensor([1, 1, 0, 0, 2, 1]), tensor([0, 2, 5]))
    """
    nearest = nearest_neighbours(z, z, num_neighbours, skip_self=True)
    sources = torch.arange(len(z), device=z.device).repeat_interleave(num_neighbours)
    ends = torch.cat([sources, nearest.flatten()])
    order = ends.argsort(stable=True)
    degrees = torch.bincount(ends, minlength=len(z))
    return NeighbourGraph(torch.cat([nearest.flatten(), sources])[order], degrees.cumsum(0) - degrees)


@torch.no_grad()
def smooth_over(
    graph: NeighbourGraph, x: Float[Tensor, "N m"], *, share: float = 0.9, steps: int = 20
) -> Float[Tensor, "N m"]:
    r"""Every vector drawn towards the mean of its neighbours', again and again: personalised PageRank on vectors.

    .. math:: h \leftarrow a P h + (1 - a)\,x, \qquad P = D^{-1}(A + A^\top)

    from h = x, where A has a one for each of the k nearest neighbours and D makes the rows of P sum to one. It tends to
    :math:`(1 - a)(I - aP)^{-1}x`, the mean of x over where a walk ends that stops with probability 1 - a before each
    step; what is left of the start after t steps is :math:`a^t`.

    Args:
        graph: from :func:`neighbour_graph`.
        x: one vector for each point of the graph.
        share: a, how much of a vector comes from its neighbours, from 0 (nothing changes) to less than 1.
        steps: how often.

    Example:
        >>> pair = neighbour_graph(torch.tensor([[0.0], [1.0]]), 1)
        >>> smooth_over(pair, torch.tensor([[0.0], [1.0]]), share=0.5, steps=30).flatten()
        tensor([0.3333, 0.6667])
    """
    check_float_tensor("x", x)
    check_count("steps", steps)
    if not 0 <= share < 1:
        raise ValueError(f"share: got {share}, expected a number from 0 to less than 1")
    if x.dim() != 2 or len(x) != len(graph.offsets):
        raise ValueError(f"x: got shape {tuple(x.shape)}, expected ({len(graph.offsets)}, m), a row for each point")
    start = x.to(arithmetic_dtype(x.dtype))
    h = start
    for _ in range(steps):
        # a bag is the neighbours of one point: no N x k x m is held, and a GPU adds in the same order every time
        h = share * F.embedding_bag(graph.targets, h, graph.offsets, mode="mean") + (1 - share) * start
    return h.to(x.dtype)
