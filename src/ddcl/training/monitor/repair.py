"""Giving a dead or duplicate prototype something to do: it takes half of the cell that carries the most distortion."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import Optimizer

from ddcl import ops
from ddcl.functional import split_modes
from ddcl.functional.separation import DISTINCT_TOLERANCE, prototype_groups
from ddcl.nn import PrototypeBank
from ddcl.ops import Gradient
from ddcl.shapes import Bool, Float, Int


def idle_prototypes(bank: Float[Tensor, "K m"], counts: Float[Tensor, " K"], trace: float) -> Bool[Tensor, " K"]:
    """Those that won no token, and of every group that coincides all but the one that won most."""
    labels = prototype_groups(bank, DISTINCT_TOLERANCE * trace)
    idle = counts <= 0
    for label in labels.unique():
        members = (labels == label).nonzero().flatten()
        if len(members) > 1:
            idle[members] = True
            best = members[counts[members].argmax()]
            idle[best] = counts[best] <= 0
    return idle


@torch.no_grad()
def split_into(
    bank: PrototypeBank, head: int, idle: Bool[Tensor, " K"], tokens: Float[Tensor, "N m"]
) -> Int[Tensor, " moved"]:
    r"""Split working prototypes into idle ones, the one with the most distortion first.

    A working prototype and an idle one go to :math:`\bar z \pm s v`, with :math:`\bar z` the mean of the tokens the
    working one has won, :math:`v` its unstable direction there (:func:`ddcl.split_modes`) and :math:`s` the spread of
    those tokens along it. Only a prototype whose split margin is negative is split: the others would draw the pair
    together again. Returns all prototypes that were moved.
    """
    everywhere = bank.prototypes.detach().double()
    points = everywhere[head]
    x, idle = tokens.double(), idle.clone()
    moved: list[int] = []
    while bool(idle.any()) and not bool(idle.all()):
        working = (~idle).nonzero().flatten()
        waiting = idle.nonzero().flatten()
        pairs = partings(x, points[working], float(bank.temperature[head]), bank.splits_like)
        if not pairs:
            break
        # few at a time: each split changes what the others may do at this temperature
        for (donor, one, other), recipient in zip(pairs[: 1 + len(waiting) // 8], waiting.tolist(), strict=False):
            place = int(working[donor])
            points[place], points[recipient] = one, other
            idle[recipient] = False
            moved += [place, recipient]
    bank.move_to(everywhere)
    return torch.tensor(sorted(set(moved)), dtype=torch.int64, device=points.device)


def partings(
    x: Float[Tensor, "N m"],
    points: Float[Tensor, "K m"],
    temperature: float,
    gradient: Gradient,
    *,
    at_rest: bool = False,
) -> list[tuple[int, Tensor, Tensor]]:
    """Prototypes that would split, most distortion first, each with the two places its copies go to.

    They are judged at the means of the tokens they win, or, if they are ``at_rest``, where they stand: at a temperature
    at which cells overlap, the means of what each wins lie too far apart.
    """
    nearest, distance = ops.nearest(x, points)
    distortion = torch.zeros_like(points[:, 0]).index_add_(0, nearest, distance)
    counts = torch.bincount(nearest, minlength=len(points)).unsqueeze(-1)
    # a bank that lags behind its encoder lies beside its tokens: both copies would, and one would win nothing
    means = torch.zeros_like(points).index_add_(0, nearest, x) / counts.clamp_min(1)
    places = points if at_rest else torch.where(counts > 0, means, points)
    modes = split_modes(x, places, temperature, gradient=gradient)
    found = []
    for donor in distortion.argsort(descending=True).tolist():
        along = (x[nearest == donor] - means[donor]) @ modes.directions[donor]
        spread = float(along.std(correction=0)) if len(along) > 1 else 0.0
        if float(modes.margins[donor]) < 0 and spread > 0:
            shift = spread * modes.directions[donor]
            found.append((donor, places[donor] - shift, places[donor] + shift))
    return found


def reset_rows(optimiser: Optimizer, bank: PrototypeBank, head: int, rows: Int[Tensor, " moved"]) -> None:
    """Forget what an optimiser has gathered (momentum, squared gradients) about prototypes that were moved."""
    rowwise = [parameter for parameter in bank.learned if parameter.shape == bank.prototypes.shape]
    for value in (value for parameter in rowwise for value in optimiser.state.get(parameter, {}).values()):
        if isinstance(value, Tensor) and value.shape == bank.prototypes.shape:
            value[head, rows] = 0.0
