"""Prototypes after a block."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ddcl.nn.integration.checks import check_share
from ddcl.nn.integration.reading import TokenReader
from ddcl.shapes import Bool, Float, Int


class SerialPrototypes(TokenReader):
    r"""What comes out of a block, plus a little of its soft centroid: quantisation of contextualised tokens.

    .. math:: y = x + \gamma \odot W_O \, \mu(x)

    :math:`\gamma`, one number per channel, starts small, so a pretrained model stays what it was until training asks
    for more. A masked token goes through unchanged.

    Args:
        dim: dimension of the tokens.
        num_prototypes: K, for each head.
        start: what :math:`\gamma` starts at.
        options: ``proto_dim``, ``num_heads``, ``normalise``, ``temperature``, ``gradient``, ``backend``, ``device`` and
            ``dtype``, see :class:`ddcl.nn.entrance.BankEntrance`.

    Example:
        >>> after = SerialPrototypes(dim=8, num_prototypes=4)
        >>> x = torch.randn(3, 5, 8)
        >>> bool((after(x) - x).norm() < 1e-2 * x.norm())
        True
    """

    def __init__(self, dim: int, num_prototypes: int, *, start: float = 1e-3, **options: Any) -> None:
        check_share("start", start)
        super().__init__(dim, num_prototypes, **options)
        place = self.place
        self.output = nn.Linear(self.width, dim, bias=False, **place)
        self.gamma = nn.Parameter(torch.full((dim,), start, **place))

    def forward(
        self,
        x: Float[Tensor, "*batch dim"],
        mask: Bool[Tensor, "*batch"] | Int[Tensor, "*batch"] | None = None,
    ) -> Float[Tensor, "*batch dim"]:
        """Tokens (..., dim), mask (...) true where a token counts."""
        clean, mask = self.without_masked(x, mask)
        change: Tensor = self.gamma * self.output(self.read(clean, mask))
        if mask is not None:
            change = change.masked_fill(~mask.unsqueeze(-1), 0.0)
        return x + change.to(x.dtype)
