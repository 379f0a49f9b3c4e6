"""Table 4: texts through a frozen encoder, one vector each, to classes (SST-2, IMDB) and clusters (20 Newsgroups)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ddcl.data.embeddings import Pooling
from ddcl.experiments.reproduce.dynamics import best, thinned
from ddcl.experiments.reproduce.projection import principal_components
from ddcl.experiments.reproduce.readout_notes import (
    CLS_KMEANS,
    CLS_LOGISTIC,
    DEFAULT,
    MEAN_KMEANS,
    MEAN_LOGISTIC,
    PAPER,
)
from ddcl.experiments.reproduce.readout_notes import notes as said
from ddcl.experiments.reproduce.readout_texts import Vectors, drawn, load_vectors
from ddcl.experiments.reproduce.readout_ways import (
    Outcome,
    Plan,
    View,
    default_clusters,
    default_head,
    kmeans,
    logistic_regression,
    papers_recipe,
)
from ddcl.experiments.reproduce.study import Column, Paper, Result, Run, Study

Way = Literal["logistic", "k-means", "paper", "default"]
ENCODERS = ("all-MiniLM-L6-v2", "all-mpnet-base-v2")
MAPPED = 1500
"""Texts in the map."""


@dataclass(frozen=True)
class Setting:
    """What one run is made of."""

    texts: str
    encoder: str
    way: Way
    pooling: Pooling
    prototypes: int
    supervised: bool
    max_tokens: int
    train: int | None
    """Texts drawn from the training split; None: all."""
    test: int | None = None
    epochs: int = 15
    batch: int = 1024
    """The paper names none."""
    measure_every: int = 1
    """Epochs: to measure so many texts takes longer than to train on them."""


@dataclass(frozen=True)
class TextCase:
    """One set as the table has it."""

    title: str
    texts: str
    prototypes: int
    supervised: bool
    max_tokens: int
    train: int | None = None
    batch: int = 1024
    default_epochs: int = 10
    """For a head about 350 steps, chosen on held-out training texts."""


CASES = (
    TextCase("SST-2", "sst2", 2, True, 64, default_epochs=5),
    TextCase("IMDB", "imdb", 4, True, 256, train=10_000, batch=256),
    TextCase("20 Newsgroups", "20newsgroups", 20, False, 128, default_epochs=50),
)
QUICK_TRAIN, QUICK_TEST, QUICK_TOKENS, QUICK_EPOCHS = 300, 150, 64, 10


def case_name(case: TextCase, encoder: str) -> str:
    """A case as table and record name it."""
    return f"{case.title} (K = {case.prototypes}), {encoder}"


def runs(quick: bool, seeds: int) -> list[Run]:
    """All runs; quick: SST-2 and 20 Newsgroups, the first 64 tokens of a few hundred texts, the smaller encoder."""
    found = []
    for case in (CASES[0], CASES[2]) if quick else CASES:
        for encoder in ENCODERS[:1] if quick else ENCODERS:
            for method, way, pooling in _ways(case):
                epochs = QUICK_EPOCHS if quick else (case.default_epochs if way == "default" else 15)
                setting = Setting(
                    texts=case.texts,
                    encoder=encoder,
                    way=way,
                    pooling=pooling,
                    prototypes=case.prototypes,
                    supervised=case.supervised,
                    max_tokens=min(case.max_tokens, QUICK_TOKENS) if quick else case.max_tokens,
                    train=QUICK_TRAIN if quick else case.train,
                    test=QUICK_TEST if quick else None,
                    epochs=epochs,
                    batch=64 if quick else case.batch,
                    measure_every=max(1, epochs // 5) if way in ("paper", "default") else 1,
                )
                # nothing is random in logistic regression
                for seed in range(1 if way == "logistic" else seeds):
                    # of the default only the last epoch counts, but the first seed is drawn
                    unseen = way == "default" and case.supervised and seed > 0
                    chosen = replace(setting, measure_every=epochs) if unseen else setting
                    found.append(Run(case_name(case, encoder), method, seed, chosen))
    return found


def execute(run: Run, device: str) -> Result:
    """One run."""
    setting: Setting = run.settings
    source = (setting.encoder, setting.pooling, setting.max_tokens)
    train = load_vectors(setting.texts, "train", *source, setting.train)
    test = load_vectors(setting.texts, "test", *source, setting.test)
    plan = Plan(setting.prototypes, setting.epochs, setting.batch, run.seed, setting.measure_every, device)
    found = _outcome(setting, train, test, plan)
    metrics = dict(found.metrics) | {"test_texts": float(len(test.labels))}
    if setting.way == "paper":
        metrics |= _best(found)
    shown = found.view if run.seed == 0 and not setting.supervised else None
    arrays = {} if shown is None else _map(train, shown)
    return Result(metrics, thinned(found.epochs) if found.epochs else {}, arrays)


def _ways(case: TextCase) -> list[tuple[str, Way, Pooling]]:
    supervised: list[tuple[str, Way, Pooling]] = [
        (CLS_LOGISTIC, "logistic", "cls"),
        (MEAN_LOGISTIC, "logistic", "mean"),
    ]
    common: list[tuple[str, Way, Pooling]] = [
        (CLS_KMEANS, "k-means", "cls"),
        (MEAN_KMEANS, "k-means", "mean"),
        (PAPER, "paper", "cls"),
        (DEFAULT, "default", "mean"),
    ]
    return (supervised if case.supervised else []) + common


def _outcome(setting: Setting, train: Vectors, test: Vectors, plan: Plan) -> Outcome:
    if setting.way == "logistic":
        return logistic_regression(train, test)
    if setting.way == "k-means":
        return kmeans(train, test, setting.prototypes, plan.seed)
    if setting.way == "paper":
        return papers_recipe(train, test, plan, supervised=setting.supervised)
    return (default_head if setting.supervised else default_clusters)(train, test, plan)


def _best(found: Outcome) -> dict[str, float]:
    """What the paper reports: the best epoch, by ACC on the training texts; for the head, by what it reports itself."""
    top, when = best(found.epochs, "acc")
    there = list(found.epochs["epoch"]).index(when)
    chosen = {"acc_best": top, "epoch_best": float(when)}
    chosen |= {f"{name}_best": found.epochs[name][there] for name in ("nmi", "ari")}
    if "test_accuracy" in found.epochs:
        chosen["test_accuracy_best"] = best(found.epochs, "test_accuracy")[0]
    return chosen


def _map(train: Vectors, view: View) -> Mapping[str, np.ndarray]:
    """Some texts and the prototypes in the plane of the tokens' two widest directions."""
    centre = view.tokens.mean(0)
    plane = principal_components(view.tokens - centre, 2).components.mT
    rows = drawn(len(view.tokens), MAPPED)
    return {
        "points": ((view.tokens[rows] - centre) @ plane).numpy().astype(np.float32),
        "labels": train.labels[rows].numpy().astype(np.uint8),
        "found": view.indices[rows].numpy().astype(np.uint8),
        "prototypes": ((view.prototypes - centre) @ plane).numpy().astype(np.float32),
    }


