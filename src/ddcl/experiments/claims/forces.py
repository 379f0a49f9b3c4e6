"""Which way the gradients point, and whether every prototype gets one."""

from __future__ import annotations

import torch
from torch import Tensor

from ddcl.experiments.claims.ledger import Claim, Numbers, Verdict, fails, holds, holds_if
from ddcl.experiments.claims.problems import descend, extent, normal, tiny
from ddcl.functional import assignments, readout
from ddcl.ops import Gradient

ROUNDING = 1e-12


def _case(seed: int = 0) -> tuple[Tensor, Tensor]:
    return normal(300, 5, seed=10 + seed), normal(7, 5, seed=50 + seed)


def _grad(z: Tensor, bank: Tensor, term: str, gradient: Gradient, T: float = 1.0) -> Tensor:
    """The gradient of a summed term of the loss with respect to the bank, by the library."""
    bank = bank.clone().requires_grad_()
    (found,) = torch.autograd.grad(getattr(readout(z, bank, T, gradient=gradient).per_token, term).sum(), bank)
    return found


def _sigma(z: Tensor, bank: Tensor, T: float = 1.0) -> Tensor:
    """The paper's Sigma_q, (K, K)."""
    q = assignments(z, bank, T)
    return torch.diag(q.sum(0)) - q.mT @ q


def _relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def measure_formula() -> Numbers:
    """The library's gradient of V in mode stop against 2 Sigma_q P."""
    z, bank = _case()
    return {"relative_error": _relative(_grad(z, bank, "variance", "stop"), 2 * _sigma(z, bank) @ bank)}


def judge_formula(n: Numbers) -> Verdict:
    """Holds up to rounding, else fails."""
    number = f"autograd and 2 Sigma_q P differ by {tiny(n['relative_error'])}"
    return holds(number) if n["relative_error"] < ROUNDING else fails(number, "random tokens and bank")


def measure_separation() -> Numbers:
    """What one small step and a long run down the gradient of V do to the distances between prototypes."""
    drawn: dict[Gradient, int] = {"stop": 0, "full": 0}
    smallest = float("inf")
    trials = 50
    for seed in range(trials):
        z, bank = _case(seed)
        for mode in drawn:
            drawn[mode] += extent(bank - 1e-6 * _grad(z, bank, "variance", mode)) < extent(bank)
        smallest = min(smallest, float(torch.linalg.eigvalsh(_sigma(z, bank))[0]))
    z, bank = _case()
    end, _ = descend(lambda p: readout(z, p, 1.0, gradient="stop").loss.variance, bank, steps=300, lr=1.0)
    return {
        "banks": trials,
        "drawn_together": drawn["stop"],
        "drawn_together_mode_full": drawn["full"],
        "smallest_eigenvalue_of_sigma": smallest,
        "extent_left_after_descent": extent(end) / extent(bank),
    }


def judge_separation(n: Numbers) -> Verdict:
    """Holds if a step draws no bank together, holds if some, fails if all."""
    together = f"{n['drawn_together']:.0f} of {n['banks']:.0f}"
    number = (
        f"a step down the gradient of V shrinks {together} random banks (in mode full, where q is differentiated too, "
        f"{n['drawn_together_mode_full']:.0f})"
    )
    if n["drawn_together"] == 0:
        return holds(number)
    left = f"after 300 steps down V alone a bank keeps {n['extent_left_after_descent']:.2g} of its extent"
    if n["drawn_together"] < n["banks"]:
        return holds_if("the bank is one of those that do not shrink", number, left)
    return fails(
        number,
        f"{left}. No eigenvalue of Sigma_q is negative (smallest {tiny(n['smallest_eigenvalue_of_sigma'])}): "
        "descent can only draw together",
    )


