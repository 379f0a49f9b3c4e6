"""What is to be said first: whether the bank can be trusted, what was fitted, and how it does beside others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ddcl.fitting.settings import Settings
from ddcl.report.page.texts import OF_A_LABEL, grouped, percent, short, shown


class Verdict(NamedTuple):
    """The verdict and the reasons for it."""

    healthy: bool
    headline: str
    reasons: tuple[str, ...]
    troubles: tuple[str, ...]


def verdict(config: Mapping[str, Any], settings: Settings, phases: Mapping[str, Any] | None) -> Verdict:
    """In sentences, the most important first."""
    result = config["result"]
    figures, reading = result["metrics"], result["reading"]
    K = settings.prototypes
    reasons = [
        f"{figures['distinct']:.0f} of {K} prototypes stand apart, and {percent(figures['usage'])} of them are the "
        "nearest of some row.",
        f"A row is on average {percent(result['confidence'])} of its nearest prototype; the mixtures are read at "
        f"{short(reading['temperature'] / reading['critical'])} of the critical temperature, above which "
        "a bank that has fallen into one point stays there.",
    ]
    if phases is not None:
        kept = [n for t, n in zip(phases["temperatures"], phases["distinct"], strict=True) if t <= phases["reading"]]
        if kept:
            reasons.append(
                f"Left to move at the temperature it is read at, {kept[-1]} of {K} would stay apart: "
                + ("they are well resolved there." if kept[-1] == K else "the closest of them share their rows.")
            )
    reasons += _of_head(result["accuracy"])
    healthy = bool(result["healthy"])
    headline = "Healthy: no sign of collapse." if healthy else "Not healthy: look at this before relying on it."
    return Verdict(healthy, headline, tuple(reasons), tuple(result["troubles"]))


def _of_head(accuracy: Mapping[str, Any] | None) -> list[str]:
    if accuracy is None:
        return []
    head, rival = accuracy["head"], accuracy["logistic_regression"]
    said = f"On {grouped(accuracy['held_out_rows'])} rows it has never seen, the head names the right class in "
    said += f"{percent(head, 1)} of cases"
    if rival is None:
        return [said + "."]
    points = 100 * (head - rival)
    if abs(points) < 0.05:
        return [said + ", as does logistic regression on the same embeddings."]
    better = "better" if points > 0 else "worse"
    return [said + f", {abs(points):.1f} points {better} than logistic regression on the same embeddings."]


class Compared(NamedTuple):
    """A table: what is measured, and for each method its figures."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str


def comparisons(config: Mapping[str, Any], comparison: Mapping[str, Any] | None) -> list[Compared]:
    """The head beside other classifiers where there are labels, the bank beside k-means."""
    found = []
    accuracy = config["result"]["accuracy"]
    if accuracy is not None:
        rival = accuracy["logistic_regression"]
        rows = [("ddcl, linear head on the mixtures", percent(accuracy["head"], 1))]
        if rival is not None:
            rows.append(("logistic regression on the same embeddings", percent(rival, 1)))
        rows.append(("always the most frequent class", percent(accuracy["most_frequent_class"], 1)))
        learned = grouped(accuracy["logistic_regression_rows"])
        note = (
            f"On {grouped(accuracy['held_out_rows'])} held-out rows that no method has seen; logistic regression "
            f"(scikit-learn) learned from {learned} rows. One split, seed {config['settings']['seed']}."
        )
        found.append(Compared("Classes of held-out rows", ("method", "accuracy"), tuple(rows), note))
    if comparison is not None:
        found.append(_beside_kmeans(comparison))
    return found


def _beside_kmeans(comparison: Mapping[str, Any]) -> Compared:
    named = {"acc": "ACC", "nmi": "NMI", "purity": "purity"}
    scores = [name for name in named if comparison["bank"].get(name) is not None]
    rows = tuple(
        (
            method,
            f"{comparison[key]['distortion']:.4g}",
            *(f"{comparison[key][name]:.3f}" for name in scores),
        )
        for key, method in (("bank", "ddcl"), ("kmeans", f"k-means (scikit-learn), best of {comparison['restarts']}"))
    )
    measured, learned, all_rows = (grouped(comparison[f"{name}_rows"]) for name in ("measured", "learned", "learnable"))
    where = f"{measured} held-out rows" if comparison["held_out"] else f"{measured} rows drawn from all"
    from_what = f"both learned from {all_rows} rows"
    if learned != all_rows:
        from_what = f"k-means learned from {learned} rows, the bank from {all_rows}"
    note = (
        f"Both with the same number of prototypes, each row to its nearest, measured on {where}; {from_what}, one seed "
        f"({comparison['seed']}). Distortion is the mean squared distance to the nearest prototype: smaller is better. "
    )
    if scores:
        note += (
            "ACC matches each label with one prototype at most, so it stays low where there are more prototypes than "
            "labels; purity lets several prototypes share a label. A bank with a prototype for each label has learned "
            "from the labels of other rows, k-means from none: for a fair race fit without labels."
        )
    return Compared("Beside k-means", ("method", "distortion", *(named[name] for name in scores)), rows, note.strip())


def facts(config: Mapping[str, Any], settings: Settings) -> list[tuple[str, str]]:
    """What was fitted, when and how."""
    what = "texts" if settings.kind == "texts" else "embeddings"
    found = [("data", f"{shown(Path(settings.source).name, 80)}, {grouped(settings.rows)} {what}")]
    if settings.text_column is not None:
        found.append(("text column" if settings.kind == "texts" else "array", shown(settings.text_column, OF_A_LABEL)))
    if settings.label_column is not None:
        found.append(("labels", f"{shown(settings.label_column, OF_A_LABEL)}, {len(settings.classes or ())} classes"))
    found.append(("embeddings", f"{settings.dim} numbers each{_by(settings.encoder)}"))
    found.append(("prototypes", f"{settings.prototypes} ({settings.prototypes_reason})"))
    if settings.levels is not None:
        found.append(("levels", ", ".join(map(str, settings.levels))))
    found += [
        ("training", f"{settings.epochs} epochs in batches of {grouped(settings.batch_size)}"),
        ("seed, device", f"{settings.seed}, {settings.device}"),
        ("took", f"{config['result']['seconds']:.0f} s"),
        ("finished", str(config["finished"]).replace("T", " ").replace("+00:00", " UTC")),
        ("versions", f"ddcl {config['ddcl']}, torch {config['torch']}"),
        ("data digest", f"SHA-256 {settings.digest[:16]}…"),
    ]
    return found


def _by(encoder: str | None) -> str:
    if encoder is None:
        return ""
    # where a folder lies is no business of those the page is shared with
    name = Path(encoder).name if Path(encoder).is_absolute() else encoder
    return f", by {shown(name, 80)}"
