"""Proposition 3: the learning rates and the spectrum of J* at a fixed point of encoder and bank."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ddcl.experiments.claims.ledger import Claim, Numbers, Verdict, fails, holds
from ddcl.experiments.claims.problems import F64, normal
from ddcl.functional import readout

INPUTS, DIM, PROTOTYPES = 3, 2, 3
RATIOS = tuple(10.0**power for power in range(-4, 5))
ENCODER = INPUTS * DIM


class _Point(NamedTuple):
    """A fixed point by its Hessian, encoder first, and the gradient that is left there."""

    hessian: Tensor
    residual: float
    separated: bool

    @property
    def minimum(self) -> bool:
        return bool(torch.linalg.eigvalsh(self.hessian)[0] > 1e-9)


def _loss(seed: int, temperature: float) -> Callable[[Tensor], Tensor]:
    """L_q of a linear encoder and a bank, with a quadratic task that keeps the encoder from shrinking to nothing."""
    x = normal(40, INPUTS, seed=seed) * torch.tensor([2.0, 1.0, 0.5], dtype=F64)
    anchor = normal(INPUTS, DIM, seed=seed + 100)

    def value(parameters: Tensor) -> Tensor:
        encoder, bank = parameters[:ENCODER].reshape(INPUTS, DIM), parameters[ENCODER:].reshape(PROTOTYPES, DIM)
        task = 2 * (encoder - anchor).square().sum()
        return readout(x @ encoder, bank, temperature, backend="reference").loss.total + task

    return value


def _fixed_point(seed: int, temperature: float, merged: bool) -> _Point:
    """Minimise, from a merged bank (which stays merged, by symmetry) or from a random one; then Newton to the digit."""
    loss = _loss(seed, temperature)
    bank = (
        normal(1, DIM, seed=seed + 200).expand(PROTOTYPES, DIM) if merged else normal(PROTOTYPES, DIM, seed=seed + 300)
    )
    start = torch.cat([normal(INPUTS, DIM, seed=seed + 100).flatten(), bank.flatten()])
    parameters = start.clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [parameters], max_iter=200, tolerance_grad=1e-10, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def closure() -> float:
        optimiser.zero_grad()
        value = loss(parameters)
        value.backward()
        return float(value.detach())

    optimiser.step(closure)
    found = parameters.detach()
    hessian: Tensor = torch.autograd.functional.hessian(loss, found)
    for _ in range(3):
        gradient = torch.func.grad(loss)(found)
        found = found - torch.linalg.lstsq(hessian, gradient[:, None], driver="gelsd").solution[:, 0]
        hessian = torch.autograd.functional.hessian(loss, found)
    prototypes = found[ENCODER:].reshape(PROTOTYPES, DIM)
    apart = bool(torch.pdist(prototypes).min() > 1e-3)
    return _Point(hessian, float(torch.func.grad(loss)(found).norm()), apart)


def _points() -> list[_Point]:
    """Fixed points of several problems: minima and, from merged banks at a low temperature, saddles."""
    return [_fixed_point(seed, 2.0, merged) for seed in range(6) for merged in (False, True)]


def _bound(hessian: Tensor) -> float:
    """The right side of Eq. (14)."""
    encoder, bank, coupling = hessian[:ENCODER, :ENCODER], hessian[ENCODER:, ENCODER:], hessian[:ENCODER, ENCODER:]
    of_bank = torch.linalg.eigvalsh(bank)
    slowest = torch.linalg.eigvalsh(encoder)[0]
    return float(of_bank[0] / (torch.linalg.matrix_norm(coupling, 2) ** 2 / slowest + of_bank[-1]))


def _spectrum(hessian: Tensor, ratio: float) -> Tensor:
    """The eigenvalues of J* = D H with eta_P = 1."""
    rates = torch.ones(len(hessian), dtype=F64)
    rates[:ENCODER] = ratio
    values: Tensor = torch.linalg.eigvals(rates[:, None] * hessian)
    return values


def _unstable(hessian: Tensor, ratio: float) -> int:
    values = _spectrum(hessian, ratio)
    return int((values.real < -1e-12 * values.abs().max()).sum())


def measure_sufficient() -> Numbers:
    """At minima, the signs of the spectrum at ratios below the paper's bound and above it."""
    minima = [point for point in _points() if point.minimum]
    counts = {"below": 0, "below_stable": 0, "above": 0, "above_stable": 0}
    for point in minima:
        bound = _bound(point.hessian)
        for ratio in (*RATIOS, 0.99 * bound):
            side = "below" if ratio < bound else "above"
            counts[side] += 1
            counts[f"{side}_stable"] += _unstable(point.hessian, ratio) == 0
    return {
        "minima": len(minima),
        **counts,
        "largest_bound": max(_bound(point.hessian) for point in minima),
        "largest_residual": max(point.residual for point in minima),
    }


