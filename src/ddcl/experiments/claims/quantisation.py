"""Soft output against hard codes, and what becomes of codes that no token chooses."""

from __future__ import annotations

import torch
from torch import Tensor

from ddcl.experiments.claims.ledger import Claim, Numbers, Verdict, fails, holds, holds_if
from ddcl.experiments.claims.problems import blobs, descend, generator, normal, tiny, train_bank
from ddcl.functional import critical_temperature, kmeans, readout, usage

FRACTIONS = (1.2, 0.5, 0.1, 0.02, 0.005, 0.002, 0.0005)
SIZES = (4, 16, 64, 256)


def measure_soft_against_hard() -> Numbers:
    """Soft and hard reconstruction of a bank annealed from above T_c, against k-means with as many codes."""
    z = blobs(400, centres=8, dim=4, seed=0)
    critical = float(critical_temperature(z))
    found = kmeans(z, 32, generator=generator(1), restarts=5)
    bank, numbers = found.centers, {"hard_kmeans": float(found.distortion)}
    start = bank
    for a in FRACTIONS:
        # from k-means at every temperature: the best a bank of this size can be given to begin with
        bank = train_bank(z, start, a * critical, steps=250)
        loss = readout(z, bank, a * critical).loss
        numbers[f"soft_{a}"], numbers[f"hard_{a}"] = float(loss.reconstruction), float(loss.quantization)
    bank = start
    for a in FRACTIONS:
        bank = train_bank(z, bank, a * critical, steps=100)
    loss = readout(z, bank, FRACTIONS[-1] * critical).loss
    numbers["soft_annealed"], numbers["hard_annealed"] = float(loss.reconstruction), float(loss.quantization)
    return numbers


def judge_soft_against_hard(n: Numbers) -> Verdict:
    """Holds if the soft error is below hard k-means at every T, holds if at the lowest ones, fails if at none."""
    best = n["hard_kmeans"]
    wins = [a for a in FRACTIONS if n[f"soft_{a}"] < best]
    number = (
        f"hard k-means error {best:.3f}; soft error "
        + ", ".join(f"{n[f'soft_{a}']:.3f} at {a:g}" for a in FRACTIONS)
        + f" T_c; after annealing {n['soft_annealed']:.3f}"
    )
    if len(wins) == len(FRACTIONS):
        return holds(number)
    worst = max(FRACTIONS)
    example = f"{worst:g} T_c: one prototype for all, error {n[f'soft_{worst}'] / best:.0f} times that of hard codes"
    if wins and wins == list(FRACTIONS[-len(wins) :]):
        return holds_if(
            f"T is at most {max(wins):g} T_c here, low enough for each code to keep a cell of its own", number, example
        )
    return fails(number, example)


def _hard_codes(z: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """Straight-through codes after training, and which of them no token ever chose last."""

    def codebook_loss(bank: Tensor) -> Tensor:
        chosen = bank[readout(z, bank.detach(), 1.0).indices]
        return (z - chosen).square().sum(-1).mean()

    bank, _ = descend(codebook_loss, start, steps=150, lr=0.5)
    return bank, usage(readout(z, bank, 1.0).indices, len(bank)).counts == 0


def measure_risk() -> Numbers:
    """Dead codes of a hard quantiser after training, from random codes and from k-means, against 100 (1 - 1/K) %."""
    z = blobs(600, centres=8, dim=4, seed=0)
    numbers: dict[str, float] = {}
    for K in SIZES:
        numbers[f"formula_{K}"] = (1 - 1 / K) * 100 // 1 / 100
        dead = [_hard_codes(z, normal(K, 4, seed=seed))[1].double().mean() for seed in (1, 2, 3)]
        numbers[f"dead_random_{K}"] = float(torch.stack(dead).mean())
        start = kmeans(z, K, generator=generator(0), restarts=1).centers
        numbers[f"dead_kmeans_{K}"] = float(_hard_codes(z, start)[1].double().mean())
    return numbers


def judge_risk(n: Numbers) -> Verdict:
    """Holds if the share of dead codes is within 10 points of the formula for every K and start, holds "
    "if for one start."""

    def near(start: str) -> bool:
        return all(abs(n[f"dead_{start}_{K}"] - n[f"formula_{K}"]) < 0.1 for K in SIZES)

    number = "formula, dead from random codes, from k-means - " + "; ".join(
        f"K = {K}: {n[f'formula_{K}']:.0%}, {n[f'dead_random_{K}']:.0%}, {n[f'dead_kmeans_{K}']:.0%}" for K in SIZES
    )
    if near("random") and near("kmeans"):
        return holds(number)
    if near("random"):
        return holds_if("codes start at random", number)
    worst = max(SIZES, key=lambda K: abs(n[f"dead_kmeans_{K}"] - n[f"formula_{K}"]))
    return fails(
        number,
        f"K = {worst} started from k-means: {n[f'dead_kmeans_{worst}']:.0%} dead. The start decides, not K alone",
    )


def measure_unused() -> Numbers:
    """The gradient on codes that no token chooses: straight-through, and the soft bank's at 0.05 and 0.002 T_c."""
    z = blobs(600, centres=8, dim=4, seed=0)
    bank, unused = _hard_codes(z, normal(64, 4, seed=1))
    leaf = bank.clone().requires_grad_()
    chosen = leaf[readout(z, bank, 1.0).indices]
    (hard,) = torch.autograd.grad((z - chosen).square().sum(-1).mean(), leaf)
    numbers = {"unused": int(unused.sum()), "largest_hard": float(hard[unused].norm(dim=-1).max())}
    for a in (0.05, 0.002):
        T = a * float(critical_temperature(z))
        (soft,) = torch.autograd.grad(readout(z, leaf, T).loss.total, leaf)
        numbers[f"median_soft_{a}"] = float(soft[unused].norm(dim=-1).median())
    return numbers


def judge_unused(n: Numbers) -> Verdict:
    """Holds if every unused code has gradient exactly zero, else fails."""
    number = (
        f"{n['unused']:.0f} of 64 codes unused, largest gradient on them {n['largest_hard']:.0g}; in a "
        "soft bank the median one "
        f"gets {tiny(n['median_soft_0.05'])} at 0.05 T_c, {tiny(n['median_soft_0.002'])} at 0.002 T_c"
    )
    if n["unused"] and n["largest_hard"] == 0:
        return holds(number)
    return fails(number, "64 random codes on eight groups of tokens")


CLAIMS = (
    Claim(
        "soft-beats-hard",
        "The soft output reconstructs tokens better than hard codes.",
        "Prop. 4; Sec. 7.4; Sec. 9",
        "holds if the soft error R after training is below that of k-means with as many codes at every "
        "temperature tried; "
        "holds if from some temperature down",
        measure_soft_against_hard,
        judge_soft_against_hard,
    ),
    Claim(
        "dead-code-risk",
        "A hard quantiser with K codes has a dead-code risk of 100 (1 - 1/K) %.",
        "Remark 3",
        "holds if the share of dead codes is within 10 points of the formula for K = 4 to 256, from both "
        "starts; holds if "
        "from random codes alone",
        measure_risk,
        judge_risk,
    ),
    Claim(
        "straight-through-starves",
        "The straight-through estimator gives unused codes no gradient at all.",
        "Remark 3; Sec. 8.3",
        "holds if the largest gradient on an unused code is exactly 0",
        measure_unused,
        judge_unused,
    ),
)
