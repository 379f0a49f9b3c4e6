"""The functional W = L_q + barrier: where it falls, what keeps it finite, and what does not."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ddcl.experiments.claims.ledger import Claim, Numbers, Verdict, fails, holds, holds_if
from ddcl.experiments.claims.problems import F64, descend, normal, rises, stretched, tiny
from ddcl.functional import (
    assignments,
    barrier_strength,
    covariance,
    critical_temperature,
    lyapunov,
    readout,
    separation,
)
from ddcl.ops import Gradient

PROTOTYPES = 5


def _functional(
    z: Tensor, temperature: float, strength: float, gradient: Gradient = "full"
) -> Callable[[Tensor], Tensor]:
    """W of a bank with the tokens held."""
    return lambda bank: lyapunov(z, bank, temperature, strength=strength, gradient=gradient)


def measure_barrier() -> Numbers:
    """A bank at 1.5 T_c, where it would merge, with and without the barrier, in small and in large steps."""
    z = stretched(100, seed=1)
    T = 1.5 * float(critical_temperature(z))
    trace = float(covariance(z).trace)
    start = z.mean(0) + 0.1 * normal(PROTOTYPES, 3, seed=2)
    numbers: dict[str, float] = {}
    runs = {
        "none": (lambda p: readout(z, p, T).loss.total, 1.0),
        "small": (_functional(z, T, 0.01), 0.02),
        "large": (_functional(z, T, 0.01), 1.0),
    }
    for name, (loss, lr) in runs.items():
        end, history = descend(loss, start, steps=400, lr=lr)
        numbers[f"separation_{name}"] = float(separation(end)) / trace
        numbers[f"rises_{name}"] = rises(history)
        numbers[f"largest_w_{name}"] = max(history) / history[0]
    return numbers


def judge_barrier(n: Numbers) -> Verdict:
    """Holds if W never rises at either step, holds if only at the small one, fails if it rises or merges there too."""
    number = (
        f"S(P) / trace C at 1.5 T_c: {tiny(n['separation_none'])} without barrier, {n['separation_small']:.2g} with; "
        f"of 400 steps, W rises in {n['rises_small']:.0f} of size 0.02 and in {n['rises_large']:.0f} of size 1"
    )
    if n["rises_small"] or n["separation_small"] <= 1e-6:
        return fails(number, "five prototypes near the mean of normal data, lambda = 0.01")
    if not n["rises_large"]:
        return holds(number)
    example = f"steps of 1: close pairs are thrown apart and W reaches {n['largest_w_large']:.3g} times its first value"
    return holds_if("steps are small enough to follow the flow", number, example)


def _coupled(epsilon: float, gradient: Gradient, temperatures: list[float]) -> list[float]:
    """W after each step of a linear encoder and a bank that follow its gradient together, in mode full or stop."""
    x = stretched(100, seed=1)
    encoder = torch.eye(3, 2, dtype=F64).requires_grad_()
    bank = normal(PROTOTYPES, 2, seed=2).requires_grad_()
    history = []
    for T in temperatures:
        value = _functional(x @ encoder, T, 0.01, gradient)(bank)
        history.append(float(value.detach()))
        of_encoder, of_bank = torch.autograd.grad(value, (encoder, bank))
        with torch.no_grad():
            encoder -= epsilon * 0.01 * of_encoder
            bank -= 0.01 * of_bank
    return history


def measure_fixed() -> Numbers:
    """Rises of W at fixed T in both modes, encoder and bank moving, and with the encoder held at T = 3 variances."""
    numbers: dict[str, float] = {f"rises_full_{e}": rises(_coupled(e, "full", [1.0] * 300)) for e in (0.1, 1.0)}
    z = stretched(100, seed=1)
    start = z.mean(0) + normal(PROTOTYPES, 3, seed=2)
    T = 3 * float(covariance(z).largest)
    for mode in ("full", "stop"):
        _, history = descend(_functional(z, T, 1e-6, mode), start, steps=300, lr=0.05)
        numbers[f"rises_frozen_{mode}"] = rises(history)
        numbers[f"climb_frozen_{mode}"] = history[-1] / min(history) - 1
    return numbers


def judge_fixed(n: Numbers) -> Verdict:
    """Holds if W rises in neither mode, holds if in mode full it never does, else fails."""
    full = n["rises_full_0.1"] + n["rises_full_1.0"] + n["rises_frozen_full"]
    number = (
        f"mode full: W rises in {full:.0f} of 900 small steps, at rate ratios 0, 0.1 and 1; "
        f"mode stop at T = 3 variances: in {n['rises_frozen_stop']:.0f} of 300, by {n['climb_frozen_stop']:.1%}"
    )
    if not full and not n["rises_frozen_stop"]:
        return holds(number)
    example = (
        "mode stop descends another function, the free energy L - T H: between T = 2 and 4 variances its bank merges "
        "while L rises"
    )
    if not full:
        return holds_if("q is differentiated too (mode full) and steps are small", number, example)
    return fails(number, "a linear encoder and five prototypes on normal tokens")


def measure_annealing() -> Numbers:
    """The derivative of L in T against its formula, and rises of W along a falling temperature."""
    z, bank = normal(300, 5, seed=1), normal(7, 5, seed=2)
    worst, smallest = 0.0, float("inf")
    for T in (0.1, 1.0, 10.0):
        temperature = torch.tensor(T, dtype=F64, requires_grad=True)
        (slope,) = torch.autograd.grad(readout(z, bank, temperature).per_token.total.sum(), temperature)
        d = (z[:, None] - bank).square().sum(-1)
        q = assignments(z, bank, T)
        spread = (q * d.square()).sum(-1) - (q * d).sum(-1).square()
        worst = max(worst, float((slope - spread.sum() / T**2).abs() / slope.abs()))
        smallest = min(smallest, float(slope))
    falling = [2.0 * (0.15 ** (i / 299)) for i in range(300)]
    warming = falling[::-1]
    return {
        "formula_error": worst,
        "smallest_slope": smallest,
        "rises_falling": rises(_coupled(0.1, "full", falling)),
        "rises_warming": rises(_coupled(0.1, "full", warming)),
    }


def judge_annealing(n: Numbers) -> Verdict:
    """Holds if the formula is exact, the slope is not negative and W never rises while T falls."""
    number = (
        f"dL/dT = sum Var_q(d) / T^2 to {tiny(n['formula_error'])}, smallest {n['smallest_slope']:.2g} >= 0; "
        f"W rises in {n['rises_falling']:.0f} of 300 steps as T falls from 2.0 to 0.3 (as T rises back: in "
        f"{n['rises_warming']:.0f})"
    )
    if n["formula_error"] < 1e-9 and n["smallest_slope"] >= 0 and not n["rises_falling"]:
        return holds(number)
    return fails(number, "a linear encoder and five prototypes on normal tokens, mode full")


def measure_condition() -> Numbers:
    """Rises of W and separation with lambda at a thousandth of the paper's bound and at ten times it."""
    z = stretched(100, seed=1)
    T = 1.5 * float(critical_temperature(z))
    rate = 0.01
    bound = barrier_strength(PROTOTYPES, rate)
    start = z.mean(0) + normal(PROTOTYPES, 3, seed=2)
    numbers: dict[str, float] = {"bound": bound}
    for share in (0.001, 10.0):
        end, history = descend(_functional(z, T, share * bound), start, steps=400, lr=rate)
        numbers[f"rises_{share}"] = rises(history)
        numbers[f"separation_{share}"] = float(separation(end))
    return numbers


