"""Attention to prototypes, by how much of a sequence each holds."""

from __future__ import annotations

import torch
from torch import Tensor

from ddcl.ops import without_autocast
from ddcl.shapes import Float


@without_autocast
def attend_to_prototypes(
    bag: Float[Tensor, "*batch H K"], prototypes: Float[Tensor, "H K m"], query: Float[Tensor, "H m"]
) -> Float[Tensor, "*batch H m"]:
    r"""Attention of one learned query to the prototypes, each held in the measure in which the sequence holds it.

    .. math:: \sum_k \alpha_k p_k, \qquad \alpha_k \propto b_k \exp(u^\top p_k / \sqrt m)

    A sequence that holds nothing, :math:`b = 0`, gets zeros.
    """
    points, u = prototypes.to(bag.dtype), query.to(bag.dtype)
    scores = torch.einsum("hm,hkm->hk", u, points) * points.shape[-1] ** -0.5
    # in logarithms, where no score overflows; a prototype that holds nothing weighs next to nothing
    weights = torch.softmax(scores + bag.clamp_min(torch.finfo(bag.dtype).tiny).log(), dim=-1)
    pooled = torch.einsum("...hk,hkm->...hm", weights, points)
    return torch.where(bag.sum(-1, keepdim=True) > 0, pooled, 0.0)
