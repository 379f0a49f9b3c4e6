"""The paper's layer (Definition 1, equations 4 to 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ddcl.functional import Readout
from ddcl.functional.outputs import TupleLike, register_output
from ddcl.nn.entrance import BankEntrance
from ddcl.nn.normalisation import Normalisation
from ddcl.ops import Backend, Gradient
from ddcl.shapes import Bool, Float, Int


@register_output
@dataclass(frozen=True, eq=False)
class AttentionOutput(TupleLike):
    """What ``DDCLAttention`` gives back; unpacks as ``hidden, readout``."""

    hidden: Tensor
    """(B, T, dim), zero at masked tokens."""
    readout: Readout
    """The readout of the projected tokens, with the losses."""

    _tuple_fields: ClassVar[tuple[str, ...]] = ("hidden", "readout")


class DDCLAttention(BankEntrance):
    r"""Tokens through a bank of prototypes, back into the residual stream.

    .. math::
        z^{(h)} = W_h x, \quad o^{(h)} = \sum_k q_k^{(h)} p_k^{(h)}, \quad
        \text{hidden} = \operatorname{LayerNorm}(x + W_O\,[o^{(1)} \cdots o^{(H)}])

    With one head and no ``proto_dim`` there is no input projection and the bank lives in the space of the tokens,
    as in the paper's Definition 1. Otherwise one matrix holds all :math:`W_h`.

    Args:
        dim: dimension of the tokens.
        num_prototypes: K, for each head.
        proto_dim: m, the dimension the heads share; a multiple of ``num_heads``. None: ``dim``.
        num_heads: H; each head has K prototypes of dimension m / H.
        normalise: what is done to the projected tokens before they meet the bank, see :class:`TokenNorm`; with several
            heads ``"unit"`` and ``"layer"`` act on each.
        temperature, gradient, backend: see :class:`PrototypeBank`.
        eps: of the LayerNorm.

    Example:
        >>> layer = DDCLAttention(dim=8, num_prototypes=4, proto_dim=6, num_heads=2)
        >>> x = torch.randn(3, 5, 8)
        >>> hidden, readout = layer.init_from(x)(x)
        >>> hidden.shape, readout.centroid.shape
        (torch.Size([3, 5, 8]), torch.Size([3, 5, 2, 3]))
    """

    def __init__(
        self,
        dim: int,
        num_prototypes: int,
        *,
        proto_dim: int | None = None,
        num_heads: int = 1,
        normalise: Normalisation = "none",
        temperature: float | Tensor | None = None,
        gradient: Gradient = "full",
        backend: Backend = "auto",
        eps: float = 1e-5,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        super().__init__(
            dim,
            num_prototypes,
            proto_dim=proto_dim,
            num_heads=num_heads,
            normalise=normalise,
            temperature=temperature,
            gradient=gradient,
            backend=backend,
            **place,
        )
        self.output = nn.Linear(self.width, dim, bias=False, **place)
        self.norm = nn.LayerNorm(dim, eps=eps, **place)

    def forward(
        self,
        x: Float[Tensor, "*batch dim"],
        mask: Bool[Tensor, "*batch"] | Int[Tensor, "*batch"] | None = None,
    ) -> AttentionOutput:
        """Tokens x (B, T, dim), mask (B, T) true where a token counts."""
        x, mask = self.without_masked(x, mask)
        found = self.bank(self.to_heads(x, mask), mask)
        hidden = self.norm(x + self.output(self.join_heads(found.centroid)))
        if mask is not None:
            hidden = hidden.masked_fill(~mask.unsqueeze(-1), 0.0)
        return AttentionOutput(hidden, found)
