"""The operation written as its definition, in float64: slow, obvious, differentiable to any order.

It holds N x H x K x m numbers at once. Everything else in ``ops`` is measured against it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ddcl.ops.precision import without_autocast
from ddcl.ops.types import Gradient, TokenTerms, arithmetic_dtype
from ddcl.shapes import Bool, Float


@without_autocast
def readout(
    z: Float[Tensor, "N H m"],
    prototypes: Float[Tensor, "H K m"],
    temperature: Float[Tensor, "rows H"],
    mask: Bool[Tensor, " N"] | None,
    gradient: Gradient,
) -> TokenTerms:
    """Every output of the operation by its formula; gradients are left to autograd."""
    x, bank, temperature = z.double(), prototypes.double(), temperature.double()
    if mask is not None:
        x = x.masked_fill(~mask[:, None, None], 0.0)

    squared_distance = (x.unsqueeze(-2) - bank).square().sum(-1)  # (N, H, K)
    log_q = torch.log_softmax(-squared_distance / temperature.unsqueeze(-1), dim=-1)
    if gradient == "stop":
        log_q = log_q.detach()
    q = log_q.exp()
    centroid = torch.einsum("nhk,hkm->nhm", q, bank)
    spread = (bank - centroid.unsqueeze(-2)).square().sum(-1)
    quantization, indices = squared_distance.min(-1)
    # q ln q -> 0 as q -> 0, where ln q may be -inf
    q_log_q = torch.where(q > 0, q * log_q, torch.zeros_like(q))

    dtype = arithmetic_dtype(z.dtype)
    terms = TokenTerms(
        centroid=centroid.to(z.dtype),
        total=(q * squared_distance).sum(-1).to(dtype),
        reconstruction=(x - centroid).square().sum(-1).to(dtype),
        variance=(q * spread).sum(-1).to(dtype),
        quantization=quantization.to(dtype),
        entropy=-q_log_q.sum(-1).to(dtype),
        indices=indices,
    )
    return terms if mask is None else _blank_masked(terms, mask)


def _blank_masked(terms: TokenTerms, mask: Bool[Tensor, " N"]) -> TokenTerms:
    masked = ~mask[:, None]
    return TokenTerms(
        centroid=terms.centroid.masked_fill(masked[..., None], 0.0),
        total=terms.total.masked_fill(masked, 0.0),
        reconstruction=terms.reconstruction.masked_fill(masked, 0.0),
        variance=terms.variance.masked_fill(masked, 0.0),
        quantization=terms.quantization.masked_fill(masked, 0.0),
        entropy=terms.entropy.masked_fill(masked, 0.0),
        indices=terms.indices.masked_fill(masked, -1),
    )
