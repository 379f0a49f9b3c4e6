"""When a bank merges, when it does not, and which figures see it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ddcl.experiments.claims.ledger import Claim, Numbers, Verdict, fails, holds, holds_if
from ddcl.experiments.claims.problems import F64, blobs, descend, extent, generator, normal, stretched, tiny, train_bank
from ddcl.functional import (
    covariance,
    critical_temperature,
    distinct_prototypes,
    kmeans,
    readout,
    separation,
    soft_usage,
    usage,
)
from ddcl.ops import Gradient
from ddcl.training import ExponentialSchedule

MODES: tuple[Gradient, ...] = ("full", "stop")


def _loss(z: Tensor, temperature: float, gradient: Gradient) -> Callable[[Tensor], Tensor]:
    return lambda bank: readout(z, bank, temperature, gradient=gradient).loss.total


def _growth(z: Tensor, temperature: float, gradient: Gradient) -> float:
    """Extent of a bank after descent from almost all in one point, over its extent before."""
    start = z.mean(0) + 1e-4 * normal(4, z.shape[1], seed=3)
    end, _ = descend(_loss(z, temperature, gradient), start, steps=300, lr=3.0)
    return extent(end) / extent(start)


def measure_saddle() -> Numbers:
    """Near-merged banks at 0.98 and 1.02 of the critical temperature, in both modes."""
    z = stretched(300, seed=1)
    numbers = {"largest_variance": float(covariance(z).largest)}
    for mode in MODES:
        critical = float(critical_temperature(z, gradient=mode))
        numbers[f"tc_over_variance_{mode}"] = critical / numbers["largest_variance"]
        for a in (0.98, 1.02):
            numbers[f"growth_{mode}_{a}"] = _growth(z, a * critical, mode)
    return numbers


def judge_saddle(n: Numbers) -> Verdict:
    """Holds if merged banks open on both sides of T_c, holds if below T_c alone, else fails."""
    below, above = ([n[f"growth_{mode}_{a}"] for mode in MODES] for a in (0.98, 1.02))
    number = "extent after descent from a near-merged bank, over extent before - " + "; ".join(
        f"{mode}: {tiny(n[f'growth_{mode}_0.98'])} at 0.98 T_c, {tiny(n[f'growth_{mode}_1.02'])} at 1.02 T_c"
        for mode in MODES
    )
    example = "1.02 T_c: a bank pulled apart by 0.0001 falls back into one point"
    if min(below) > 1 and min(above) > 1:
        return holds(number)
    if min(below) > 1 > max(above):
        factors = ", ".join(f"{n[f'tc_over_variance_{mode}']:.3g} in mode {mode}" for mode in MODES)
        return holds_if(f"T < T_c, the largest variance of the tokens times {factors}", number, example)
    return fails(number, example)


def measure_every_bank_falls() -> Numbers:
    """Separated banks at 1.5 T_c on normal data and on data with one percent of tokens far away."""
    round_data = stretched(300, seed=1)
    outliers = 0.1 * normal(1000, 2, seed=2)
    outliers[990:, 0] += 10
    numbers: dict[str, float] = {}
    for name, z, start in (
        ("normal", round_data, kmeans(round_data, 2, generator=generator(0)).centers),
        ("outliers", outliers, torch.stack([outliers[:990].mean(0), outliers[990:].mean(0)])),
    ):
        for mode in MODES:
            T = 1.5 * float(critical_temperature(z, gradient=mode))
            end, _ = descend(_loss(z, T, mode), start, steps=300, lr=0.8)
            _, later = descend(_loss(z, T, mode), end, steps=100, lr=0.8)
            numbers[f"separation_{name}_{mode}"] = float(separation(end) / covariance(z).trace)
            numbers[f"still_falling_{name}_{mode}"] = (later[0] - later[-1]) / later[0]
    return numbers


def judge_every_bank_falls(n: Numbers) -> Verdict:
    """Holds if every bank ends merged, fails if one stands."""
    normal_left = max(n[f"separation_normal_{mode}"] for mode in MODES)
    left = min(n[f"separation_outliers_{mode}"] for mode in MODES)
    number = f"S(P) / trace C at 1.5 T_c: {tiny(normal_left)} on normal data, {left:.2g} with 1 % of outliers"
    if max(normal_left, left) < 1e-6:
        return holds(number)
    return fails(
        number,
        "990 tokens at 0 and 10 at distance 10: a prototype on each group stays where it is, in both modes. "
        "T_c says where the merged bank is stable, not where all others end",
    )


def measure_dead_codes() -> Numbers:
    """Prototypes that win no token after training on eight groups of tokens, K = 32."""
    z = blobs(400, centres=8, dim=4, seed=0)
    K = 32
    critical = float(critical_temperature(z))
    trace = float(covariance(z).trace)
    at_random = normal(K, 4, seed=1)
    at_kmeans = kmeans(z, K, generator=generator(1)).centers
    numbers: dict[str, float] = {"prototypes": K}
    for name, start, a in (
        ("random_0.05", at_random, 0.05),
        ("kmeans_0.5", at_kmeans, 0.5),
        ("kmeans_0.002", at_kmeans, 0.002),
    ):
        bank = train_bank(z, start, a * critical, steps=400)
        counts = usage(readout(z, bank, a * critical).indices, K).counts
        numbers[f"dead_{name}"] = int((counts == 0).sum())
        numbers[f"distinct_{name}"] = int(distinct_prototypes(bank, trace))
        numbers[f"paper_usage_{name}"] = float(soft_usage(z, bank, a * critical).paper_usage)
    return numbers


def judge_dead_codes(n: Numbers) -> Verdict:
    """Holds if no training leaves a prototype without tokens, fails if one does."""
    K = f"{n['prototypes']:.0f}"
    number = (
        f"{K} prototypes after training: from a random start at 0.05 T_c {n['dead_random_0.05']:.0f} win "
        "no token; from k-means "
        f"at 0.5 T_c {n['distinct_kmeans_0.5']:.0f} are distinct; from k-means at 0.002 T_c "
        f"{n['dead_kmeans_0.002']:.0f} are dead"
    )
    if not any(value for key, value in n.items() if key.startswith("dead_")):
        return holds(number)
    return fails(
        number,
        f"a positive q is no use: eight groups of tokens, K = {K}. In the bank merged at 0.5 T_c the "
        "paper's usage figure "
        f"reads {n['paper_usage_kmeans_0.5']:.0%}",
    )


def measure_usage_figure() -> Numbers:
    """The paper's figure beside hard usage: for a bank in one point, and for a bank of 128 in full and even use."""
    z = normal(2000, 8, seed=1)
    merged = z.mean(0).expand(64, 8).contiguous()
    tokens = 10 * torch.eye(128, dtype=F64).repeat(2, 1)
    perfect = 10 * torch.eye(128, dtype=F64)
    return {
        "paper_merged_64": float(soft_usage(z, merged, 1.0).paper_usage),
        "hard_merged_64": float(usage(readout(z, merged, 1.0).indices, 64).usage),
        "paper_perfect_128": float(soft_usage(tokens, perfect, 1.0).paper_usage),
        "hard_perfect_128": float(usage(readout(tokens, perfect, 1.0).indices, 128).usage),
    }


