"""What the numbers of the orbital regimes say."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, stdev

import numpy as np

from ddcl.experiments.reproduce.orbits import REGIMES
from ddcl.experiments.reproduce.study import Done
from ddcl.experiments.reproduce.summary import average, cases, methods, values
from ddcl.rivals.clusters import cluster_scores

PAPER_MARGIN = 0.772 - 0.756
"""ACC of the paper's bank, at its best epoch, over k-means."""
SYNTHETIC = "synthetic"
KMEANS, PAPER, DEFAULT = "k-means, m = 5", "the paper's recipe", "default"
TOLD_APART = 0.9
"""A regime counts as found from this recall on."""


def notes(finished: Sequence[Done]) -> list[str]:
    """Margins over k-means, what is not told apart, how the run went, whether banks collapsed, whether L = R + V."""
    return [
        *_margins(finished),
        _chance(),
        *_lost(finished),
        *_dynamics(finished),
        *_collapse(finished),
        *_identity(finished),
    ]


def _margins(finished: Sequence[Done]) -> list[str]:
    """Against the paper's margin, on the objects as it describes them."""
    said = []
    theirs = values(finished, SYNTHETIC, KMEANS, "acc")
    for method, metric, when in (
        (PAPER, "acc_best", "best epoch"),
        (PAPER, "acc", "last epoch"),
        (DEFAULT, "acc", "last epoch"),
    ):
        ours = values(finished, SYNTHETIC, method, metric)
        if not ours or len(ours) != len(theirs):
            continue
        gains = [a - b for a, b in zip(ours, theirs, strict=True)]
        spread = f" ± {stdev(gains):.4f} over {len(gains)} seeds" if len(gains) > 1 else ""
        verdict = "met" if mean(gains) >= PAPER_MARGIN else "not met"
        said.append(
            f"{SYNTHETIC}, {method}, {when}: ACC {mean(gains):+.4f}{spread} against {KMEANS}; the paper's margin of "
            f"{PAPER_MARGIN:+.3f} is {verdict}"
        )
    return said


def _chance() -> str:
    """Two regimes exact, the other two cut in half by something else: what that scores."""
    labels = np.repeat(np.arange(4), 1000)
    halves = np.where(labels < 2, np.arange(len(labels)) % 2, labels)
    scores = cluster_scores(halves, labels)
    shown = ", ".join(f"{name.upper()} {scores[name]:.3f}" for name in ("acc", "nmi", "ari"))
    return f"two regimes found exactly and the other two mixed evenly in two clusters would score {shown}"


def _lost(finished: Sequence[Done]) -> list[str]:
    """Regimes that are not found, one sentence for all methods of a case that miss the same."""
    said = []
    for case in cases(finished):
        missed: dict[tuple[str, ...], list[str]] = {}
        for method in methods([one for one in finished if one.case == case]):
            recall = {name: average(finished, case, method, f"recall_{name}") for name in REGIMES}
            lost = tuple(name for name, share in recall.items() if not share >= TOLD_APART)
            missed.setdefault(lost, []).append(method)
        for lost, by in missed.items():
            found = f"recall below {TOLD_APART} for {', '.join(lost)}" if lost else "all four regimes found"
            said.append(f"{case}: {found} ({'; '.join(by)})")
    return said


def _dynamics(finished: Sequence[Done]) -> list[str]:
    """The paper's account of its run: V rises for 50 epochs, S(P) grows, H(Q) falls from uniform assignments."""
    of_paper = [one for one in finished if one.case == SYNTHETIC and one.method == PAPER and one.epochs]
    if not of_paper:
        return []

    def at(name: str, epoch: float) -> float:
        """Mean over seeds at the last epoch kept up to this one."""
        kept = of_paper[0].epochs["epoch"]
        where = max(i for i, one in enumerate(kept) if one <= epoch)
        return mean(float(one.epochs[name][where]) for one in of_paper)

    first, last = (of_paper[0].epochs["epoch"][i] for i in (0, -1))
    shown = [
        f"{label} {at(name, first):.3g}, {at(name, first + 50):.3g}, {at(name, last):.3g} ({told})"
        for name, label, told in (
            ("variance", "V", "the paper: rises, then decays"),
            ("separation", "S(P)", "grows, then settles"),
            ("relative_entropy", "H / ln K", "falls from 1"),
        )
    ]
    return [f"{SYNTHETIC}, {PAPER}, at the first epoch, 50 epochs later and at the last: {', '.join(shown)}"]


def _collapse(finished: Sequence[Done]) -> list[str]:
    said = []
    for case in cases(finished):
        hottest, distinct = (values(finished, case, PAPER, name) for name in ("hottest", "distinct"))
        if hottest:
            merged = sum(count < len(REGIMES) for count in distinct)
            said.append(
                f"{case}, {PAPER}: T reaches {max(hottest):.2f} T_c at most; prototypes merged in {merged} of "
                f"{len(distinct)} runs"
            )
    return said


def _identity(finished: Sequence[Done]) -> list[str]:
    trained = [one for one in finished if "epochs" in one.metrics]
    if not trained:
        return []
    count, exact, paper = (
        sum(int(one.metrics[name]) for one in trained) for name in ("epochs", "violations", "paper_violations")
    )
    return [
        f"L = R + V was violated in {exact} of {count} epochs measured, the paper's L = min d + V in {paper}, "
        "at a tolerance of 0.01 % of L"
    ]
