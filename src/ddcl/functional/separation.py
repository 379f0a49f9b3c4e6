"""How far apart the prototypes are."""

from __future__ import annotations

import torch
from torch import Tensor

from ddcl.functional.checks import check_prototypes
from ddcl.ops import arithmetic_dtype, squared_distances
from ddcl.ops.blocks import block_rows, row_blocks
from ddcl.shapes import Float, Int

DISTINCT_TOLERANCE = 1e-6
"""Squared distance, relative to trace C, under which two prototypes count as one: a thousandth of the data's
radius. Far above what merging leaves (nothing) and far below what K = 65,536 codes on a plane need."""


def separation(prototypes: Float[Tensor, "*heads K m"]) -> Float[Tensor, "*heads"]:
    r"""The paper's :math:`S(P) = \min_{j \ne k} |p_j - p_k|^2`, for each head; infinite for one prototype.

    Example:
        >>> separation(torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]))
        tensor(1.)
    """
    check_prototypes(prototypes)
    closest = [_smallest_pair(bank) for bank in _banks(prototypes)]  # in float32 for half precision banks
    return torch.stack(closest).reshape(prototypes.shape[:-2])


def barrier(prototypes: Float[Tensor, "*heads K m"], strength: float) -> Float[Tensor, ""]:
    r"""The paper's barrier :math:`\frac{\lambda}{2} \sum_{j \ne k} |p_j - p_k|^{-2}`, summed over heads.

    It is finite only while all prototypes are distinct and differentiable there; at a coincident pair it is
    infinite.

    Args:
        prototypes: the bank (K, m) or banks (H, K, m).
        strength: :math:`\lambda \ge 0`.

    Example:
        >>> barrier(torch.tensor([[0.0], [2.0]]), strength=4.0)
        tensor(1.)
    """
    check_prototypes(prototypes)
    if not 0 <= strength < float("inf"):
        raise ValueError(f"strength: got {strength}, expected a finite number of at least 0")
    total = torch.zeros((), dtype=arithmetic_dtype(prototypes.dtype), device=prototypes.device)
    if strength == 0:
        return total  # also of a merged bank, where the sum is infinite
    for bank in _banks(prototypes):
        for rows in row_blocks(len(bank), block_rows(len(bank), bank.numel(), bank.device)):
            # differences, not the expanded product: the pairs that matter are the closest ones
            distances = (bank[rows, None] - bank).square().sum(-1)
            total = total + distances[_off_diagonal(rows, len(bank), bank.device)].reciprocal().sum()
    return total * (strength / 2)


def distinct_prototypes(
    prototypes: Float[Tensor, "*heads K m"],
    scale: float | Tensor,
    *,
    tolerance: float = DISTINCT_TOLERANCE,
) -> Int[Tensor, "*heads"]:
    r"""How many prototypes are left when those that coincide count once.

    Two prototypes belong together if :math:`|p_j - p_k|^2 \le` ``tolerance * scale``, directly or through others.

    Args:
        prototypes: the bank (K, m) or banks (H, K, m).
        scale: the data's trace C, a number or one per head (``covariance(z).trace``).
        tolerance: relative to ``scale``.

    Example:
        >>> distinct_prototypes(torch.tensor([[0.0], [1e-5], [1.0]]), scale=1.0)
        tensor(2)
    """
    check_prototypes(prototypes)
    banks = _banks(prototypes)
    sizes = torch.as_tensor(scale, dtype=torch.float64)
    if sizes.numel() not in (1, len(banks)) or not bool((sizes >= 0).all()):
        raise ValueError(f"scale: got {scale}, expected a number of at least 0, or one for each of {len(banks)} heads")
    scales = sizes.flatten().expand(len(banks)).tolist()
    counts = [len(prototype_groups(bank, tolerance * size).unique()) for bank, size in zip(banks, scales, strict=True)]
    return torch.tensor(counts, device=prototypes.device).reshape(prototypes.shape[:-2])


def prototype_groups(bank: Float[Tensor, "K m"], threshold: float) -> Int[Tensor, " K"]:
    """A label for each prototype, the same for those closer than the squared distance ``threshold``."""
    bank = bank.detach().double()
    labels = torch.arange(len(bank), device=bank.device)
    while True:
        joined = labels.clone()
        for rows in row_blocks(len(bank), block_rows(len(bank), len(bank), bank.device)):
            close = squared_distances(bank[rows], bank) <= threshold
            joined[rows] = torch.where(close, labels, len(bank)).amin(-1).minimum(labels[rows])
        if torch.equal(joined, labels):
            return labels
        labels = joined


def _banks(prototypes: Tensor) -> list[Tensor]:
    banks = prototypes.to(arithmetic_dtype(prototypes.dtype))
    return list(banks) if prototypes.dim() == 3 else [banks]


def _off_diagonal(rows: slice, width: int, device: torch.device) -> Tensor:
    return torch.arange(rows.start, rows.stop, device=device)[:, None] != torch.arange(width, device=device)


def _smallest_pair(bank: Tensor) -> Tensor:
    """The smallest squared distance of two prototypes; the pair is found in blocks, its distance is exact."""
    if len(bank) == 1:
        return bank.new_full((), float("inf"))
    points = bank.detach().double()
    best, pair = None, (0, 1)
    for rows in row_blocks(len(bank), block_rows(len(bank), len(bank), bank.device)):
        distances = squared_distances(points[rows], points)
        distances[~_off_diagonal(rows, len(bank), bank.device)] = float("inf")
        smallest, place = distances.flatten().min(0)
        if best is None or smallest < best:
            best, pair = smallest, (rows.start + int(place) // len(bank), int(place) % len(bank))
    return (bank[pair[0]] - bank[pair[1]]).square().sum()
