"""How much of a bank is in use, measured so that a dead or merged bank cannot pass."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from ddcl.functional.batches import Batches, token_batches
from ddcl.functional.checks import check_count, check_head_temperature, check_prototypes
from ddcl.functional.readout import assignments
from ddcl.ops.blocks import block_rows, row_blocks
from ddcl.shapes import Float, Int

PAPER_THRESHOLD = 0.01
"""The paper counts a prototype as used when its mean assignment is above this."""


class Usage(NamedTuple):
    """Hard use of a bank over a set of tokens; per head where there are heads."""

    usage: Tensor
    """Share of prototypes that are nearest to at least one token."""
    perplexity: Tensor
    """exp of the entropy of the counts: how many prototypes equal use would need."""
    counts: Tensor
    """Tokens won by each prototype, (K,) or (H, K)."""


class SoftUsage(NamedTuple):
    """Soft use of a bank over a set of tokens; per head where there are heads."""

    perplexity: Tensor
    """exp of the entropy of the mean assignment. A merged bank scores K here: read it beside the hard figures."""
    paper_usage: Tensor
    """The paper's figure, the share of prototypes with mean assignment above 0.01: 100 % for any merged bank
    with K < 100, and out of reach for every bank with K > 100."""
    mean_assignment: Tensor
    """Mean of q over tokens, (K,) or (H, K)."""


def usage(
    indices: Int[Tensor, "*tokens"] | Iterable[Tensor], num_prototypes: int, *, num_heads: int | None = None
) -> Usage:
    """Hard usage and perplexity from nearest-prototype indices, as ``readout(...).indices`` gives them.

    Args:
        indices: integers (...), or (..., H) with ``num_heads``, or an iterable of such; -1 (masked) is left out.
        num_prototypes: K.
        num_heads: H, if the last axis of the indices is the heads.

    Example:
        >>> usage(torch.tensor([0, 0, 2, -1]), num_prototypes=4).usage
        tensor(0.5000)
    """
    check_count("num_prototypes", num_prototypes)
    heads = num_heads or 1
    counts: Tensor | None = None
    for batch in [indices] if isinstance(indices, Tensor) else indices:
        if not isinstance(batch, Tensor):
            raise TypeError(f"indices: got {type(batch).__name__}, expected an integer tensor or an iterable of them")
        if batch.dtype.is_floating_point or batch.dtype == torch.bool:
            raise TypeError(f"indices: got dtype {batch.dtype}, expected integers")
        if num_heads is not None and (batch.dim() == 0 or batch.shape[-1] != num_heads):
            raise ValueError(f"indices: got shape {tuple(batch.shape)}, expected (..., {num_heads})")
        if batch.numel() and (int(batch.min()) < -1 or int(batch.max()) >= num_prototypes):
            raise ValueError(
                f"indices: got values from {int(batch.min())} to {int(batch.max())}, "
                f"expected 0 to {num_prototypes - 1}, or -1 for masked tokens"
            )
        shifted = batch.long().reshape(-1, heads) + 1  # column 0 collects the masked ones
        offsets = torch.arange(heads, device=batch.device) * (num_prototypes + 1)
        found = torch.bincount((shifted + offsets).flatten(), minlength=heads * (num_prototypes + 1))
        found = found.reshape(heads, num_prototypes + 1)[:, 1:]
        counts = found if counts is None else counts + found
    if counts is None:
        counts = torch.zeros(heads, num_prototypes, dtype=torch.int64)
    if num_heads is None:
        counts = counts[0]
    return Usage((counts > 0).float().mean(-1), perplexity(counts), counts)


def perplexity(weights: Float[Tensor, "*heads K"] | Int[Tensor, "*heads K"]) -> Float[Tensor, "*heads"]:
    """exp of the entropy of non-negative weights along the last axis; 0 if all are zero.

    Example:
        >>> perplexity(torch.tensor([5, 5, 0, 0]))
        tensor(2.)
    """
    weights = weights if weights.dtype == torch.float64 else weights.float()
    total = weights.sum(-1, keepdim=True)
    share = weights / total.clamp_min(torch.finfo(weights.dtype).tiny)
    return torch.where(total.squeeze(-1) > 0, torch.special.entr(share).sum(-1).exp(), 0.0)


def code_rate(
    indices: Int[Tensor, "*tokens"] | Iterable[Tensor], num_prototypes: int, *, num_codebooks: int | None = None
) -> Float[Tensor, ""]:
    r"""Bits per token that codes are worth: :math:`-\sum_k f_k \log_2 f_k` of how often each occurs, over codebooks.

    What an ideal coder would spend that knows the frequencies and takes each codebook for itself. At most
    ``num_codebooks`` x :math:`\log_2 K`.

    Args:
        indices: integers (...), or (..., B) with ``num_codebooks``, or an iterable of such; -1 (masked) is left out.
        num_prototypes: K; where codebooks differ in size, the largest.
        num_codebooks: B, heads or stages, if the last axis of the indices is that.

    Example:
        >>> code_rate(torch.tensor([0, 1, 2, 3, -1]), num_prototypes=16)
        tensor(2.)
    """
    found = usage(indices, num_prototypes, num_heads=num_codebooks).perplexity
    return found.clamp_min(1.0).log2().sum()


@torch.no_grad()
def soft_usage(
    z: Batches,
    prototypes: Float[Tensor, "K m"] | Float[Tensor, "H K m"],
    temperature: float | Tensor,
    *,
    mask: Tensor | None = None,
) -> SoftUsage:
    """Soft perplexity and the paper's usage figure of a bank on data, in blocks.

    Args:
        z: tokens (..., m), or (..., H, m) for a bank (H, K, m), or an iterable of batches or (batch, mask) pairs.
        prototypes: the bank.
        temperature: a number, a scalar tensor or one per head.
        mask: for a tensor z, true where a token counts.

    Example:
        >>> merged = torch.zeros(8, 2)
        >>> soft_usage(torch.randn(100, 2), merged, 1.0).paper_usage  # the figure cannot see it
        tensor(1.)
    """
    check_prototypes(prototypes)
    banks = prototypes if prototypes.dim() == 3 else prototypes[None]
    num_heads = prototypes.shape[0] if prototypes.dim() == 3 else None
    check_head_temperature(temperature, num_heads)
    total = torch.zeros(banks.shape[:2], dtype=torch.float64, device=prototypes.device)
    count = 0
    for tokens in token_batches(z, mask, num_heads=num_heads, dim=prototypes.shape[-1]):
        for rows in row_blocks(len(tokens), block_rows(len(tokens), banks[..., 0].numel(), tokens.device)):
            total += assignments(tokens[rows], banks, temperature).sum(0, dtype=torch.float64)
        count += len(tokens)
    mean = (total / max(count, 1)).to(torch.float32)
    if num_heads is None:
        mean = mean[0]
    return SoftUsage(perplexity(mean), (mean > PAPER_THRESHOLD).float().mean(-1), mean)
