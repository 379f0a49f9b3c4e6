"""Means of tokens over groups of them: a whole sequence, windows of it, or segments that were given."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ddcl.functional.checks import check_count
from ddcl.ops import arithmetic_dtype, without_autocast
from ddcl.shapes import Bool, Float, Int


class Pooled(NamedTuple):
    """Means over groups of tokens; unpacks as ``means, mask, groups``."""

    means: Tensor
    """(..., G, m), in the dtype of the tokens; zero for a group that no token counts in."""
    mask: Tensor | None
    """(..., G), true where some token counts; None where one does in every group."""
    groups: Tensor
    """(..., T), or (T,) if the same for all sequences: the group of each token, -1 for none."""


def mean_over_tokens(
    values: Float[Tensor, "*batch T n"], mask: Bool[Tensor, "*batch T"] | None
) -> Float[Tensor, "*batch n"]:
    """Mean over the tokens that count, of values that are zero at those that do not; zero where none counts."""
    total = values.sum(-2, dtype=arithmetic_dtype(values.dtype))
    if mask is None:
        return total / max(values.shape[-2], 1)
    return total / mask.sum(-1, keepdim=True).clamp_min(1)


@without_autocast
def pool_sequence(z: Float[Tensor, "*batch T m"], mask: Bool[Tensor, "*batch T"] | None = None) -> Pooled:
    """The mean of all tokens that count, as one group.

    Args:
        z: tokens.
        mask: true where a token counts.

    Example:
        >>> pool_sequence(torch.tensor([[1.0], [3.0], [8.0]]), torch.tensor([True, True, False])).means
        tensor([[2.]])
    """
    length = z.shape[-2]
    if mask is None and length == 0:
        mask = torch.zeros(z.shape[:-1], dtype=torch.bool, device=z.device)  # nothing counts in nothing
    means = mean_over_tokens(_silenced(z, mask), mask).unsqueeze(-2).to(z.dtype)
    groups = torch.zeros(length, dtype=torch.int64, device=z.device)
    return Pooled(means, None if mask is None else mask.any(-1, keepdim=True), groups)


@without_autocast
def pool_windows(z: Float[Tensor, "*batch T m"], width: int, mask: Bool[Tensor, "*batch T"] | None = None) -> Pooled:
    """The means of windows of neighbouring tokens, side by side; the last one may be shorter.

    Args:
        z: tokens.
        width: tokens in a window.
        mask: true where a token counts.

    Example:
        >>> pool_windows(torch.tensor([[1.0], [3.0], [8.0]]), 2).means
        tensor([[2.],
                [8.]])
    """
    check_count("width", width)
    length = z.shape[-2]
    missing = -length % width
    count = (length + missing) // width
    windows = F.pad(_silenced(z, mask), (0, 0, 0, missing)).unflatten(-2, (count, width))
    groups = torch.arange(length, device=z.device) // width
    if mask is None:
        counts = (length - width * torch.arange(count, device=z.device)).clamp_max(width)
    else:
        counts = F.pad(mask, (0, missing)).unflatten(-1, (count, width)).sum(-1)
    return Pooled(_mean(windows.sum(-2), counts, z), None if mask is None else counts > 0, groups)


@without_autocast
def pool_segments(
    z: Float[Tensor, "*batch T m"],
    segments: Int[Tensor, "*batch T"],
    num_segments: int,
    mask: Bool[Tensor, "*batch T"] | None = None,
) -> Pooled:
    r"""The means of given segments, :math:`\bar z_g = \sum_{t \in g} z_t / |g|`.

    One product with the matrix that says which token is in which segment: the same bits on every run, on any device,
    which a scatter of floats does not give on a GPU.

    Args:
        z: tokens.
        segments: the segment of each token, from 0. One below 0, or not below ``num_segments``, is no segment: its
            token is in none.
        num_segments: G.
        mask: true where a token counts.

    Example:
        >>> pool_segments(torch.tensor([[1.0], [3.0], [8.0]]), torch.tensor([0, 2, 0]), num_segments=3).means
        tensor([[4.5000],
                [0.0000],
                [3.0000]])
    """
    check_count("num_segments", num_segments)
    inside = (segments >= 0) & (segments < num_segments)
    if mask is not None:
        inside = inside & mask
    groups = torch.where(inside, segments.to(torch.int64), -1)
    members = groups.unsqueeze(-2) == torch.arange(num_segments, device=z.device).unsqueeze(-1)
    tokens = _silenced(z, inside)
    counts = members.sum(-1)
    return Pooled(_mean(members.to(tokens.dtype) @ tokens, counts, z), counts > 0, groups)


def _silenced(z: Tensor, mask: Tensor | None) -> Tensor:
    """Tokens in the dtype of the arithmetic, zero where they do not count."""
    tokens = z.to(arithmetic_dtype(z.dtype))
    return tokens if mask is None else tokens.masked_fill(~mask.unsqueeze(-1), 0.0)


def _mean(totals: Tensor, counts: Tensor, like: Tensor) -> Tensor:
    return (totals / counts.clamp_min(1).unsqueeze(-1)).to(like.dtype)
