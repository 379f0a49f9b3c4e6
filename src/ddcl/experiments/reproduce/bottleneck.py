"""The paper's future work: does the use of codes in the first epoch decide the reconstruction at the end?

The same quantisers from different starts: random or by k-means, with dead codes left dead or put to work. If early use
were what matters, a quantiser that begins with all of its codes would end better than one that does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from ddcl.experiments.reproduce.study import Column, Done, Run, Study
from ddcl.experiments.reproduce.summary import average, cases, methods
from ddcl.experiments.reproduce.vq.settings import Settings
from ddcl.experiments.reproduce.vq.study import PAPER, case_name, execute

SIZES = (64, 512)
STARTS = (
    "straight-through VQ",
    "straight-through VQ, k-means start",
    "EMA, random start",
    "EMA, k-means start",
    "EMA, k-means start, restarts",
    PAPER,
    "ddcl, random start, nothing revived",
    "ddcl, random start",
    "ddcl, k-means start, nothing revived",
    "ddcl, default",
)


def runs(quick: bool, seeds: int) -> list[Run]:
    """Every start at two sizes; quick: two starts of one quantiser, a thousand pictures."""
    if quick:
        small = {"epochs": 2, "batch": 64, "width": 32, "images": 1024}
        pair = ("ddcl, random start, nothing revived", "ddcl, default")
        return [
            Run(case_name(16), name, seed, Settings(quantiser=name, num_codes=16, **small))  # type: ignore[arg-type]
            for name in pair
            for seed in range(seeds)
        ]
    return [
        Run(case_name(size), name, seed, Settings(quantiser=name, num_codes=size))
        for seed in range(seeds)
        for size in SIZES
        for name in STARTS
    ]


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Kendall's: the share of pairs in the same order minus the share in opposite order; ties count for neither.

    Example:
        >>> rank_correlation([1, 2, 3], [10, 20, 15])
        0.3333333333333333
    """
    signs = [
        ((a > b) - (a < b)) * ((c > d) - (c < d))
        for (a, c), (b, d) in combinations(list(zip(first, second, strict=True)), 2)
    ]
    return sum(signs) / len(signs) if signs else 0.0


def notes(finished: Sequence[Done]) -> list[str]:
    """How early use and late error go together, and where they do not."""
    said = []
    for case in cases(finished):
        here = [one for one in finished if one.case == case]
        early = [one.metrics["first_usage"] for one in here]
        late = [one.metrics["mse"] for one in here]
        said.append(
            f"{case}: over {len(here)} runs the rank correlation of hard usage in epoch 1 with the final hard MSE is "
            f"{rank_correlation(early, late):+.2f} (-1: the more codes at first, the better at last)."
        )
        full = {m: average(here, case, m, "mse") for m in methods(here) if _all_at_first(here, case, m)}
        if len(full) > 1:
            best, worst = min(full, key=full.__getitem__), max(full, key=full.__getitem__)
            said.append(
                f"{case}: among those that used at least 99 % of their codes in epoch 1 the hard MSE runs from "
                f"{full[best] * 1e3:.2f} ({best}) to {full[worst] * 1e3:.2f} ({worst})."
            )
    return said


def _all_at_first(finished: Sequence[Done], case: str, method: str) -> bool:
    return average(finished, case, method, "first_usage") >= 0.99


STUDY = Study(
    name="bottleneck",
    title="Use in the first epoch against reconstruction at the end",
    shows="future work, section 8.7",
    runs=runs,
    execute=execute,
    columns=(
        Column("first_usage", "hard usage in epoch 1, %", 0, 100),
        Column("mse", "hard MSE at the end, 1e-3", 3, 1e3),
        Column("psnr", "PSNR, dB", 2),
        Column("usage", "hard usage at the end, %", 0, 100),
        Column("perplexity", "perplexity at the end", 1),
    ),
    seeds=3,
    needs="ddcl[rivals], CIFAR-10, and for more than --quick a GPU",
    notes=notes,
)
