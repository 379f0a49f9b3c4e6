"""Table 5: codes for CIFAR-10. Utilisation is counted as the paper counts it, and set beside figures that can fail."""

from __future__ import annotations

from functools import partial
from statistics import mean

from ddcl.experiments.claims.ledger import Claim, Numbers, Verdict
from ddcl.experiments.claims.tables.evidence import evidence, source_of
from ddcl.experiments.claims.tables.rules import FIGURE_RULE, Part, close, conclude, exceeds, figure, recorded

STUDY = "vq"
PAPER, DEFAULT, HARD = "the paper's recipe", "ddcl, default", "straight-through VQ"
HARD_ROWS = {16: (0.812, 6), 64: (0.188, 44)}
"""The paper's VQ-VAE: utilisation in epoch 1, epochs to 100 %."""


def measure_soft(K: int) -> Numbers:
    """The paper's usage figure of its recipe, and what the codes are good for."""
    record, case = evidence(STUDY), f"K = {K}"
    numbers = {"K": float(K), "paper_utilisation": 1.0}
    for key, method in (("recipe", PAPER), ("default", DEFAULT)):
        for metric in ("paper_usage", "first_usage", "usage", "perplexity", "mse"):
            numbers |= recorded(f"{key}_{metric}", record.values(case, method, metric))
    return numbers | recorded("hard_perplexity", record.values(case, HARD, "perplexity"))


def judge_soft(n: Numbers) -> Verdict:
    """Holds if the figure reads 100 % and the codes are in use, holds if the figure alone does."""
    K, usage, even = n["K"], figure(n, "recipe_usage"), figure(n, "recipe_perplexity")
    reads = n["recipe_paper_usage"] >= 1.0 and n["recipe_first_usage"] >= 1.0
    parts = [
        Part("the paper's own figure reads 100 %", reads),
        Part("the codes are in use at least as evenly as a VQ-VAE's", not exceeds(figure(n, "hard_perplexity"), even)),
    ]
    return conclude(
        parts,
        f"codes taken in epoch 1: {n['recipe_first_usage']:.0%}; at the end the paper's figure "
        f"{n['recipe_paper_usage']:.0%}, hard usage {usage.mean:.0%}, perplexity {even.mean:.1f} of {K:.0f} "
        f"(straight-through VQ {n['hard_perplexity']:.1f}) and hard MSE {n['recipe_mse']:.4f}; by default "
        f"{n['default_paper_usage']:.0%}, {n['default_usage']:.0%}, {n['default_perplexity']:.1f} and "
        f"{n['default_mse']:.4f}; {even.runs:.0f} seeds",
    )


def measure_hard(K: int) -> Numbers:
    """Straight-through VQ by the paper's definition: codes that more than a hundredth of the tokens take."""
    record, (first, when) = evidence(STUDY), HARD_ROWS[K]
    series = [list(one.epochs["frequent"]) for one in record.of(f"K = {K}", HARD)]
    epochs = min(map(len, series))
    numbers = {"paper_first": first, "paper_epochs": float(when), "epochs": float(epochs)}
    numbers |= recorded("first", [one[0] for one in series])
    numbers |= {"last": mean(one[epochs - 1] for one in series)}
    numbers["all_in_time"] = mean(float(max(one[:when]) >= 1.0) for one in series)
    return numbers | {"taken": mean(record.values(f"K = {K}", HARD, "first_usage"))}


def judge_hard(n: Numbers) -> Verdict:
    """Holds if utilisation in epoch 1 is reproduced, and 100 % is reached in all runs by the epoch the paper names."""
    first, when = figure(n, "first"), n["paper_epochs"]
    # runs that end before can still show that it was reached, not that it was not
    full = True if n["all_in_time"] == 1 else (False if n["epochs"] >= when else None)
    parts = [
        Part(f"it is about {n['paper_first']:.1%} in epoch 1", close(first, n["paper_first"])),
        Part(f"it reaches 100 % by epoch {when:.0f}", full),
    ]
    return conclude(
        parts,
        f"codes with more than 1 % of the tokens: {first.mean:.0%} ± {first.sd:.0%} in epoch 1, {n['last']:.0%} in "
        f"epoch {n['epochs']:.0f}, the last; all of them by epoch {min(when, n['epochs']):.0f} in "
        f"{n['all_in_time']:.0%} of {first.runs:.0f} runs (codes taken at all in epoch 1: {n['taken']:.0%})",
    )


def _soft(K: int) -> Claim:
    return Claim(
        f"table-5-ddcl-{K}",
        f"CIFAR-10, the layer with {K} codes: utilisation 100 % from epoch 1 on.",
        "Table 5; Sec. 7.4",
        "holds if every code is taken in epoch 1, the paper's figure is 100 % at the end, and hard perplexity is not "
        "below that of straight-through VQ; holds if the first alone",
        partial(measure_soft, K),
        judge_soft,
        source_of(STUDY),
    )


def _hard(K: int) -> Claim:
    first, when = HARD_ROWS[K]
    return Claim(
        f"table-5-vq-{K}",
        f"CIFAR-10, a VQ-VAE with {K} codes: utilisation {first:.1%} in epoch 1, 100 % after {when} epochs.",
        "Table 5; Sec. 7.4",
        "holds if the share of codes with more than 0.01 of the tokens is reproduced in epoch 1 and 1 by that epoch in "
        f"all runs; {FIGURE_RULE}",
        partial(measure_hard, K),
        judge_hard,
        source_of(STUDY),
    )


CLAIMS = (_soft(16), _soft(64), _hard(16), _hard(64))