def judge_usage_figure(n: Numbers) -> Verdict:
    """Holds if the figure and hard usage agree on both banks to a tenth, else fails."""
    number = (
        f"64 prototypes in one point: the paper's figure {n['paper_merged_64']:.0%}, hard usage "
        f"{n['hard_merged_64']:.1%}; "
        f"128 codes in even use: {n['paper_perfect_128']:.0%} against {n['hard_perfect_128']:.0%}"
    )
    apart = max(abs(n["paper_merged_64"] - n["hard_merged_64"]), abs(n["paper_perfect_128"] - n["hard_perfect_128"]))
    if apart <= 0.1:
        return holds(number)
    return fails(
        number, "mean assignments of a merged bank are 1/K > 0.01 for K < 100, and for K > 100 not all can exceed 0.01"
    )


def measure_paper_temperatures() -> Numbers:
    """The paper's schedule, by plain descent: on two sets of unit-norm tokens, and on the first times 8."""
    loose, tight = (blobs(400, centres=20, dim=64, spread=spread, seed=4) for spread in (2.0, 0.3))
    unit, unit_tight = (z / z.norm(dim=-1, keepdim=True) for z in (loose, tight))
    numbers: dict[str, float] = {}
    for name, tokens in (("unit", unit), ("unit_tight", unit_tight), ("times_8", 8 * unit)):
        schedule = ExponentialSchedule(2.0, 0.3, tau=20)
        bank = kmeans(tokens, 20, generator=generator(0)).centers
        numbers[f"start_over_tc_{name}"] = 2.0 / float(critical_temperature(tokens))
        numbers[f"end_over_tc_{name}"] = 0.3 / float(critical_temperature(tokens))
        for epoch in range(40):
            bank, _ = descend(_loss(tokens, schedule.at(epoch), "full"), bank, steps=10, lr=8.0)
        numbers[f"distinct_{name}"] = int(distinct_prototypes(bank, covariance(tokens).trace))
    return numbers