def judge_condition(n: Numbers) -> Verdict:
    """Holds if W falls and the bank stays apart above the bound alone; fails if also at a thousandth of it."""
    number = (
        f"the bound is {n['bound']:.2g}; at 10 times it W rises in {n['rises_10.0']:.0f} of 400 steps, "
        f"at a thousandth of it in {n['rises_0.001']:.0f}"
    )
    works = {share: not n[f"rises_{share}"] and n[f"separation_{share}"] > 0 for share in (0.001, 10.0)}
    if works[10.0] and not works[0.001]:
        return holds(number)
    example = (
        f"lambda = {n['bound'] / 1000:.1g}: the same descent, S(P) = {n['separation_0.001']:.2g} > 0. W "
        "falls along its own "
        "gradient for every lambda, and a learning rate has no place in a bound on a continuous flow"
    )
    return fails(number, example)


def measure_coercive() -> Numbers:
    """W while one prototype goes away, and while all do; and where the flow takes one that is already far."""
    z = stretched(100, seed=1)
    T, strength = 1.0, 1.0
    bank = normal(PROTOTYPES, 3, seed=2)
    W = _functional(z, T, strength)
    numbers: dict[str, float] = {"start": float(W(bank))}
    for radius in (1e1, 1e2, 1e4):
        away = bank.clone()
        away[0] = torch.tensor([radius, 0, 0])
        numbers[f"one_away_{radius:g}"] = float(W(away))
        numbers[f"loss_alone_{radius:g}"] = float(readout(z, away, T).loss.total)
    numbers["all_away_1e4"] = float(W(bank * 1e4))
    away = bank.clone()
    away[0] = torch.tensor([30.0, 0, 0])
    end, _ = descend(W, away, steps=400, lr=0.05)
    numbers["drift"] = float(end[0].norm() - away[0].norm())
    return numbers


