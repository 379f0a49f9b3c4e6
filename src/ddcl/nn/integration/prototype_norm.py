"""Prototypes in the place of a LayerNorm."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ddcl.nn.integration.checks import check_share
from ddcl.nn.integration.reading import TokenReader
from ddcl.ops import arithmetic_dtype
from ddcl.shapes import Bool, Float, Int

if TYPE_CHECKING:
    from typing_extensions import Self


class PrototypeNorm(TokenReader):
    r"""A LayerNorm that centres a token on its soft centroid instead of on its own mean.

    .. math::
        y = w \odot \frac{r}{\sqrt{\overline{r^2} + \epsilon}} + b, \qquad
        r = x - (1 - g)\,\bar{x} - g\, W_O\, \mu(x), \qquad g = \operatorname{sigmoid}(\theta)

    With :math:`g = 0` this is LayerNorm: the centre is the mean :math:`\bar x` of the token's coordinates. With
    :math:`g = 1` what goes on is how the token differs from its prototypes. :math:`g` starts small. Without
    ``proto_dim`` the bank lives in the space of the tokens and there is no :math:`W_O`. A masked token gets the plain
    LayerNorm, without gradients.

    Args:
        dim: dimension of the tokens.
        num_prototypes: K, for each head.
        start: what :math:`g` starts at.
        eps: :math:`\epsilon`.
        affine: whether there are w and b.
        bias: whether there is a b.
        options: ``proto_dim``, ``num_heads``, ``normalise``, ``temperature``, ``gradient``, ``backend``, ``device`` and
            ``dtype``, see :class:`ddcl.nn.entrance.BankEntrance`.

    Example:
        >>> plain, norm = torch.nn.LayerNorm(8), PrototypeNorm(dim=8, num_prototypes=4)
        >>> x = torch.randn(3, 5, 8)
        >>> bool((norm(x) - plain(x)).norm() < 1e-2 * plain(x).norm())
        True
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self,
        dim: int,
        num_prototypes: int,
        *,
        start: float = 1e-3,
        eps: float = 1e-5,
        affine: bool = True,
        bias: bool = True,
        **options: Any,
    ) -> None:
        check_share("start", start)
        super().__init__(dim, num_prototypes, **options)
        place = self.place
        self.eps = eps
        projected = isinstance(self.project, nn.Linear)
        self.output = nn.Linear(self.width, dim, bias=False, **place) if projected else nn.Identity()
        self.gate = nn.Parameter(torch.full((), math.log(start / (1 - start)), **place))
        self.weight = nn.Parameter(torch.ones(dim, **place)) if affine else None
        self.bias = nn.Parameter(torch.zeros(dim, **place)) if affine and bias else None

    @classmethod
    def from_layer_norm(cls, norm: nn.LayerNorm, num_prototypes: int, **options: Any) -> Self:
        """One that takes the place of a LayerNorm, with the very same weight and bias; options as above."""
        if len(norm.normalized_shape) != 1:
            raise ValueError(f"norm: got normalized_shape {tuple(norm.normalized_shape)}, expected one axis")
        if norm.weight is not None:
            options = {"device": norm.weight.device, "dtype": norm.weight.dtype, **options}
        made = cls(norm.normalized_shape[0], num_prototypes, eps=norm.eps, affine=False, **options)
        made.weight, made.bias = norm.weight, norm.bias
        return made.train(norm.training)

    def forward(
        self,
        x: Float[Tensor, "*batch dim"],
        mask: Bool[Tensor, "*batch"] | Int[Tensor, "*batch"] | None = None,
    ) -> Float[Tensor, "*batch dim"]:
        """Tokens (..., dim), mask (...) true where a token counts."""
        clean, mask = self.without_masked(x, mask)
        y = self._normalised(clean, self.output(self.read(clean, mask)))
        if mask is None:
            return y
        with torch.no_grad():
            plain = F.layer_norm(x, (self.dim,), self.weight, self.bias, self.eps)
        return torch.where(mask.unsqueeze(-1), y, plain.to(y.dtype))

    def _normalised(self, x: Tensor, centroid: Tensor) -> Tensor:
        # sums of squares need more digits than half precision has, as in PyTorch's own LayerNorm
        precise = arithmetic_dtype(x.dtype)
        token = x.to(precise)
        share = torch.sigmoid(self.gate.to(precise))
        rest = token - torch.lerp(token.mean(-1, keepdim=True).expand_as(token), centroid.to(precise), share)
        y = rest * (rest.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        if self.weight is not None:
            y = y * self.weight
        if self.bias is not None:
            y = y + self.bias
        return y.to(x.dtype)

    def extra_repr(self) -> str:
        """Sizes, for ``repr``."""
        return f"{self.dim}, eps={self.eps:g}, affine={self.weight is not None}"
