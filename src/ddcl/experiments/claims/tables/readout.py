"""Table 4: texts through a frozen encoder. Another encoder than the paper's, so what is judged is how rows compare."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ddcl.experiments.claims.ledger import Claim, Numbers, Verdict
from ddcl.experiments.claims.tables.evidence import evidence, source_of
from ddcl.experiments.claims.tables.rules import (
    DISTANCE_RULE,
    Part,
    above,
    across,
    conclude,
    conclude_either,
    figure,
    places_of,
    recorded,
)

STUDY = "readout"
SST2, IMDB, NEWSGROUPS = "SST-2 (K = 2), ", "IMDB (K = 4), ", "20 Newsgroups (K = 20), "
CLS_LOGISTIC, MEAN_LOGISTIC = "CLS + logistic regression", "mean pooling + logistic regression"
CLS_KMEANS, MEAN_KMEANS = "k-means on CLS", "k-means on mean pooling"
PAPER, DEFAULT = "the paper's recipe", "default"
CHANCE, NOTHING = 0.05, 0.05
"""How far from a half ACC on two classes may be, and how large NMI, for clusters that tell nothing of the classes."""
TWICE = 2.0
"""A shortfall against k-means counts as the paper's up to twice its size."""


def measure_head(prefix: str, clusters: str) -> Numbers:
    """Accuracy on test texts: of the paper's recipe and its baselines on CLS, of the default and its own on means.

    ``clusters`` is the figure for k-means: four clusters cannot be matched to two classes, so ACC fits two alone.
    """
    record, numbers = evidence(STUDY), dict[str, float]()
    for encoder in record.places(prefix):
        for key, method, metric in (
            ("recipe", PAPER, "test_accuracy_best"),
            ("logistic", CLS_LOGISTIC, "test_accuracy"),
            ("kmeans", CLS_KMEANS, clusters),
            ("default", DEFAULT, "test_accuracy"),
            ("mean_logistic", MEAN_LOGISTIC, "test_accuracy"),
            ("mean_kmeans", MEAN_KMEANS, clusters),
        ):
            numbers |= recorded(f"{encoder}/{key}", record.values(f"{prefix}{encoder}", method, metric))
    return numbers


def _head_number(n: Numbers) -> str:
    """All accuracies, encoder by encoder."""
    return "; ".join(
        f"{encoder}: the paper's recipe {figure(n, f'{encoder}/recipe')}, logistic regression "
        f"{n[f'{encoder}/logistic']:.3f}, k-means {n[f'{encoder}/kmeans']:.3f}; default "
        f"{figure(n, f'{encoder}/default')} on mean pooling, where these have {n[f'{encoder}/mean_logistic']:.3f} and "
        f"{n[f'{encoder}/mean_kmeans']:.3f}"
        for encoder in places_of(n)
    )


def _pairs_above(n: Numbers, first: str, second: str, says: str, paper: float | None = None) -> list[Part]:
    pairs = {place: (figure(n, f"{place}/{first}"), figure(n, f"{place}/{second}")) for place in places_of(n)}
    return above(pairs, says, paper)


def judge_logistic(n: Numbers) -> Verdict:
    """Holds if logistic regression is above k-means on the same vectors, by at least half of the paper's distance."""
    return conclude(_pairs_above(n, "logistic", "kmeans", "it is above k-means", 0.342), _head_number(n))


def judge_head(over_logistic: float | None, over_kmeans: float | None, n: Numbers) -> Verdict:
    """Holds if the paper's recipe is above both baselines on its vectors; holds if the default is above them on its."""
    recipe, default = (
        _pairs_above(n, way, f"{base}logistic", "it is above logistic regression", over_logistic)
        + _pairs_above(n, way, f"{base}kmeans", "it is above k-means", over_kmeans)
        for way, base in (("recipe", ""), ("default", "mean_"))
    )
    return conclude_either(recipe, default, _head_number(n))


def measure_chance() -> Numbers:
    """k-means on CLS with two clusters, on the training texts."""
    record, numbers = evidence(STUDY), {"paper_acc": 0.519, "paper_nmi": 0.003}
    for encoder in record.places(SST2):
        for metric in ("acc", "nmi", "ari"):
            numbers |= recorded(f"{encoder}/{metric}", record.values(f"{SST2}{encoder}", CLS_KMEANS, metric))
    return numbers


def judge_chance(n: Numbers) -> Verdict:
    """Holds if ACC is within 0.05 of a half and NMI below 0.05."""
    none = {
        encoder: abs(n[f"{encoder}/acc"] - 0.5) <= CHANCE and n[f"{encoder}/nmi"] <= NOTHING for encoder in places_of(n)
    }
    shown = "; ".join(
        f"{encoder}: ACC {n[f'{encoder}/acc']:.3f}, NMI {n[f'{encoder}/nmi']:.3f}, ARI {n[f'{encoder}/ari']:.3f}"
        for encoder in places_of(n)
    )
    return conclude(across("it finds next to nothing of the two classes", none), shown)


