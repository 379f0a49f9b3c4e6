"""What the numbers of the ablation say."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import mean

from ddcl.experiments.reproduce.study import Done
from ddcl.experiments.reproduce.summary import cases

NEAR_ZERO = 0.01
"""Share of its start below which S(P) counts as collapsed."""
SOON = 50
"""Epochs within which the paper sees it collapse at equal rates."""
STABLE = 0.1
"""Ratios up to here are the paper's stable regime."""
SLACK = 0.01
"""S(P) may fall by this share from one measurement to the next and still count as growing."""


def notes(finished: Sequence[Done]) -> list[str]:
    """The paper's three statements for each set and temperature: collapse at 1, growth up to 0.1, ACC by ratio."""
    said = []
    for case in cases(finished):
        here = [one for one in finished if one.case == case]
        for arm in dict.fromkeys(str(one.run["settings"]["arm"]) for one in here):
            of_arm = [one for one in here if one.run["settings"]["arm"] == arm]
            said += [f"{case}, {arm}: {sentence}" for sentence in (_equal(of_arm), _slow(of_arm), _accuracy(of_arm))]
    return [sentence for sentence in said if not sentence.endswith(": ")]


def _equal(of_arm: Sequence[Done]) -> str:
    equal = [one for one in of_arm if one.run["settings"]["ratio"] == 1.0]
    if not equal:
        return ""
    soon, late = (
        mean(shares)
        for shares in zip(*((share_of_start(one, SOON), share_of_start(one)) for one in equal), strict=True)
    )
    when = max(epoch for epoch in equal[0].epochs["epoch"] if epoch <= SOON)
    verdict = "near zero" if soon < NEAR_ZERO else "not near zero"
    return (
        f"at equal rates S(P) is {soon:.3g} of its start after {when:g} epochs ({verdict}; the paper: near zero), "
        f"{late:.3g} at the end"
    )


def _slow(of_arm: Sequence[Done]) -> str:
    slow = [one for one in of_arm if one.run["settings"]["ratio"] <= STABLE]
    if not slow:
        return ""
    growing = sum(grows(one.epochs["separation"]) for one in slow)
    higher = sum(share_of_start(one) > 1 for one in slow)
    return (
        f"up to a ratio of {STABLE} S(P) grows throughout in {growing} of {len(slow)} runs and ends above its start in "
        f"{higher} (the paper: all)"
    )


def _accuracy(of_arm: Sequence[Done]) -> str:
    ratios = sorted({float(one.run["settings"]["ratio"]) for one in of_arm})
    shown = []
    for ratio in ratios:
        here = [one for one in of_arm if one.run["settings"]["ratio"] == ratio]
        top, last = (mean(one.metrics[name] for one in here) for name in ("acc_best", "acc"))
        shown.append(f"{ratio:g}: {top:.3f} / {last:.3f}")
    start = mean(one.metrics["acc_start"] for one in of_arm)
    return f"ACC by ratio, best epoch / last: {', '.join(shown)}; its start, k-means: {start:.3f}"


def share_of_start(one: Done, epoch: int | None = None) -> float:
    """S(P) over its start, at the last epoch measured, or the last one up to ``epoch``."""
    found = [s for s, e in zip(one.epochs["separation"], one.epochs["epoch"], strict=True) if not epoch or e <= epoch]
    return float(found[-1]) / one.metrics["separation_start"]


def grows(series: Sequence[float]) -> bool:
    """Whether a series never falls by more than the slack from one measurement to the next."""
    return all(after >= (1 - SLACK) * before for before, after in pairwise(series))
