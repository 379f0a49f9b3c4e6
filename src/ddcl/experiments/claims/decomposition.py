"""What the loss is made of: the exact identity, and the paper's with min d in the place of R."""

from __future__ import annotations

import torch
from torch import Tensor

from ddcl.experiments.claims.ledger import Claim, Numbers, Verdict, fails, holds
from ddcl.experiments.claims.problems import normal, tiny
from ddcl.functional import assignments, readout

TEMPERATURES = (0.01, 0.1, 1.0, 10.0, 100.0)
ROUNDING = 1e-12


def _case() -> tuple[Tensor, Tensor]:
    return normal(1000, 7, seed=1), normal(11, 7, seed=2)


def _distances(z: Tensor, bank: Tensor) -> Tensor:
    return (z[:, None] - bank).square().sum(-1)


def _midway() -> tuple[float, float, float, float]:
    """L, R, V and min d of the token (0, 2) between the prototypes (-3, 0) and (3, 0), at T = 1."""
    bank = torch.tensor([[-3.0, 0.0], [3.0, 0.0]], dtype=torch.float64)
    loss = readout(torch.tensor([[0.0, 2.0]], dtype=torch.float64), bank, 1.0).loss
    return float(loss.total), float(loss.reconstruction), float(loss.variance), float(loss.quantization)


def measure_identity_with_r() -> Numbers:
    """L written out as sum q d, against the library's R + V."""
    z, bank = _case()
    worst = 0.0
    for T in TEMPERATURES:
        total = (assignments(z, bank, T) * _distances(z, bank)).sum(-1)
        parts = readout(z, bank, T).per_token
        worst = max(worst, float(((parts.reconstruction + parts.variance - total).abs() / total).max()))
    return {"largest_relative_error": worst}


def judge_identity_with_r(n: Numbers) -> Verdict:
    """Holds up to rounding, else fails."""
    number = f"L and R + V differ by at most {tiny(n['largest_relative_error'])} of L, at five temperatures"
    return holds(number) if n["largest_relative_error"] < ROUNDING else fails(number, "random tokens and bank")


def measure_identity_with_min() -> Numbers:
    """L against min d + V."""
    z, bank = _case()
    loss = readout(z, bank, 1.0).loss
    cold = readout(z, bank, 1e-3).loss
    L, _, V, smallest = _midway()
    return {
        "total": float(loss.total),
        "min_d_plus_v": float(loss.quantization + loss.variance),
        "relative_error": float((loss.quantization + loss.variance - loss.total).abs() / loss.total),
        "relative_error_at_t_0.001": float((cold.quantization + cold.variance - cold.total).abs() / cold.total),
        "midway_total": L,
        "midway_min_d_plus_v": smallest + V,
    }


def judge_identity_with_min(n: Numbers) -> Verdict:
    """Holds up to rounding, else fails."""
    number = (
        f"at T = 1, L = {n['total']:.3f} but min d + V = {n['min_d_plus_v']:.3f}: off by {n['relative_error']:.1%} "
        f"(at T = 0.001 by {tiny(n['relative_error_at_t_0.001'])}: true in the limit T -> 0 alone)"
    )
    if n["relative_error"] < ROUNDING:
        return holds(number)
    return fails(
        number,
        "token (0, 2) between prototypes (-3, 0) and (3, 0): "
        f"L = {n['midway_total']:.0f}, min d + V = {n['midway_min_d_plus_v']:.0f}",
    )


def measure_r_at_least_min() -> Numbers:
    """How many tokens are nearer to their soft centroid than to any prototype."""
    z, bank = _case()
    parts = readout(z, bank, 1.0).per_token
    _, R, _, smallest = _midway()
    nearer = parts.reconstruction < parts.quantization * (1 - ROUNDING)
    flat = readout(normal(1000, 2, seed=1), normal(5, 2, seed=2), 1.0).per_token
    return {
        "share_violating": float(nearer.double().mean()),
        "share_violating_in_the_plane": float(
            (flat.reconstruction < flat.quantization * (1 - ROUNDING)).double().mean()
        ),
        "midway_r": R,
        "midway_min_d": smallest,
    }


def judge_r_at_least_min(n: Numbers) -> Verdict:
    """Holds if no token violates it, else fails."""
    number = (
        f"R < min d at T = 1 for {n['share_violating']:.0%} of random tokens in 7 dimensions, "
        f"{n['share_violating_in_the_plane']:.0%} in the plane"
    )
    if n["share_violating"] == 0:
        return holds(number)
    return fails(number, f"the midway token: R = {n['midway_r']:.0f}, min d = {n['midway_min_d']:.0f}")


