"""The barrier between the prototypes of every bank of a model, as a part of the loss."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ddcl.functional import barrier, barrier_strength
from ddcl.nn import banks_of
from ddcl.shapes import Float
from ddcl.training.recipe import Recipe


def barrier_loss(model: nn.Module, recipe: Recipe, spread: float) -> Float[Tensor, ""]:
    """What keeps the prototypes of every bank apart, 0 if the recipe asks for nothing.

    Args:
        model: with banks in it.
        recipe: its ``barrier`` and ``lr``.
        spread: of the tokens per coordinate. The paper's condition on the strength has no scale; the strength has one,
            length to the fourth power.
    """
    banks = list(banks_of(model).values())
    total = torch.zeros((), device=banks[0].prototypes.device)
    for bank in banks if recipe.barrier else []:
        strength = recipe.barrier
        if isinstance(strength, str):
            strength = barrier_strength(bank.num_prototypes, recipe.lr) * spread**4
        total = total + barrier(bank.prototypes, strength)
    return total
