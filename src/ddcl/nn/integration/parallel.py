"""Prototypes beside a block."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ddcl.functional.checks import check_float_tensor
from ddcl.nn.integration.checks import check_share
from ddcl.nn.integration.reading import TokenReader
from ddcl.shapes import Bool, Float, Int


class ParallelPrototypes(TokenReader):
    r"""A second way around a block, through the bank, that each token opens or closes for itself.

    .. math:: y = \operatorname{block}(x) + g(x) \, W_O \, \mu(x), \qquad g(x) = \operatorname{sigmoid}(w^\top x + b)

    :math:`w` starts at zero and :math:`b` such that every gate is almost closed, so a pretrained model stays what it
    was until training asks for more. At a masked token the block's output goes through unchanged.

    Args:
        dim: dimension of the tokens.
        num_prototypes: K, for each head.
        start: what :math:`g` starts at.
        options: ``proto_dim``, ``num_heads``, ``normalise``, ``temperature``, ``gradient``, ``backend``, ``device`` and
            ``dtype``, see :class:`ddcl.nn.entrance.BankEntrance`.

    Example:
        >>> block = torch.nn.Linear(8, 8)
        >>> beside = ParallelPrototypes(dim=8, num_prototypes=4)
        >>> x = torch.randn(3, 5, 8)
        >>> y = beside(x, block(x))
        >>> bool((y - block(x)).norm() < 1e-2 * y.norm())
        True
    """

    def __init__(self, dim: int, num_prototypes: int, *, start: float = 1e-3, **options: Any) -> None:
        check_share("start", start)
        super().__init__(dim, num_prototypes, **options)
        place = self.place
        self.output = nn.Linear(self.width, dim, bias=False, **place)
        self.gate = nn.Linear(dim, 1, **place)
        nn.init.zeros_(self.gate.weight)
        nn.init.constant_(self.gate.bias, math.log(start / (1 - start)))

    def forward(
        self,
        x: Float[Tensor, "*batch dim"],
        beside: Float[Tensor, "*batch dim"],
        mask: Bool[Tensor, "*batch"] | Int[Tensor, "*batch"] | None = None,
    ) -> Float[Tensor, "*batch dim"]:
        """What entered the block (..., dim), what the block made of it, mask (...) true where a token counts."""
        check_float_tensor("beside", beside)
        if beside.shape != x.shape:
            raise ValueError(f"beside: got shape {tuple(beside.shape)}, expected that of x, {tuple(x.shape)}")
        clean, mask = self.without_masked(x, mask)
        change: Tensor = self.gates(clean) * self.output(self.read(clean, mask))
        if mask is not None:
            change = change.masked_fill(~mask.unsqueeze(-1), 0.0)
        return beside + change.to(beside.dtype)

    def gates(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch 1"]:
        """How far each token opens the way through the bank, between 0 and 1."""
        return torch.sigmoid(self.gate(x))