def measure_variance() -> Numbers:
    """The smallest V of any token, in float64 and, far from the origin, in float32."""
    z, bank = _case()
    exact = min(float(readout(z, bank, T).per_token.variance.min()) for T in TEMPERATURES)
    far, far_bank = (z + 100).float(), (bank + 100).float()
    single = min(float(readout(far, far_bank, T).per_token.variance.min()) for T in TEMPERATURES)
    return {"smallest_v": exact, "smallest_v_float32": single}


def judge_variance(n: Numbers) -> Verdict:
    """Holds if neither is below zero by more than rounding, else fails."""
    number = f"smallest V of 5,000: {tiny(n['smallest_v'])} in float64, {tiny(n['smallest_v_float32'])} in float32"
    if n["smallest_v"] > -ROUNDING and n["smallest_v_float32"] > -1e-5:
        return holds(number)
    return fails(number, "random tokens and bank")


def measure_assertion() -> Numbers:
    """The paper's check on layers that are wrong in five ways, and on a right one in float32."""
    z, bank = _case()
    T = 1.0
    d = _distances(z, bank)
    q = assignments(z, bank, T)
    wrong = (
        torch.full_like(q, 1 / len(bank)),  # no assignment at all
        torch.softmax(d / T, -1),  # the farthest prototype wins
        q.flip(0),  # every token has another token's weights
        torch.softmax(normal(*q.shape, seed=3), -1),  # random weights
        torch.softmax(-d / (100 * T), -1),  # another temperature
    )
    gaps = [float((weights * d).sum(-1).mean() - d.amin(-1).mean()) for weights in wrong]
    right = float((q * d).sum(-1).mean() - d.amin(-1).mean())
    # the check itself in float32, on large distances: rounding is all that it can find
    d32 = _distances((100 * z).float(), (100 * bank).float())
    gap32 = (torch.softmax(-d32 / 100, -1) * d32).sum(-1) - d32.amin(-1)
    return {
        "broken_layers": len(wrong),
        "caught": sum(gap < -1e-8 for gap in gaps),
        "gap": right,
        "variance": float(readout(z, bank, 1.0).loss.variance),
        "smallest_gap_float32": float(gap32.min()),
    }


def judge_assertion(n: Numbers) -> Verdict:
    """Holds if the check catches every broken layer, fails if it lets one pass."""
    number = f"of {n['broken_layers']:.0f} layers with wrong assignments the check catches {n['caught']:.0f}"
    if n["caught"] == n["broken_layers"]:
        return holds(number)
    return fails(
        number,
        f"any weights that sum to 1 pass, a mean being no less than its minimum. On a right layer the checked "
        f"difference is {n['gap']:.3f} while V is {n['variance']:.3f}; in float32, rounding alone takes a token's "
        f"difference to {n['smallest_gap_float32']:.1g}",
    )


CLAIMS = (
    Claim(
        "identity-with-r",
        "L = R + V exactly, R = |z - mu|^2 the distance to the soft centroid.",
        "Sec. 4.1, proof of Prop. 1",
        "holds if the largest relative error is below 1e-12",
        measure_identity_with_r,
        judge_identity_with_r,
    ),
    Claim(
        "identity-with-min-d",
        "L = min_k d_k + V exactly, for any encoder and temperature.",
        "Eq. (3); Prop. 1; Eq. (16), (17)",
        "holds if the relative error on random data is below 1e-12",
        measure_identity_with_min,
        judge_identity_with_min,
    ),
    Claim(
        "r-at-least-min-d",
        "A soft centroid is never nearer to its token than the nearest prototype: R >= min_k d_k.",
        "Sec. 4.1, proof of Prop. 1",
        "holds if no token violates it",
        measure_r_at_least_min,
        judge_r_at_least_min,
    ),
    Claim(
        "variance-not-negative",
        "V = sum_k q_k |p_k - mu|^2 >= 0 for every token.",
        "Eq. (3); Prop. 1",
        "holds if the smallest V is above -1e-12 in float64 and above -1e-5 in float32",
        measure_variance,
        judge_variance,
    ),
    Claim(
        "assertion-checks-the-layer",
        "Asserting V := L - min d >= -1e-8 is a sanity check of the decomposition.",
        "Algorithm 1; Sec. 3.4 (iii)",
        "holds if the check catches every deliberately broken layer",
        measure_assertion,
        judge_assertion,
    ),
)
