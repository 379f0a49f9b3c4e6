"""The terms of the loss."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor

from ddcl.functional.outputs import TupleLike, register_output
from ddcl.shapes import Bool


@register_output
@dataclass(frozen=True, eq=False)
class Decomposition(TupleLike):
    r"""The loss of a readout and its parts, ``total == reconstruction + variance`` to rounding.

    As ``readout(...).loss`` every field is a scalar, the mean over unmasked tokens (and heads); as
    ``readout(...).per_token`` every field has one entry per token (and head). The dtype is that of the arithmetic:
    float32, or float64 for float64 tokens.
    """

    total: Tensor
    """:math:`L = \\sum_k q_k |z - p_k|^2`, the loss :math:`L_q` to train on."""
    reconstruction: Tensor
    """:math:`R = |z - \\mu|^2`, how far the soft centroid is from the token."""
    variance: Tensor
    """:math:`V = \\sum_k q_k |p_k - \\mu|^2 \\ge 0`, how spread out the prototypes a token mixes are."""
    quantization: Tensor
    """:math:`\\min_k |z - p_k|^2`, the loss of a hard quantiser. The paper calls this L_OLS."""
    entropy: Tensor
    """:math:`H = -\\sum_k q_k \\ln q_k` in nats, between 0 and ln K."""
    free_energy: Tensor
    """:math:`F = L - T H`, what soft k-means descends."""

    _tuple_fields: ClassVar[tuple[str, ...]] = (
        "total",
        "reconstruction",
        "variance",
        "quantization",
        "entropy",
        "free_energy",
    )

    @property
    def paper_gap(self) -> Tensor:
        """What the paper computes as V: ``total - quantization``. It is never negative and proves nothing."""
        return self.total - self.quantization

    def mean(self, mask: Bool[Tensor, "*tokens"] | None = None, *, keep_heads: bool = False) -> Decomposition:
        """Means over the tokens that count, of a per-token decomposition; 0 if none does.

        With ``keep_heads`` the last axis is taken as heads and kept.
        """
        terms = tuple(self)
        if mask is None and not keep_heads and self.total.numel() and not any(term.requires_grad for term in terms):
            # without a graph to keep apart, one call for all: on small inputs the calls are what takes the time
            return Decomposition(*torch.stack(terms).reshape(len(terms), -1).mean(1).unbind())
        return Decomposition(*(_masked_mean(term, mask, keep_heads) for term in terms))

    def as_dict(self) -> dict[str, float]:
        """The terms as plain numbers, for a log."""
        return {field.name: float(getattr(self, field.name)) for field in fields(self)}


def _masked_mean(values: Tensor, mask: Tensor | None, keep_heads: bool) -> Tensor:
    axes = tuple(range(values.dim() - keep_heads))
    if mask is None and values.numel():
        if keep_heads:
            return values.mean(axes)
        # the gradient of a sum is one number, expanded, which the operation can tell from one for each token
        return values.sum() / values.numel()
    if mask is None:
        return values.sum(axes)  # of no tokens
    per_head = values.dim() > mask.dim()
    counted = torch.where(mask.unsqueeze(-1) if per_head else mask, values, 0.0)
    total = counted.sum(axes) if axes else counted
    return total / (mask.sum().clamp_min(1) * (values.shape[-1] if per_head and not keep_heads else 1))
