"""What the numbers of the readout study say: margins against the paper's own, and whether its recipe keeps a bank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean

from ddcl.experiments.reproduce.study import Done
from ddcl.experiments.reproduce.summary import average, cases

CLS_LOGISTIC, MEAN_LOGISTIC = "CLS + logistic regression", "mean pooling + logistic regression"
CLS_KMEANS, MEAN_KMEANS = "k-means on CLS", "k-means on mean pooling"
PAPER, DEFAULT = "the paper's recipe", "default"
OVER_LOGISTIC, OVER_KMEANS = 0.6, 34.8
"""Points of accuracy by which the paper's SST-2 is above its own baselines on CLS."""
OVER_CLUSTERS = 2.0
"""Points of ACC and NMI by which the default is to be above k-means on the same vectors."""


def notes(finished: Sequence[Done]) -> list[str]:
    """For each case its targets, met or missed, then what became of the paper's bank."""
    found = []
    for case in cases(finished):
        here = [one for one in finished if one.case == case]
        supervised = bool(here[0].run["settings"]["supervised"])
        sentences = [*(_head(here, case) if supervised else _clusters(here, case)), _bank(here)]
        found += [f"{case}: {sentence}" for sentence in sentences if sentence]
    return found


def _head(here: Sequence[Done], case: str) -> list[str]:
    ours = average(here, case, DEFAULT, "test_accuracy")
    if math.isnan(ours):
        return []
    logistic, averaged = (average(here, case, name, "test_accuracy") for name in (CLS_LOGISTIC, MEAN_LOGISTIC))
    clusters = average(here, case, CLS_KMEANS, "acc_test")
    pure = average(here, case, CLS_KMEANS, "purity_test")
    # of one accuracy on so many texts, whatever was learnt
    error = 100 * math.sqrt(ours * (1 - ours) / here[0].metrics["test_texts"])
    found = []
    if not math.isnan(logistic):
        found.append(
            f"default head {ours:.3f} on test texts, CLS + logistic regression {logistic:.3f}: "
            f"{_verdict(100 * (ours - logistic), OVER_LOGISTIC)}"
        )
    if not math.isnan(clusters):
        found.append(f"over k-means on CLS, ACC {clusters:.3f}: {_over_kmeans(ours, clusters)}")
        if abs(pure - clusters) > 5e-4:
            # ACC leaves clusters beyond the number of classes unmatched, which is no fault of k-means
            found.append(f"over the purity of k-means on CLS, {pure:.3f}: {_over_kmeans(ours, pure)}")
    if not math.isnan(averaged):
        found.append(
            f"against mean pooling + logistic regression, {averaged:.3f}, on the same vectors: "
            f"{100 * (ours - averaged):+.1f} points, with a standard error of {error:.1f} for so many test texts"
        )
    return found


def _clusters(here: Sequence[Done], case: str) -> list[str]:
    found = []
    for metric, name in (("acc", "ACC"), ("nmi", "NMI")):
        ours, theirs = (average(here, case, method, metric) for method in (DEFAULT, MEAN_KMEANS))
        if not math.isnan(ours + theirs):
            margin = _verdict(100 * (ours - theirs), OVER_CLUSTERS)
            found.append(f"default {name} {ours:.3f}, k-means on the same mean pooling {theirs:.3f}: {margin}")
    return found


def _bank(here: Sequence[Done]) -> str:
    runs = [one for one in here if one.method == PAPER]
    if not runs:
        return ""
    last = {
        name: mean(one.metrics[name] for one in runs) for name in ("distinct", "relative_entropy", "relative_trace")
    }
    first = mean(one.epochs["relative_temperature"][0] for one in runs)
    final = mean(one.metrics["relative_temperature"] for one in runs)
    epoch, prototypes = runs[0].epochs["epoch"][0], int(runs[0].run["settings"]["prototypes"])
    troubles = []
    if last["relative_entropy"] > 0.95:
        troubles.append("its assignments end uniform")
    if last["distinct"] < 0.9 * prototypes:
        troubles.append("its prototypes merge")
    if last["relative_trace"] < 0.01:
        troubles.append("its projection shrinks the tokens")
    return (
        f"the paper's recipe is at {first:.3g} T_c after epoch {epoch:g} and at {final:.3g} T_c at the end, with "
        f"{last['distinct']:.1f} of {prototypes} prototypes distinct, H / ln K {last['relative_entropy']:.2f} and "
        f"{last['relative_trace']:.2g} of the tokens' variance left: {' and '.join(troubles) or 'the bank holds'}"
    )


def _over_kmeans(ours: float, theirs: float) -> str:
    needed = theirs + OVER_KMEANS / 100
    return _verdict(100 * (ours - theirs), OVER_KMEANS) + (f"; it would take {needed:.3f}" if ours < needed else "")


def _verdict(margin: float, target: float) -> str:
    return f"{margin:+.1f} points (target {target:+.1f}: {'met' if margin >= target else 'missed'})"
