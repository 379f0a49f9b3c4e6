"""Where to put the origin before taking products: the operation is translation equivariant, rounding is not."""

from __future__ import annotations

import torch
from torch import Tensor

from ddcl.shapes import Float


def bank_center(bank: Float[Tensor, "*heads K m"]) -> Float[Tensor, "*heads 1 m"]:
    """The bank's mean where that is longer than the bank's spread, else zero.

    Nearer to the origin than that, centring gains no digit, and with a prototype far out it would lose some. The
    result is a constant for autograd: nothing depends on it but rounding.
    """
    bank = bank.detach()
    center = bank.mean(-2, keepdim=True)
    worth = 2 * center.square().sum(-1, keepdim=True) > bank.square().sum(-1, keepdim=True).mean(-2, keepdim=True)
    return torch.where(worth, center, 0.0)


def worth_centring(bank: Float[Tensor, "K m"], sum_of_squares: float) -> bool:
    """Whether ``bank_center`` is anything but zero, given the sum of the bank's squares; looks at values."""
    total = bank.sum(0)
    return 2 * torch.dot(total, total).item() > sum_of_squares * bank.shape[0]
