"""Table 6: two levels over the tokens of 20 Newsgroups; as with Table 4, judged by how rows compare."""

from __future__ import annotations

from collections.abc import Callable

from ddcl.experiments.claims.ledger import Claim, Numbers, Verdict
from ddcl.experiments.claims.tables.evidence import evidence, source_of
from ddcl.experiments.claims.tables.rules import (
    DISTANCE_RULE,
    Part,
    above,
    across,
    conclude,
    figure,
    places_of,
    recorded,
)

STUDY = "hierarchy"
CASE = "20 Newsgroups, "
METHODS = {
    "cls": "k-means on CLS",
    "mean": "k-means on mean pooling",
    "first": "the paper's recipe, ratio 0.1, barrier 0.5",
    "second": "the paper's recipe, ratio 0.05, barrier 1.5",
    "default": "default: neighbours between the levels",
}
UNIFORM = 0.95
"""H / ln K from which assignments count as near uniform."""


def measure() -> Numbers:
    """ACC and NMI of all rows, and how even the documents' assignments are by the paper's recipe."""
    record, numbers = evidence(STUDY), dict[str, float]()
    for encoder in record.places(CASE):
        for key, method in METHODS.items():
            for metric in ("acc", "nmi"):
                values = record.values(f"{CASE}{encoder}", method, metric)
                numbers |= recorded(f"{encoder}/{key}_{metric}", values)
        for key in ("first", "second"):
            values = record.values(f"{CASE}{encoder}", METHODS[key], "upper_relative_entropy")
            numbers |= recorded(f"{encoder}/{key}_entropy", values)
    return numbers


def _above(n: Numbers, first: str, second: str, says: str, paper: float) -> list[Part]:
    pairs = {place: (figure(n, f"{place}/{first}"), figure(n, f"{place}/{second}")) for place in places_of(n)}
    return above(pairs, says, paper)


def _number(n: Numbers) -> str:
    def shown(encoder: str, key: str) -> str:
        return f"{n[f'{encoder}/{key}_acc']:.3f} / {n[f'{encoder}/{key}_nmi']:.3f}"

    return "ACC / NMI - " + "; ".join(
        f"{encoder}: k-means {shown(encoder, 'cls')} on CLS, {shown(encoder, 'mean')} on means; the paper's recipe "
        f"{shown(encoder, 'first')} and {shown(encoder, 'second')}, H / ln K {n[f'{encoder}/first_entropy']:.3f} and "
        f"{n[f'{encoder}/second_entropy']:.3f}; default {shown(encoder, 'default')}"
        for encoder in places_of(n)
    )


def _uniform(n: Numbers, key: str) -> list[Part]:
    even = {place: n[f"{place}/{key}_entropy"] >= UNIFORM for place in places_of(n)}
    return across("its documents are assigned almost evenly", even)


def judge_cls(n: Numbers) -> Verdict:
    """Holds if mean pooling is above it in ACC and NMI."""
    parts = _above(n, "mean_acc", "cls_acc", "mean pooling is above it in ACC", 0.151)
    return conclude(parts + _above(n, "mean_nmi", "cls_nmi", "mean pooling is above it in NMI", 0.166), _number(n))


def judge_mean(n: Numbers) -> Verdict:
    """Holds if it is above the better of the paper's two rows in ACC and NMI."""
    parts = _above(n, "mean_acc", "second_acc", "it is above the two levels in ACC", 0.218)
    return conclude(parts + _above(n, "mean_nmi", "second_nmi", "it is above the two levels in NMI", 0.284), _number(n))


def judge_first(n: Numbers) -> Verdict:
    """Holds if both k-means are above it in ACC, and its upper bank is near uniform."""
    parts = _above(n, "mean_acc", "first_acc", "k-means on mean pooling is above it", 0.239)
    parts += _above(n, "cls_acc", "first_acc", "k-means on CLS is above it", 0.088)
    return conclude(parts + _uniform(n, "first"), _number(n))


def judge_second(n: Numbers) -> Verdict:
    """Holds if it is above the other setting and below both k-means in ACC, and its upper bank is near uniform."""
    parts = _above(n, "second_acc", "first_acc", "it is above the other setting", 0.021)
    parts += _above(n, "mean_acc", "second_acc", "k-means on mean pooling is above it", 0.218)
    parts += _above(n, "cls_acc", "second_acc", "k-means on CLS is above it", 0.067)
    return conclude(parts + _uniform(n, "second"), _number(n))


def _claim(name: str, says: str, rule: str, judge: Callable[[Numbers], Verdict]) -> Claim:
    return Claim(
        f"table-6-{name}",
        f"20 Newsgroups, {says}",
        "Table 6; Sec. 7.5",
        f"holds if {rule}; {DISTANCE_RULE}",
        measure,
        judge,
        source_of(STUDY),
    )


_EVEN = "the entropy of the documents' assignments is at least 0.95 ln K"
CLAIMS = (
    _claim(
        "kmeans-cls",
        "k-means on CLS: ACC 0.200, NMI 0.211, ARI 0.060, below mean pooling by 0.151 and 0.166.",
        "mean pooling is above it in ACC and NMI",
        judge_cls,
    ),
    _claim(
        "kmeans-mean",
        "k-means on mean pooling: ACC 0.351, NMI 0.377, ARI 0.178, above the two levels by 0.218 and 0.284.",
        "it is above the better setting of the paper's recipe in ACC and NMI",
        judge_mean,
    ),
    _claim(
        "ddcl-0.1",
        "two levels, ratio 0.1, barrier 0.5: ACC 0.112, below both k-means; the upper assignments near uniform.",
        f"both k-means are above the paper's recipe in ACC and {_EVEN}",
        judge_first,
    ),
    _claim(
        "ddcl-0.05",
        "two levels, ratio 0.05, barrier 1.5: ACC 0.133, the better setting by 0.021, below both k-means; the upper "
        "assignments near uniform.",
        f"it is above the other setting, both k-means are above it in ACC, and {_EVEN}",
        judge_second,
    ),
)