def measure_repulsion() -> Numbers:
    """In mode full, the gradient against 2 w (p - z), and whether w is negative exactly beyond d = L + T."""
    z, bank = _case()
    T = 1.0
    d = (z[:, None] - bank).square().sum(-1)
    q = assignments(z, bank, T)
    excess = d - (q * d).sum(-1, keepdim=True)
    w = q * (1 - excess / T)
    expected = 2 * (w.sum(0)[:, None] * bank - w.mT @ z)
    # in one dimension a single far prototype shows the direction: its gradient times its side of the token
    far = torch.tensor([[0.0], [3.0]], dtype=z.dtype)
    push = {mode: float(_grad(torch.zeros(1, 1, dtype=z.dtype), far, "total", mode)[1]) for mode in ("full", "stop")}
    return {
        "relative_error": _relative(_grad(z, bank, "total", "full"), expected),
        "share_pushed_away": float((w < 0).double().mean()),
        "gradient_of_far_prototype_full": push["full"],
        "gradient_of_far_prototype_stop": push["stop"],
    }


def judge_repulsion(n: Numbers) -> Verdict:
    """Holds if the formula is exact and descent moves a far prototype away in mode full but not in mode stop."""
    number = (
        f"{n['share_pushed_away']:.0%} of token-prototype pairs push apart in mode full; gradient on a "
        "prototype at 3 from "
        f"a token at 0: {tiny(n['gradient_of_far_prototype_full'])} full (away), "
        f"{tiny(n['gradient_of_far_prototype_stop'])} stop"
    )
    exact = n["relative_error"] < ROUNDING
    away = n["gradient_of_far_prototype_full"] < 0 < n["gradient_of_far_prototype_stop"]
    return holds(number) if exact and away else fails(number, f"relative error {tiny(n['relative_error'])}")


def measure_encoder() -> Numbers:
    """The gradient with respect to a linear encoder against sum (grad z)' (z - mu)."""
    x, bank = _case()
    encoder = (torch.eye(5, dtype=x.dtype) + 0.3 * normal(5, 5, seed=9)).requires_grad_()
    with torch.no_grad():
        z = x @ encoder
        formula = x.mT @ (z - readout(z, bank, 1.0).centroid)
    found = {}
    for mode in ("stop", "full"):
        total = readout(x @ encoder, bank, 1.0, gradient=mode).per_token.total.sum()
        (found[mode],) = torch.autograd.grad(total, encoder)
    factor = float((found["stop"] * formula).sum() / formula.square().sum())
    return {
        "factor": factor,
        "relative_error_with_factor": _relative(found["stop"], factor * formula),
        "relative_error_mode_full": _relative(found["full"], factor * formula),
    }


def judge_encoder(n: Numbers) -> Verdict:
    """Holds if equal, holds if equal but for a constant factor, else fails."""
    number = (
        f"autograd is {n['factor']:.6f} times Eq. (10) to {tiny(n['relative_error_with_factor'])} in mode stop; "
        f"in mode full it differs by {n['relative_error_mode_full']:.0%}"
    )
    if n["relative_error_with_factor"] > ROUNDING:
        return fails(number, "a linear encoder on random tokens")
    if abs(n["factor"] - 1) < ROUNDING:
        return holds(number)
    return holds_if(f"the factor {n['factor']:.0f} of its own proof is put back", number)


def measure_remark() -> Numbers:
    """The gradient written in Remark 3 against autograd, with the paper's learning rates as eta_P."""
    z, bank = _case()
    first = 2 * (assignments(z, bank, 1.0).sum(0)[:, None] * bank - assignments(z, bank, 1.0).mT @ z)
    numbers = {}
    for rate in (0.001, 0.05):
        written = first + 2 * rate * _sigma(z, bank) @ bank
        numbers[f"error_stop_{rate}"] = _relative(written, _grad(z, bank, "total", "stop"))
        numbers[f"error_full_{rate}"] = _relative(written, _grad(z, bank, "total", "full"))
    numbers["error_first_term_alone"] = _relative(first, _grad(z, bank, "total", "stop"))
    return numbers


