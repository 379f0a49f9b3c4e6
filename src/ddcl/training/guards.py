"""Warnings about set-ups that are known to end badly, before the first step is taken."""

from __future__ import annotations

import warnings

from torch import nn

from ddcl.nn import TokenNorm
from ddcl.training.groups import learning_parameters

STABLE_RATIOS = (1e-4, 0.1)
"""Learning rate of the encoder over that of the bank. Above a tenth the encoder outruns its bank (measured on digits
with a linear encoder: accuracy 0.82 at a ratio of 0.1 and 0.48 at 1); far below, it does not learn at all."""


class GuardWarning(UserWarning):
    """A set-up that is known to end badly."""


def warn_of_ratio(epsilon: float) -> None:
    """Warn when the ratio of learning rates leaves the stable range."""
    low, high = STABLE_RATIOS
    if epsilon > high:
        warnings.warn(
            f"epsilon: the encoder's learning rate is {epsilon:g} times the bank's, above {high:g}. The bank must be "
            "the faster of the two, or it chases tokens that have moved on; the paper asks for 0.01 to 0.1.",
            GuardWarning,
            stacklevel=3,
        )
    elif epsilon < low:
        warnings.warn(
            f"epsilon: the encoder's learning rate is {epsilon:g} times the bank's, below {low:g}: it will hardly "
            "move. Freeze it (requires_grad_(False)) if that is meant.",
            GuardWarning,
            stacklevel=3,
        )


def encoder_learns(model: nn.Module) -> bool:
    """Whether anything besides the banks learns."""
    return bool(learning_parameters(model)[1])


def unconstrained_encoder(model: nn.Module) -> bool:
    """Whether something besides the banks learns and nothing normalises what enters them."""
    normalised = any(isinstance(part, TokenNorm) and part.kind != "none" for part in model.modules())
    return encoder_learns(model) and not normalised


def warn_of_unconstrained_encoder(model: nn.Module) -> None:
    """Warn when the quantisation loss alone is to train an encoder that is free to shrink its tokens."""
    if unconstrained_encoder(model):
        warnings.warn(
            "model: L_q alone is minimised by an encoder that maps everything to one point, and nothing here holds it "
            "back. Normalise what enters the bank (ddcl.TokenNorm), pass a loss with a task or a reconstruction in it, "
            "or freeze the encoder. trace C falling is the sign to watch (CollapseMonitor: 'the encoder shrinks its "
            "tokens').",
            GuardWarning,
            stacklevel=3,
        )
