"""Soft k-means: where a bank comes to rest at a temperature, without gradients."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ddcl.functional.batches import Batches, token_batches
from ddcl.functional.checks import check_head_temperature, check_prototypes
from ddcl.functional.readout import assignments
from ddcl.ops import arithmetic_dtype
from ddcl.ops.blocks import block_rows, row_blocks
from ddcl.shapes import Float


class CellMoments(NamedTuple):
    """What each prototype holds of the data; with a head axis for a bank (H, K, m)."""

    mass: Tensor
    """Sum over tokens of q, (K,) or (H, K)."""
    pull: Tensor
    """Sum over tokens of q (z - p), (K, m) or (H, K, m): mass times the way to the cell's mean."""


@torch.no_grad()
def cell_moments(
    z: Batches,
    prototypes: Float[Tensor, "K m"] | Float[Tensor, "H K m"],
    temperature: float | Tensor,
    *,
    mask: Tensor | None = None,
) -> CellMoments:
    r"""Mass :math:`\sum_n q_{nk}` and pull :math:`\sum_n q_{nk}(z_n - p_k)` of every prototype, in blocks.

    Minus twice the pull is the gradient of the summed loss in mode stop.

    Args:
        z: tokens (..., m), or (..., H, m) for a bank (H, K, m), or an iterable of batches or (batch, mask) pairs.
        prototypes: the bank.
        temperature: a number, a scalar tensor or one per head.
        mask: for a tensor z, true where a token counts.

    Example:
        >>> cell_moments(torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0]]), 1.0)
        CellMoments(mass=tensor([2.]), pull=tensor([[1.]]))
    """
    check_prototypes(prototypes)
    num_heads = prototypes.shape[0] if prototypes.dim() == 3 else None
    check_head_temperature(temperature, num_heads)
    banks = prototypes if num_heads else prototypes[None]
    dtype = arithmetic_dtype(prototypes.dtype)
    banks = banks.to(dtype)
    mass = torch.zeros(banks.shape[:2], dtype=dtype, device=banks.device)
    pull = torch.zeros_like(banks)
    for tokens in token_batches(z, mask, num_heads=num_heads, dim=prototypes.shape[-1]):
        for rows in row_blocks(len(tokens), block_rows(len(tokens), banks[..., 0].numel(), tokens.device)):
            x = tokens[rows].to(dtype)
            q = assignments(x, banks, temperature).transpose(0, 1)  # (H, n, K)
            of_block = q.sum(1)
            mass += of_block
            x = x.transpose(0, 1)
            center = x.mean(1, keepdim=True)  # far from the origin, differences keep the digits
            pull += q.mT @ (x - center) - of_block.unsqueeze(-1) * (banks - center)
    return CellMoments(mass, pull) if num_heads else CellMoments(mass[0], pull[0])


def soft_kmeans_step(
    z: Batches,
    prototypes: Float[Tensor, "K m"] | Float[Tensor, "H K m"],
    temperature: float | Tensor,
    *,
    mask: Tensor | None = None,
) -> Float[Tensor, "*heads K m"]:
    r"""Every prototype moved to the mean of its soft cell, :math:`p_k \leftarrow \sum_n q_{nk} z_n / \sum_n q_{nk}`.

    The free energy never rises along such steps. A prototype without any mass stays. Arguments as in
    :func:`cell_moments`.

    Example:
        >>> z = torch.tensor([[0.0], [1.0], [9.0], [10.0]])
        >>> soft_kmeans_step(z, torch.tensor([[2.0], [8.0]]), 0.1)
        tensor([[0.5000],
                [9.5000]])
    """
    mass, pull = cell_moments(z, prototypes, temperature, mask=mask)
    tiny = torch.finfo(mass.dtype).tiny
    return (prototypes + (pull / mass.clamp_min(tiny).unsqueeze(-1))).to(prototypes.dtype)