_REPORTED = {
    "SST-2": (
        ("CLS + logistic regression, BERT", {"test_accuracy": 0.861}),
        ("k-means on CLS, BERT", {"acc": 0.519, "nmi": 0.003, "ari": 0.001}),
        ("DDCL-Attention, BERT", {"acc_best": 0.867, "nmi_best": 0.435, "ari_best": 0.538}),
    ),
    "IMDB": (("DDCL-Attention, BERT", {"acc_best": 0.913, "nmi_best": 0.472, "ari_best": 0.540}),),
    "20 Newsgroups": (
        ("k-means on CLS, BERT", {"acc": 0.196, "nmi": 0.189, "ari": 0.065}),
        ("DDCL-Attention, BERT", {"acc_best": 0.175, "nmi_best": 0.152, "ari_best": 0.039}),
    ),
}

STUDY = Study(
    name="readout",
    title="Text readout with a frozen encoder",
    shows="Table 4, Figures 2 and 3",
    runs=runs,
    execute=execute,
    columns=(
        Column("test_accuracy_best", "test accuracy, best epoch"),
        Column("test_accuracy", "test accuracy"),
        Column("acc_best", "ACC, best epoch"),
        Column("nmi_best", "NMI there"),
        Column("ari_best", "ARI there"),
        Column("acc", "ACC"),
        Column("nmi", "NMI"),
        Column("ari", "ARI"),
        Column("purity", "purity"),
        Column("acc_test", "test ACC"),
        Column("nmi_test", "test NMI"),
        Column("ari_test", "test ARI"),
        Column("purity_test", "test purity"),
        Column("distinct", "distinct", 1),
        Column("usage", "used", 2),
        Column("relative_entropy", "H / ln K", 2),
        Column("relative_temperature", "T / T_c", 2),
    ),
    paper=[
        Paper(case_name(case, encoder), method, values)
        for case in CASES
        for encoder in ENCODERS
        for method, values in _REPORTED[case.title]
    ],
    needs="the extra text (transformers, scikit-learn, pyarrow); sst2, imdb and 20newsgroups, and both encoders",
    notes=said,
)