def judge_coercive(n: Numbers) -> Verdict:
    """Holds if W grows beyond its start as a single prototype leaves, fails if it stays bounded."""
    number = (
        f"one prototype at 10, 100, 10^4: W = {n['one_away_10']:.4g}, {n['one_away_100']:.4g}, "
        f"{n['one_away_10000']:.4g}, "
        f"from {n['start']:.4g}; only if all leave does it grow ({tiny(n['all_away_1e4'])})"
    )
    if n["one_away_10000"] > 2 * max(n["start"], n["one_away_10"]):
        return holds(number)
    return fails(
        number,
        "a prototype without tokens sits at any distance at the same W; the barrier pushes it on (at 30, "
        f"by {n['drift']:+.1g} "
        f"in 400 steps). L_q does not hold it either ({n['loss_alone_100']:.4g} at 100, "
        f"{n['loss_alone_10000']:.4g} at 10^4): the "
        "theory notes, sec. 6, are too strong here too",
    )


CLAIMS = (
    Claim(
        "barrier-keeps-apart",
        "With the barrier no two prototypes can meet: W is infinite there and never rises.",
        "Thm. 2 and its proof",
        "holds if W rises at no step of size 0.02 or 1 and S(P) stays positive; holds if at 0.02 alone",
        measure_barrier,
        judge_barrier,
    ),
    Claim(
        "w-falls-at-fixed-t",
        "W falls along the flow of encoder and bank at a fixed temperature, at any ratio of rates.",
        "Thm. 2; Fact 1",
        "holds if W rises at no small step in either gradient mode; holds if in mode full alone",
        measure_fixed,
        judge_fixed,
    ),
    Claim(
        "w-falls-under-annealing",
        "W also falls while the temperature falls, since dL/dT = sum Var_q(d) / T^2 >= 0.",
        "Thm. 3",
        "holds if the formula is exact to 1e-9, never negative, and W rises at no small step (mode full)",
        measure_annealing,
        judge_annealing,
    ),
    Claim(
        "lambda-condition",
        "The condition lambda > 2 eta_P K(K-1)/2 is what makes W a Lyapunov function.",
        "Fact 1; Thm. 2",
        "holds if W falls and the bank stays apart above the bound but not at a thousandth of it",
        measure_condition,
        judge_condition,
    ),
    Claim(
        "w-is-coercive",
        "The sublevel sets of W are compact: no trajectory escapes to infinity.",
        "Thm. 2, end of proof",
        "holds if W doubles when one prototype is moved from 10 to 10^4, fails if it does not",
        measure_coercive,
        judge_coercive,
    ),
)
