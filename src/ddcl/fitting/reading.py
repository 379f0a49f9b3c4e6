"""At which temperature a trained bank is read."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ddcl.functional import assignments, critical_temperature
from ddcl.functional.phases import cooling_grid
from ddcl.shapes import Float

HOTTEST, COLDEST, POINTS = 0.95, 0.002, 40
"""Multiples of T_c that are tried."""


class Reading(NamedTuple):
    """The temperature chosen, and how the rows are rebuilt at it."""

    temperature: float
    critical: float
    """T_c of the sample."""
    reconstruction: float
    """Mean |z - mu|^2 of the sample at that temperature."""


def reading_temperature(sample: Float[Tensor, "n m"], prototypes: Float[Tensor, "K m"]) -> Reading:
    r"""The temperature at which the mixtures rebuild the rows best: the least mean :math:`|z - \mu(z)|^2`.

    A bank is trained cold, where its prototypes lie best, and there a row is all of one prototype. What a row shares
    with others shows at a warmer temperature, and too warm a mixture is that of everything: between the two, mixtures
    come nearest to the rows they stand for. In well separated groups that is cold all the same. Never above T_c.

    Args:
        sample: rows the bank was trained on.
        prototypes: the trained bank.

    Example:
        >>> from ddcl.fitting.reading import reading_temperature
        >>> bank = torch.tensor([[0.0, 0.0], [4.0, 0.0]])
        >>> between = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 0.0], [4.0, 0.0]])
        >>> found = reading_temperature(between, bank)
        >>> bool(found.reconstruction < 0.5)  # 0.5 at T = 0, where each is all of one
        True
    """
    critical = float(critical_temperature(sample, gradient="stop"))
    best = Reading(COLDEST * critical, critical, float("inf"))
    for multiple in cooling_grid(HOTTEST, COLDEST, POINTS).flip(0).tolist():  # cold first: it stays where nothing gains
        lost = _lost(sample, prototypes, multiple * critical)
        if lost < best.reconstruction:
            best = Reading(multiple * critical, critical, lost)
    return best


def reading_at(temperature: float, sample: Float[Tensor, "n m"], prototypes: Float[Tensor, "K m"]) -> Reading:
    """The figures of a temperature that was chosen otherwise."""
    critical = float(critical_temperature(sample, gradient="stop"))
    return Reading(temperature, critical, _lost(sample, prototypes, temperature))


@torch.no_grad()
def _lost(sample: Tensor, prototypes: Tensor, temperature: float) -> float:
    mixtures = assignments(sample, prototypes, temperature)
    return float((sample - mixtures @ prototypes).square().sum(-1).mean(dtype=torch.float64))