def judge_paper_temperatures(n: Numbers) -> Verdict:
    """Holds if all banks keep their prototypes apart, holds if only the one that starts below T_c does, else fails."""
    texts = {"unit": "unit-norm tokens", "unit_tight": "in tighter groups", "times_8": "the first times 8"}
    number = "T / T_c and distinct prototypes, of 20 - " + "; ".join(
        f"{text}: {n[f'start_over_tc_{key}']:.2g} to {n[f'end_over_tc_{key}']:.2g}, {n[f'distinct_{key}']:.0f}"
        for key, text in texts.items()
    )
    apart = {key for key in texts if n[f"distinct_{key}"] == 20}
    if len(apart) == len(texts):
        return holds(number)
    example = (
        "unit-norm tokens, which is what sentence encoders give; what has merged stays merged when T falls below T_c"
    )
    if apart == {key for key in texts if n[f"start_over_tc_{key}"] < 1}:
        return holds_if("the data are so large that T = 2.0 lies below T_c", number, example)
    return fails(number, example)


CLAIMS = (
    Claim(
        "collapse-is-unstable",
        "The bank with all prototypes in one point is an unstable saddle of L_q.",
        "Sec. 2.2; Sec. 1",
        "holds if near-merged banks open at 0.98 and 1.02 T_c in both modes; holds if at 0.98 T_c alone",
        measure_saddle,
        judge_saddle,
    ),
    Claim(
        "above-tc-every-bank-merges",
        "Above T_c every bank falls into the merged one.",
        "theory notes, sec. 4",
        "holds if separated banks at 1.5 T_c end with S(P) below 1e-6 of trace C, on two data sets and in both modes",
        measure_every_bank_falls,
        judge_every_bank_falls,
    ),
    Claim(
        "no-dead-codes",
        "Full utilisation by construction: since every q > 0, all codes remain active.",
        "Prop. 4; Remark 3",
        "holds if no training leaves a prototype that wins no token",
        measure_dead_codes,
        judge_dead_codes,
    ),
    Claim(
        "full-usage-from-epoch-1",
        "Utilisation (share of mean assignments above 0.01) of 100 % from epoch 1 shows that no code is dead.",
        "Table 5; Sec. 7.4",
        "holds if the figure is within 10 points of hard usage on a merged bank and on one in even use",
        measure_usage_figure,
        judge_usage_figure,
    ),
    Claim(
        "paper-temperatures-spread",
        "T from 2.0 to 0.3: a high first temperature lets the prototypes spread.",
        "Sec. 3.4 (ii); Sec. 7.1",
        "holds if all prototypes stay distinct on three data sets; holds if exactly where 2.0 < T_c",
        measure_paper_temperatures,
        judge_paper_temperatures,
    ),
)