def judge_remark(n: Numbers) -> Verdict:
    """Holds if it is the gradient in one of the modes, else fails."""
    number = (
        f"with eta_P = 0.05 it is off by {n['error_stop_0.05']:.1%} in mode stop "
        f"and by {n['error_full_0.05']:.0%} in mode full"
    )
    if min(n["error_stop_0.05"], n["error_full_0.05"]) < ROUNDING:
        return holds(number)
    return fails(
        number,
        "no learning rate belongs in a gradient: the first term alone is the gradient in mode stop "
        f"(off by {tiny(n['error_first_term_alone'])})",
    )


def measure_every_prototype() -> Numbers:
    """The gradient on one prototype that lies apart from all tokens, at the paper's last temperature."""
    z, bank = normal(500, 4, seed=1), normal(8, 4, seed=2)
    bank[0] = torch.tensor([12.0, 0, 0, 0])
    numbers = {"distance": 12.0}
    for name, dtype in (("float64", torch.float64), ("float32", torch.float32)):
        sizes = _grad(z.to(dtype), bank.to(dtype), "total", "full", T=0.3).norm(dim=-1)
        numbers[f"smallest_{name}"] = float(sizes[0])
        numbers[f"median_of_others_{name}"] = float(sizes[1:].median())
    return numbers


def judge_every_prototype(n: Numbers) -> Verdict:
    """Holds if the gradient is positive in float32, holds if only in float64, fails if in neither."""
    number = (
        f"a prototype {n['distance']:.0f} standard deviations out at T = 0.3 gets "
        f"{tiny(n['smallest_float64'])} in float64 "
        f"and {tiny(n['smallest_float32'])} in float32, the others about {n['median_of_others_float32']:.0f}"
    )
    if n["smallest_float32"] > 0:
        return holds(number)
    example = "that prototype in float32: gradient exactly zero, for ever"
    if n["smallest_float64"] > 0:
        return holds_if(
            "arithmetic is exact; in float32, if some token has (d_k - min d)/T below about 100", number, example
        )
    return fails(number, example)


CLAIMS = (
    Claim(
        "gradient-of-v",
        "With q held constant, the gradient of V with respect to the bank is 2 Sigma_q P.",
        "Sec. 2.2; Sec. 5.1",
        "holds if the relative error is below 1e-12",
        measure_formula,
        judge_formula,
    ),
    Claim(
        "v-separates",
        "The gradient of V is a separation force: training drives prototypes apart through it.",
        "Sec. 2.2; Prop. 4; Sec. 8.3",
        "holds if descending V shrinks no random bank, fails if it shrinks all of them",
        measure_separation,
        judge_separation,
    ),
    Claim(
        "full-gradient-repels",
        "The repulsion is in the derivative of q: in mode full, prototypes with d > L + T are pushed away.",
        "theory notes, sec. 3",
        "holds if the written-out gradient is exact and a far prototype moves away in mode full alone",
        measure_repulsion,
        judge_repulsion,
    ),
    Claim(
        "encoder-gradient",
        "With q held constant the encoder's gradient is sum_n (grad z_n)' (z_n - mu_n).",
        "Prop. 2, Eq. (10)",
        "holds if equal to 1e-12; holds if equal but for a constant factor",
        measure_encoder,
        judge_encoder,
    ),
    Claim(
        "remark-3-gradient",
        "The gradient on p_k is 2 sum_n q_nk (p_k - z_n) + 2 eta_P [Sigma_q P]_k.",
        "Remark 3",
        "holds if it equals autograd to 1e-12 in either mode",
        measure_remark,
        judge_remark,
    ),
    Claim(
        "every-prototype-gets-gradient",
        "Every prototype always receives a gradient.",
        "Remark 3; Prop. 4; Sec. 8.3",
        "holds if a far prototype's gradient is above 0 in float32; holds if it is above 0 in float64",
        measure_every_prototype,
        judge_every_prototype,
    ),
)
