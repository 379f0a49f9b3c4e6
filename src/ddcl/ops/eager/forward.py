"""The outputs of the operation; the formulas stand in the package's docstring."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ddcl.ops.eager.assigner import LOG2_E, Assigner
from ddcl.ops.eager.winners import has_fast_winners, winners
from ddcl.ops.precision import without_autocast
from ddcl.ops.types import TokenTerms, empty_terms
from ddcl.shapes import Bool, Float


@without_autocast
def forward(
    z: Float[Tensor, "N H m"],
    prototypes: Float[Tensor, "H K m"],
    temperature: Float[Tensor, "rows H"],
    mask: Bool[Tensor, " N"] | None,
    keep: int = 0,
) -> tuple[TokenTerms, Tensor | None]:
    """All outputs, head by head and block by block, and q (keep, H, K) of the first ``keep`` tokens."""
    out = empty_terms(z)
    kept = out.total.new_empty(keep, prototypes.shape[0], prototypes.shape[1]) if keep else None
    for head in range(prototypes.shape[0]):
        of_head = None if kept is None else kept.select(1, head)
        assign = Assigner(z.select(1, head), prototypes[head], temperature.select(1, head), mask, of_head)
        _forward_head(assign, TokenTerms(*(term.select(1, head) for term in out)))
    if mask is not None:
        masked = ~mask[:, None]
        out.centroid.masked_fill_(masked[..., None], 0.0)
        out.indices.masked_fill_(masked, -1)
        for term in out[1:-1]:
            term.masked_fill_(masked, 0.0)
    return out, kept


class _Sums(NamedTuple):
    """Per token of one head, what the blocks leave for the terms."""

    partition: Tensor  # Z
    deficit: Tensor  # -scale sum_k q_k Delta_k
    norm: Tensor  # sum_k q_k |p_k|^2
    mu_length: Tensor  # |mu|


def _forward_head(assign: Assigner, out: TokenTerms) -> None:
    """Sums over prototypes block by block, then the terms they make, for all tokens of one head."""
    sums = _Sums(*out.total.new_empty(len(_Sums._fields), assign.count).unbind())
    # V from pairs of prototypes is exact at any scale, and cheap while the bank is small
    pairs = assign.half_pair_distances() if 2 * assign.width <= assign.points.shape[1] else None
    for rows in assign.blocks():
        block_sums = _Sums(*(assign.part(values, rows) for values in sums))
        _forward_block(assign, rows, pairs, block_sums, TokenTerms(*(assign.part(values, rows) for values in out)))
    out.reconstruction.square_()
    if pairs is not None:
        torch.add(out.reconstruction, out.variance, out=out.total)
        torch.add(out.total, sums.deficit, alpha=1 / assign.scale, out=out.quantization).clamp_min_(0.0)
    else:
        torch.sub(out.quantization.square_(), sums.deficit, alpha=1 / assign.scale, out=out.total)
        # of the two other expressions of V, the one that subtracts the smaller numbers
        from_norms = torch.addcmul(sums.norm, sums.mu_length, sums.mu_length, value=-1)
        variance = torch.where(out.total < sums.norm, out.total - out.reconstruction, from_norms)
        torch.clamp_min(variance, 0.0, out=out.variance)
        torch.add(out.reconstruction, out.variance, out=out.total)
    log_partition = sums.partition.log_()
    if assign.folded:
        torch.sub(log_partition, sums.deficit, alpha=1 / LOG2_E, out=out.entropy)
    else:
        torch.addcmul(log_partition, sums.deficit, assign.per_temperature.squeeze(-1), value=-1, out=out.entropy)


def _forward_block(assign: Assigner, rows: slice, pairs: Tensor | None, sums: _Sums, out: TokenTerms) -> None:
    """One block; reconstruction and quantization are left as lengths, to be squared for all tokens at once."""
    x = assign.tokens(rows)
    scores = assign.scores(x, rows)
    indices, deficit = _nearest(assign, scores, rows)
    out.indices.copy_(indices)
    q = assign.assignments(deficit, rows, sums.partition)
    torch.sum(deficit.mul_(q), -1, out=sums.deficit)

    same = out.centroid.dtype == x.dtype
    mu = torch.mm(q, assign.mixing, out=out.centroid if same else assign.narrow("mu", rows))
    difference = assign.narrow("difference", rows)
    if pairs is not None:
        torch.sum(torch.mm(q, pairs, out=deficit).mul_(q), -1, out=out.variance)
    else:
        torch.mv(q, assign.squared_norm, out=sums.norm)
        torch.linalg.vector_norm(mu, dim=-1, out=sums.mu_length)
        torch.index_select(assign.points, 0, indices, out=difference)
        torch.linalg.vector_norm(difference.sub_(x), dim=-1, out=out.quantization)
    torch.linalg.vector_norm(torch.sub(x, mu, out=difference), dim=-1, out=out.reconstruction)
    if assign.center is not None:
        torch.add(mu, assign.center, out=out.centroid)
    elif not same:
        out.centroid.copy_(mu)


def _nearest(assign: Assigner, scores: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
    """Index of the largest score and, in place of the scores, their distances below it."""
    if has_fast_winners(scores):
        deficit = scores.sub_(scores.amax(-1, keepdim=True))
        return winners(deficit, assign.room_for_q(rows)), deficit
    best, indices = scores.max(-1, keepdim=True)
    return indices.squeeze(-1), scores.sub_(best)
