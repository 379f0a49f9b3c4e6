"""Prototypes in the place of a transformer's feed-forward part."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ddcl.nn.integration.reading import TokenReader
from ddcl.nn.normalisation import Normalisation
from ddcl.ops import Backend, Gradient
from ddcl.shapes import Bool, Float, Int


class PrototypeFeedForward(TokenReader):
    r"""A feed-forward part whose hidden units are prototypes: a key-value memory, linear in the number of tokens.

    .. math::
        \operatorname{FFN}(x) = b + W_O \, [\mu^{(1)} \cdots \mu^{(H)}], \qquad
        \mu^{(h)} = \sum_k \operatorname{softmax}_k\bigl(-|W_h x - p_k^{(h)}|^2 / T\bigr) \, p_k^{(h)}

    The prototypes are keys and values at once: what a token is compared with is what it is replaced by. Residual and
    normalisation stay with the block. The output is a tensor, so the block need not know what stands there;
    :func:`quantisation_losses` finds the :math:`L_q` of the bank. Parameters: ``2 dim proto_dim + dim + K proto_dim``.

    Args:
        dim: dimension of the tokens, in and out.
        num_prototypes: K, for each head.
        proto_dim: m, the dimension the heads share; a multiple of ``num_heads``. None: ``2 * dim``, with which K up to
            ``2 * dim`` has no more parameters than a feed-forward part of hidden size ``4 * dim``.
        num_heads: H; each head has K prototypes of dimension m / H and is a nonlinearity of its own.
        normalise: what is done to the projected tokens before they meet the bank, see :class:`TokenNorm`; with several
            heads ``"unit"`` and ``"layer"`` act on each.
        bias: whether there is a b.
        temperature, gradient, backend: see :class:`PrototypeBank`.

    Example:
        >>> feed_forward = PrototypeFeedForward(dim=8, num_prototypes=4)
        >>> x = torch.randn(3, 5, 8)
        >>> feed_forward.init_from(x)(x).shape
        torch.Size([3, 5, 8])
    """

    def __init__(
        self,
        dim: int,
        num_prototypes: int,
        *,
        proto_dim: int | None = None,
        num_heads: int = 8,
        normalise: Normalisation = "none",
        bias: bool = True,
        temperature: float | Tensor | None = None,
        gradient: Gradient = "full",
        backend: Backend = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            dim,
            num_prototypes,
            proto_dim=2 * dim if proto_dim is None else proto_dim,
            num_heads=num_heads,
            normalise=normalise,
            temperature=temperature,
            gradient=gradient,
            backend=backend,
            device=device,
            dtype=dtype,
        )
        self.output = nn.Linear(self.width, dim, bias=bias, device=device, dtype=dtype)

    def forward(
        self,
        x: Float[Tensor, "*batch dim"],
        mask: Bool[Tensor, "*batch"] | Int[Tensor, "*batch"] | None = None,
    ) -> Float[Tensor, "*batch dim"]:
        """Tokens (..., dim), mask (...) true where a token counts; zero at masked tokens."""
        x, mask = self.without_masked(x, mask)
        y: Tensor = self.output(self.read(x, mask))
        return y if mask is None else y.masked_fill(~mask.unsqueeze(-1), 0.0)
