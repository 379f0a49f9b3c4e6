"""A linear head on the mixtures of a trained bank."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ddcl.shapes import Float, Int

HEAD_ROWS = 2**17
"""The most rows a head learns from."""
STRENGTH = 10.0
"""Inverse of the weights' penalty, as scikit-learn's C: mixtures are at most 1, so weights may be large."""
STEPS = 300


def fit_head(mixtures: Float[Tensor, "n K"], classes: Int[Tensor, " n"], num_classes: int) -> nn.Linear:
    r"""The least of cross entropy plus :math:`|W|^2 / (2 C n)`, which has one minimum; by L-BFGS from zero.

    Example:
        >>> from ddcl.fitting.head import fit_head
        >>> head = fit_head(torch.eye(3).repeat(4, 1), torch.tensor([0, 1, 1]).repeat(4), num_classes=2)
        >>> head(torch.eye(3)).argmax(-1).tolist()
        [0, 1, 1]
    """
    with torch.random.fork_rng():  # the first weights are drawn, and thrown away
        head = nn.Linear(mixtures.shape[1], num_classes, device=mixtures.device)
    for parameter in head.parameters():
        nn.init.zeros_(parameter)
    optimiser = torch.optim.LBFGS(head.parameters(), max_iter=STEPS, history_size=10, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = F.cross_entropy(head(mixtures), classes)
        value = value + head.weight.square().sum() / (2 * STRENGTH * len(classes))
        value.backward()
        return value

    optimiser.step(loss)  # type: ignore[arg-type]
    return head.requires_grad_(False)