def judge_sufficient(n: Numbers) -> Verdict:
    """Holds if J* is stable at every ratio below the bound, else fails."""
    number = (
        f"at {n['minima']:.0f} minima J* is stable at {n['below_stable']:.0f} of {n['below']:.0f} ratios "
        "below the bound - and at "
        f"{n['above_stable']:.0f} of {n['above']:.0f} above it, up to 10^4: a positive H* does it alone"
    )
    if n["minima"] and n["below"] == n["below_stable"]:
        return holds(number)
    return fails(number, "a linear encoder with a quadratic task, three prototypes in the plane")


def measure_ratio() -> Numbers:
    """Whether the number of unstable directions ever depends on the ratio, and the bound without coupling."""
    points = _points()
    counts = [{_unstable(point.hessian, ratio) for ratio in RATIOS} for point in points]
    imaginary = max(float(_spectrum(p.hessian, r).imag.abs().max() / p.hessian.norm()) for p in points for r in RATIOS)
    uncoupled = []
    for point in (point for point in points if point.minimum and point.separated):
        hessian = point.hessian.clone()
        hessian[:ENCODER, ENCODER:] = 0
        hessian[ENCODER:, :ENCODER] = 0
        uncoupled.append(_bound(hessian))
    return {
        "points": len(points),
        "saddles": sum(max(values) > 0 for values in counts),
        "points_where_ratio_matters": sum(len(values) > 1 for values in counts),
        "largest_imaginary_part": imaginary,
        "smallest_uncoupled_bound": min(uncoupled),
        "largest_uncoupled_bound": max(uncoupled),
    }


def judge_ratio(n: Numbers) -> Verdict:
    """Holds if stability changes with the ratio and the uncoupled bound is 1, else fails."""
    number = (
        "from ratio 10^-4 to 10^4 the count of unstable directions changes at "
        f"{n['points_where_ratio_matters']:.0f} of "
        f"{n['points']:.0f} fixed points ({n['saddles']:.0f} of them saddles)"
    )
    if n["points_where_ratio_matters"] and abs(n["smallest_uncoupled_bound"] - 1) < 0.01:
        return holds(number)
    return fails(
        number,
        "J* = D H is similar to the symmetric D^1/2 H D^1/2, so signs are those of H at any ratio. "
        "Without coupling Eq. (14) "
        f"gives {n['smallest_uncoupled_bound']:.2g} to {n['largest_uncoupled_bound']:.2g}, the inverse "
        "condition number of H_PP, not 1",
    )


CLAIMS = (
    Claim(
        "proposition-3-sufficient",
        "Where H* > 0, a learning rate ratio below the bound of Eq. (14) makes the fixed point stable.",
        "Prop. 3, Eq. (14)",
        "holds if all eigenvalues of J* are positive at every minimum and ratio below the bound",
        measure_sufficient,
        judge_sufficient,
    ),
    Claim(
        "ratio-decides-stability",
        "The ratio of rates decides local stability; with weak coupling the condition is eta_theta < eta_P.",
        "Prop. 3 and its proof; Sec. 9",
        "holds if the ratio changes the number of unstable directions somewhere and the uncoupled bound is 1 to 1 %",
        measure_ratio,
        judge_ratio,
    ),
)