def measure_clusters() -> Numbers:
    """ACC and NMI on 20 Newsgroups: of the paper's recipe and k-means on CLS, of the default and k-means on means."""
    record, numbers = evidence(STUDY), dict[str, float]()
    for encoder in record.places(NEWSGROUPS):
        for metric in ("acc", "nmi"):
            for key, method, when in (
                ("recipe", PAPER, "_best"),
                ("kmeans", CLS_KMEANS, ""),
                ("default", DEFAULT, ""),
                ("mean_kmeans", MEAN_KMEANS, ""),
            ):
                values = record.values(f"{NEWSGROUPS}{encoder}", method, f"{metric}{when}")
                numbers |= recorded(f"{encoder}/{key}_{metric}", values)
    return numbers


def _clusters_number(n: Numbers) -> str:
    def shown(encoder: str, key: str) -> str:
        return f"{n[f'{encoder}/{key}_acc']:.3f} / {n[f'{encoder}/{key}_nmi']:.3f}"

    return "ACC / NMI - " + "; ".join(
        f"{encoder}: the paper's recipe {shown(encoder, 'recipe')}, k-means {shown(encoder, 'kmeans')}; on mean "
        f"pooling default {shown(encoder, 'default')}, k-means {shown(encoder, 'mean_kmeans')}"
        for encoder in places_of(n)
    )


def judge_kmeans_clusters(n: Numbers) -> Verdict:
    """Holds if k-means is above the paper's recipe in ACC and NMI, by at least half of the paper's distances."""
    parts = _pairs_above(n, "kmeans_acc", "recipe_acc", "it is above the layer in ACC", 0.021)
    parts += _pairs_above(n, "kmeans_nmi", "recipe_nmi", "it is above the layer in NMI", 0.037)
    return conclude(parts, _clusters_number(n))


def judge_clusters(n: Numbers) -> Verdict:
    """Holds if the paper's recipe is at most twice as far below k-means as in the paper; holds if the default is."""

    def near(way: str, base: str) -> list[Part]:
        return [
            part
            for metric, short in (("acc", 0.021), ("nmi", 0.037))
            for part in across(
                f"it comes near to k-means in {metric.upper()}",
                {
                    place: n[f"{place}/{way}_{metric}"] - n[f"{place}/{base}_{metric}"] >= -TWICE * short
                    for place in places_of(n)
                },
            )
        ]

    return conclude_either(near("recipe", "kmeans"), near("default", "mean_kmeans"), _clusters_number(n))


_HEAD_RULE = (
    "holds if the paper's recipe is above logistic regression and k-means on its vectors, test texts; holds if the "
    f"default is above them on its vectors; {DISTANCE_RULE}"
)


def _claim(
    name: str, says: str, rule: str, measure: Callable[[], Numbers], judge: Callable[[Numbers], Verdict]
) -> Claim:
    return Claim(f"table-4-{name}", says, "Table 4; Sec. 7.3", rule, measure, judge, source_of(STUDY))


CLAIMS = (
    _claim(
        "sst2-logistic",
        "SST-2, logistic regression on CLS: ACC 0.861, which is 0.342 above k-means.",
        f"holds if it is above k-means on the same vectors, test texts; {DISTANCE_RULE}",
        partial(measure_head, SST2, "acc_test"),
        judge_logistic,
    ),
    _claim(
        "sst2-kmeans",
        "SST-2, k-means on CLS: ACC 0.519, NMI 0.003, ARI 0.001, next to nothing.",
        "holds if for every encoder in the record ACC is within 0.05 of a half and NMI at most 0.05",
        measure_chance,
        judge_chance,
    ),
    _claim(
        "sst2-ddcl",
        "SST-2, the layer: ACC 0.867, NMI 0.435, ARI 0.538; 0.006 above logistic regression, 0.348 above k-means.",
        _HEAD_RULE,
        partial(measure_head, SST2, "acc_test"),
        partial(judge_head, 0.006, 0.348),
    ),
    _claim(
        "imdb-ddcl",
        "IMDB, the layer with four prototypes: ACC 0.913, NMI 0.472, ARI 0.540; its baselines are left empty.",
        f"{_HEAD_RULE}; k-means counts by purity; of distances the paper states none",
        partial(measure_head, IMDB, "purity_test"),
        partial(judge_head, None, None),
    ),
    _claim(
        "20ng-kmeans",
        "20 Newsgroups, k-means on CLS: ACC 0.196, NMI 0.189, ARI 0.065; 0.021 and 0.037 above the layer.",
        f"holds if it is above the paper's recipe on the same vectors, best epoch; {DISTANCE_RULE}",
        measure_clusters,
        judge_kmeans_clusters,
    ),
    _claim(
        "20ng-ddcl",
        "20 Newsgroups, the layer: ACC 0.175, NMI 0.152, ARI 0.039 in bold, 0.021 and 0.037 below k-means.",
        "holds if the paper's recipe at its best epoch is at most twice as far below k-means on the same vectors, for "
        "every encoder in the record (the paper's is not to be had here); holds if the default is",
        measure_clusters,
        judge_clusters,
    ),
)
