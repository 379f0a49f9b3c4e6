"""Two banks on top of each other: each level's V, and whether the levels leave each other alone."""

from __future__ import annotations

import torch
from torch import Tensor

from ddcl.experiments.claims.ledger import Claim, Numbers, Verdict, fails, holds, holds_if
from ddcl.experiments.claims.problems import normal, tiny
from ddcl.functional import Decomposition, readout
from ddcl.ops import Gradient

TEMPERATURE = 1.0


def _levels(
    first: Tensor, second: Tensor, *, detached: bool, gradient: Gradient = "full", seed: int = 0
) -> tuple[Decomposition, Decomposition]:
    """The losses of a bank on tokens and of a bank on the means of its soft centroids over each sequence."""
    tokens = normal(30, 11, 4, seed=10 + seed)
    lower = readout(tokens, first, TEMPERATURE, gradient=gradient)
    pooled = lower.centroid.mean(1)
    upper = readout(pooled.detach() if detached else pooled, second, TEMPERATURE, gradient=gradient)
    return lower.per_token, upper.per_token


def _banks(seed: int = 0) -> tuple[Tensor, Tensor]:
    return normal(6, 4, seed=50 + seed).requires_grad_(), normal(5, 4, seed=90 + seed).requires_grad_()


def measure_variance() -> Numbers:
    """The smallest V of any token at either level, over 30 random stacks."""
    smallest = {1: float("inf"), 2: float("inf")}
    for seed in range(30):
        for level, terms in enumerate(_levels(*_banks(seed), detached=True, seed=seed), start=1):
            smallest[level] = min(smallest[level], float(terms.variance.detach().min()))
    return {f"smallest_v_level_{level}": value for level, value in smallest.items()}


def judge_variance(n: Numbers) -> Verdict:
    """Holds if neither is below zero by more than rounding."""
    first, second = n["smallest_v_level_1"], n["smallest_v_level_2"]
    number = f"smallest V of 30 random stacks: {tiny(first)} at level 1, {tiny(second)} at level 2"
    return holds(number) if min(n.values()) > -1e-12 else fails(number, "a random stack of two banks")


def _from_above(term: str, gradient: Gradient, detached: bool) -> float:
    """How hard a term of level 2 pulls on the bank of level 1, over the pull of the same term of level 1."""
    first, second = _banks()
    lower, upper = _levels(first, second, detached=detached, gradient=gradient)
    (own,) = torch.autograd.grad(getattr(lower, term).sum(), first, retain_graph=True)
    (above,) = torch.autograd.grad(getattr(upper, term).sum(), first, allow_unused=True)
    return 0.0 if above is None else float(above.norm() / own.norm())


def measure_decoupled() -> Numbers:
    """The pull of level 2 on level 1's bank, and level 2's own force before and after level 1 moves."""
    first, second = (bank.detach() for bank in _banks())
    forces = []
    for bank in (first, 1.5 * first):
        upper = second.clone().requires_grad_()
        forces.append(torch.autograd.grad(_levels(bank, upper, detached=True)[1].variance.sum(), upper)[0])
    return {
        "v_joined_full": _from_above("variance", "full", detached=False),
        "v_joined_stop": _from_above("variance", "stop", detached=False),
        "loss_joined_stop": _from_above("total", "stop", detached=False),
        "v_detached": _from_above("variance", "full", detached=True),
        "loss_detached": _from_above("total", "full", detached=True),
        "change_when_level_1_moves": float((forces[1] - forces[0]).norm() / forces[0].norm()),
    }


def judge_decoupled(n: Numbers) -> Verdict:
    """Holds if level 1 never feels level 2's V, holds if not with the input detached, fails if it does then too."""
    number = (
        f"pull of level 2 on level 1's bank, over level 1's own: V {n['v_joined_full']:.1%} in mode full, "
        f"{n['v_joined_stop']:.0%} in "
        f"mode stop; the whole loss {n['loss_joined_stop']:.1%} in mode stop; with the input detached "
        f"{n['loss_detached']:.0%}"
    )
    if max(n["v_joined_full"], n["v_joined_stop"], n["v_detached"]) == 0:
        return holds(number)
    example = (
        "a plain stack in mode full. And detached or not, level 2's force depends on level 1's bank: make "
        "that half as large "
        f"again and the force changes by {n['change_when_level_1_moves']:.0%}"
    )
    if max(n["v_detached"], n["loss_detached"]) == 0:
        also = ", or q held constant and V alone looked at" if n["v_joined_stop"] == 0 else ""
        return holds_if(f"the input of each level is detached from the level below{also}", number, example)
    return fails(number, example)


CLAIMS = (
    Claim(
        "hierarchy-variance",
        "V >= 0 at each level of a stack of banks.",
        "Prop. 5; Sec. 7.5",
        "holds if the smallest V at both levels is above -1e-12",
        measure_variance,
        judge_variance,
    ),
    Claim(
        "hierarchy-decoupled",
        "The forces at different levels are decoupled: no level interferes with another in one backward pass.",
        "Prop. 5; Sec. 8.4",
        "holds if the gradient of V at level 2 on the bank of level 1 is zero; holds if it is zero with "
        "the input detached",
        measure_decoupled,
        judge_decoupled,
    ),
)
