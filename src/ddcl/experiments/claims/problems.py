"""Small data sets and the plain ways to move a bank that the experiments share; everything seeded, in float64."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from ddcl.functional import readout
from ddcl.ops import Gradient

F64 = torch.float64


def generator(seed: int) -> torch.Generator:
    """A source of random numbers of its own for each experiment, so that none depends on what ran before."""
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int) -> Tensor:
    """Independent standard normal numbers."""
    return torch.randn(*shape, generator=generator(seed), dtype=F64)


def stretched(n: int, *, seed: int) -> Tensor:
    """Normal tokens in three dimensions with variances 4, 1 and 0.25."""
    return normal(n, 3, seed=seed) * torch.tensor([2.0, 1.0, 0.5], dtype=F64)


def blobs(n: int, *, centres: int, dim: int, spread: float = 0.25, seed: int) -> Tensor:
    """Tokens in round groups of equal size, their centres about 2 from the origin along each axis."""
    middle = 2 * normal(centres, dim, seed=seed)
    return middle[torch.arange(n) % centres] + spread * normal(n, dim, seed=seed + 1)


def descend(
    loss: Callable[[Tensor], Tensor], start: Tensor, *, steps: int, lr: float, adam: bool = False
) -> tuple[Tensor, list[float]]:
    """Follow the gradient of a loss of the bank: the bank it ends with, and the loss before each step and last."""
    bank = start.detach().clone().requires_grad_()
    optimiser: torch.optim.Optimizer = torch.optim.Adam([bank], lr=lr) if adam else torch.optim.SGD([bank], lr=lr)
    history = []
    for _ in range(steps):
        optimiser.zero_grad()
        value = loss(bank)
        value.backward()
        history.append(float(value.detach()))
        optimiser.step()
    history.append(float(loss(bank).detach()))
    return bank.detach(), history


def train_bank(
    z: Tensor, start: Tensor, temperature: float, *, steps: int, lr: float = 0.02, gradient: Gradient = "full"
) -> Tensor:
    """A bank trained on L_q at one temperature, by Adam."""
    return descend(
        lambda bank: readout(z, bank, temperature, gradient=gradient).loss.total, start, steps=steps, lr=lr, adam=True
    )[0]


def rises(history: list[float], tolerance: float = 1e-12) -> int:
    """How many steps raised the loss by more than rounding."""
    return sum(after > before + tolerance * max(abs(before), 1.0) for before, after in pairwise(history))


def extent(bank: Tensor) -> float:
    """Mean squared distance of the prototypes from their own mean."""
    return float((bank - bank.mean(0)).square().sum(-1).mean())


def tiny(value: float) -> str:
    """A number of which only the size matters, as in 3e-07; 0 as 0."""
    return f"{value:.0e}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-") if value else "0"
