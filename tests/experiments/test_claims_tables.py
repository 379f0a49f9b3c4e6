"""Rows of the paper's tables: the rules on made-up records, both ways, and where records are looked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddcl.cli import main
from ddcl.experiments.claims import LEDGER, Finding, Outcome
from ddcl.experiments.claims.tables import ablation, debris, evidence, hierarchy, readout, records_in, vq
from ddcl.experiments.claims.tables.rules import Figure, Part, above, across, close, conclude, conclude_either, exceeds
from ddcl.experiments.reproduce import load_study
from ddcl.experiments.reproduce.record import append
from ddcl.experiments.reproduce.study import Done

HOLDS, CONDITIONAL, FAILS, UNSETTLED = Outcome.HOLDS, Outcome.CONDITIONAL, Outcome.FAILS, Outcome.UNSETTLED
NUDGES = (-0.001, 0.0, 0.001)
"""What each seed adds to every figure."""


class Book:
    """Made-up records in a folder that is the only one looked at."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, study: str, case: str, method: str, metrics: dict[str, float], *, quick: bool = False, **epochs):
        origin = {"command": f"ddcl reproduce {study}" + (" --quick" if quick else ""), "commit": "c0ffee"}
        origin["device"] = "abacus"
        for seed, nudge in enumerate(NUDGES):
            run = {"case": case, "method": method, "seed": seed, "settings": {}}
            shifted = {name: value + nudge for name, value in metrics.items()}
            append(Done(run, shifted, epochs, 1.0, origin), self.folder / f"{study}.jsonl")

    def settle(self, name: str) -> Finding:
        (claim,) = LEDGER.select([name])
        with records_in(self.folder):
            return claim.settle()


@pytest.fixture
def book(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(evidence, "COMMITTED", tmp_path / "nowhere")
    (tmp_path / "made").mkdir()
    return Book(tmp_path / "made")


def orbits(book: Book, *, recipe: float = 0.772, kmeans: float = 0.756, nmi: float = 0.752) -> None:
    baseline = {"acc": kmeans, "nmi": 0.751, "ari": 0.667}
    for method in ("k-means, d = 7", "k-means, m = 5"):
        book.write("debris", "synthetic", method, baseline)
    book.write("debris", "synthetic", "the paper's recipe", {"acc_best": recipe, "nmi_best": nmi, "ari_best": 0.669})
    book.write("debris", "synthetic", "default", {"acc": recipe})


def texts(book: Book, recipe: float, default: float, *, kmeans: float = 0.52, nmi: float = 0.003) -> None:
    """SST-2 and IMDB behind one encoder, 20 Newsgroups behind another."""
    for case in ("SST-2 (K = 2), mini", "IMDB (K = 4), mini"):
        clusters = {"acc_test": kmeans, "purity_test": kmeans, "acc": kmeans, "nmi": nmi, "ari": 0.001}
        for pooled in ("CLS", "mean pooling"):
            book.write("readout", case, f"{pooled} + logistic regression", {"test_accuracy": 0.86})
            book.write("readout", case, f"k-means on {pooled}", clusters)
        book.write("readout", case, "the paper's recipe", {"test_accuracy_best": recipe})
        book.write("readout", case, "default", {"test_accuracy": default})


def news(book: Book, recipe: float, default: float) -> None:
    case = "20 Newsgroups (K = 20), mini"
    book.write("readout", case, "the paper's recipe", {"acc_best": recipe, "nmi_best": recipe})
    book.write("readout", case, "default", {"acc": default, "nmi": default})
    for pooled in ("CLS", "mean pooling"):
        book.write("readout", case, f"k-means on {pooled}", {"acc": 0.5, "nmi": 0.5})


def codes(
    book: Book, *, reads: float = 1.001, perplexity: float = 60.0, frequent: tuple[float, ...] = (0.2, 0.3)
) -> None:
    # a nudge goes down too: 1.001 is at least 1 on average
    for K in (16, 64):
        ours = {"paper_usage": reads, "first_usage": 1.001, "usage": 0.9, "perplexity": perplexity, "mse": 0.06}
        book.write("vq", f"K = {K}", "the paper's recipe", ours)
        book.write("vq", f"K = {K}", "ddcl, default", ours)
        hard = {"perplexity": 29.5, "first_usage": 0.8}
        book.write("vq", f"K = {K}", "straight-through VQ", hard, frequent=list(frequent))


def levels(book: Book, *, cls: float = 0.2, mean: float = 0.35, first: float = 0.11, second: float = 0.133) -> None:
    rows = dict(zip(hierarchy.METHODS.values(), (cls, mean, first, second, 0.36), strict=True))
    for method, value in rows.items():
        book.write(
            "hierarchy", "20 Newsgroups, mini", method, {"acc": value, "nmi": value, "upper_relative_entropy": 0.999}
        )


def ratios(book: Book, images: str, *, grows: bool, falls: bool, soon: bool = True, slow: float = 0.8) -> None:
    for ratio in ablation.RATIOS:
        stable = ratio <= 0.1
        series = ([1.0, 1.1, 1.2] if grows else [1.0, 1.1, 0.9]) if stable else [0.9, 0.005 if soon else 0.5, 0.5]
        if falls and not stable:
            series[-1] = 0.001
        accuracy = slow if stable else 0.7
        book.write(
            "ablation",
            images,
            f"paper's T, ratio {ratio:g}",
            {"acc_best": accuracy, "acc": accuracy, "separation_start": 1.0},
            epoch=[1, 50, 300],
            separation=series,
        )


def test_a_figure_is_reproduced_within_a_hundredth_or_two_standard_deviations():
    assert close(Figure(0.50, 0.0, 3), 0.509)
    assert not close(Figure(0.50, 0.0, 3), 0.511)
    assert close(Figure(0.50, 0.02, 3), 0.539)
    assert not close(Figure(0.50, 0.02, 3), 0.541)


def test_an_order_counts_beyond_two_standard_errors():
    assert not exceeds(Figure(0.519, 0.02, 4), Figure(0.50, 0.0, 1))  # two standard errors are 0.02
    assert exceeds(Figure(0.521, 0.02, 4), Figure(0.50, 0.0, 1))
    assert not exceeds(Figure(0.50, 0.0, 1), Figure(0.53, 0.02, 4))


def test_a_distance_counts_from_half_of_the_papers_on():
    def pair(distance):
        return {"mini": (Figure(0.5 + distance, 0.0, 1), Figure(0.5, 0.0, 1))}

    assert above(pair(0.06), "above", 0.1) == [Part("above by at least half of 0.100", True)]
    assert above(pair(0.04), "above", 0.1) == [Part("above", True), Part("above by at least half of 0.100", False)]
    assert above(pair(-0.04), "above", 0.1) == [Part("above", False)]
    assert above(pair(0.04), "above") == [Part("above", True)]


def test_places_that_disagree_are_named():
    assert across("so", {"a": True, "b": True}) == [Part("so", True)]
    assert across("so", {"a": False, "b": False}) == [Part("so", False)]
    assert across("so", {"a": True, "b": False}) == [Part("so (a)", True), Part("so (b)", False)]


def test_a_row_holds_if_no_more_is_meant_than_its_true_statements():
    yes, no, unknown = Part("one", True), Part("two", False), Part("three", None)
    assert conclude([yes], "n").outcome is HOLDS
    some = conclude([yes, no, unknown], "n")
    assert some.condition == "no more is meant than that one"
    assert some.counterexample == "not true: that two; not to be told: that three"
    assert conclude([no, unknown], "n").outcome is FAILS
    assert conclude([unknown], "n").outcome is UNSETTLED


def test_what_the_recipe_misses_the_default_may_still_show():
    yes, no = Part("one", True), Part("two", False)
    assert conclude_either([yes], [no], "n").outcome is HOLDS
    assert conclude_either([yes, no], [yes, yes], "n").condition.endswith("not by the paper's recipe")
    assert conclude_either([yes, no], [no], "n").condition == "no more is meant than that one"
    assert conclude_either([no], [yes, no], "n").condition.endswith("recipe, and no more is meant than that one")
    assert conclude_either([no], [no], "n").outcome is FAILS


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, HOLDS),
        ({"kmeans": 0.771}, CONDITIONAL),  # the figures without the margin
        ({"recipe": 0.6, "kmeans": 0.584}, CONDITIONAL),  # the margin and two figures
    ],
)
def test_table_3_the_layer(book, changed, expected):
    orbits(book, **changed)
    finding = book.settle("table-3-ddcl")
    assert finding.verdict.outcome is expected
    assert finding.numbers["ours_acc_runs"] == 3
    assert finding.numbers["ours_acc_sd"] == pytest.approx(0.001)


@pytest.mark.parametrize("name", ["table-3-kmeans-raw", "table-3-kmeans-pca"])
@pytest.mark.parametrize(("kmeans", "expected"), [(0.750, HOLDS), (0.700, CONDITIONAL)])
def test_table_3_kmeans(book, name, kmeans, expected):
    orbits(book, kmeans=kmeans)
    assert book.settle(name).verdict.outcome is expected


@pytest.mark.parametrize(
    ("recipe", "default", "expected"),
    [(0.87, 0.5, HOLDS), (0.5, 0.87, CONDITIONAL), (0.5, 0.80, CONDITIONAL), (0.5, 0.5, FAILS)],
)
@pytest.mark.parametrize("name", ["table-4-sst2-ddcl", "table-4-imdb-ddcl"])
def test_table_4_the_layer_against_its_baselines(book, name, recipe, default, expected):
    texts(book, recipe, default)
    assert book.settle(name).verdict.outcome is expected


@pytest.mark.parametrize(("kmeans", "expected"), [(0.52, HOLDS), (0.80, CONDITIONAL), (0.90, FAILS)])
def test_table_4_logistic_regression(book, kmeans, expected):
    texts(book, 0.5, 0.8, kmeans=kmeans)
    assert book.settle("table-4-sst2-logistic").verdict.outcome is expected


@pytest.mark.parametrize(("kmeans", "nmi", "expected"), [(0.52, 0.003, HOLDS), (0.8, 0.003, FAILS), (0.52, 0.2, FAILS)])
def test_table_4_kmeans_finds_nothing(book, kmeans, nmi, expected):
    texts(book, 0.5, 0.8, kmeans=kmeans, nmi=nmi)
    assert book.settle("table-4-sst2-kmeans").verdict.outcome is expected


@pytest.mark.parametrize(
    ("recipe", "default", "layer", "kmeans"),
    [
        (0.47, 0.1, HOLDS, HOLDS),
        (0.10, 0.5, CONDITIONAL, HOLDS),
        (0.10, 0.1, FAILS, HOLDS),
        (0.495, 0.1, HOLDS, CONDITIONAL),  # above, by less than half
        (0.60, 0.1, HOLDS, FAILS),
    ],
)
def test_table_4_clusters(book, recipe, default, layer, kmeans):
    news(book, recipe, default)
    assert book.settle("table-4-20ng-ddcl").verdict.outcome is layer
    assert book.settle("table-4-20ng-kmeans").verdict.outcome is kmeans


@pytest.mark.parametrize(
    ("changed", "expected"),
    [({}, HOLDS), ({"perplexity": 3.0}, CONDITIONAL), ({"perplexity": 3.0, "reads": 0.5}, FAILS)],
)
@pytest.mark.parametrize("K", [16, 64])
def test_table_5_a_collapsed_bank_meets_the_papers_figure_alone(book, K, changed, expected):
    codes(book, **changed)
    finding = book.settle(f"table-5-ddcl-{K}")
    assert finding.verdict.outcome is expected
    assert f"perplexity {finding.numbers['recipe_perplexity']:.1f} of {K}" in finding.verdict.number
    if expected is CONDITIONAL:
        assert "the paper's own figure" in finding.verdict.condition


@pytest.mark.parametrize(
    ("name", "frequent", "expected"),
    [
        ("table-5-vq-16", (0.81, 0.9, 1.0), HOLDS),
        ("table-5-vq-16", (0.81, 0.9, 0.9), CONDITIONAL),  # ends before epoch 6
        ("table-5-vq-16", (0.4, 0.9, 0.9), FAILS),
        ("table-5-vq-16", (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0), FAILS),
        ("table-5-vq-64", (0.19, 0.5), CONDITIONAL),
        ("table-5-vq-64", (0.6, 0.7), FAILS),
        ("table-5-vq-64", (0.6, *[0.7] * 43), FAILS),
    ],
)
def test_table_5_a_hard_quantiser(book, name, frequent, expected):
    codes(book, frequent=frequent)
    assert book.settle(name).verdict.outcome is expected


@pytest.mark.parametrize(
    ("name", "changed", "expected"),
    [
        ("kmeans-cls", {}, HOLDS),
        ("kmeans-cls", {"cls": 0.32}, CONDITIONAL),
        ("kmeans-cls", {"cls": 0.40}, FAILS),
        ("kmeans-mean", {}, HOLDS),
        ("kmeans-mean", {"second": 0.30}, CONDITIONAL),
        ("kmeans-mean", {"second": 0.40}, FAILS),
        ("ddcl-0.1", {}, HOLDS),
        ("ddcl-0.1", {"first": 0.30}, CONDITIONAL),
        ("ddcl-0.05", {}, HOLDS),
        ("ddcl-0.05", {"first": 0.133}, CONDITIONAL),
    ],
)
def test_table_6(book, name, changed, expected):
    levels(book, **changed)
    assert book.settle(f"table-6-{name}").verdict.outcome is expected


@pytest.mark.parametrize(
    ("ratio", "changed", "expected"),
    [
        ("0.001", {}, HOLDS),
        ("0.1", {"grows": False}, CONDITIONAL),
        ("0.1", {"grows": False, "slow": 0.6}, FAILS),
        ("0.5", {}, HOLDS),
        ("0.5", {"falls": False}, CONDITIONAL),
        ("0.5", {"falls": False, "slow": 0.6}, FAILS),
        ("1", {}, HOLDS),
        ("1", {"soon": False}, CONDITIONAL),
    ],
)
def test_figure_6(book, ratio, changed, expected):
    ratios(book, "digits", **{"grows": True, "falls": True, **changed})
    assert book.settle(f"figure-6-ratio-{ratio}").verdict.outcome is expected


def test_figure_6_names_the_set_that_disagrees(book):
    ratios(book, "digits", grows=True, falls=True)
    ratios(book, "MNIST", grows=True, falls=False)
    verdict = book.settle("figure-6-ratio-0.5").verdict
    assert "S(P) ends near zero (digits)" in verdict.condition
    assert "S(P) ends near zero (MNIST)" in verdict.counterexample


def test_a_verdict_names_its_record_with_commit_and_device(book):
    orbits(book)
    finding = book.settle("table-3-kmeans-raw")
    assert finding.source == "debris.jsonl, commit c0ffee, abacus"
    assert finding.as_dict()["source"] == finding.source


@pytest.mark.parametrize("name", [claim.name for claim in LEDGER if claim.source is not None])
def test_without_a_record_a_row_is_not_settled_and_names_the_command(book, name):
    finding = book.settle(name)
    assert finding.verdict.outcome is UNSETTLED
    assert finding.verdict.number.startswith("there is no full record of this: run `ddcl reproduce ")
    assert (finding.numbers, finding.source) == ({}, "")


def test_a_record_without_the_row_says_which_is_missing(book):
    book.write("debris", "synthetic", "default", {"acc": 0.7})
    number = book.settle("table-3-kmeans-raw").verdict.number
    assert number == "the record has no run of k-means, d = 7 on synthetic: run `ddcl reproduce debris`"
    book.write("debris", "synthetic", "k-means, d = 7", {"acc": 0.7})
    assert "no nmi of k-means, d = 7" in book.settle("table-3-kmeans-raw").verdict.number


def test_quick_runs_do_not_count_and_a_later_run_replaces_an_earlier(book):
    row = {"acc": 0.756, "nmi": 0.751, "ari": 0.667}
    book.write("debris", "synthetic", "k-means, d = 7", row, quick=True)
    assert book.settle("table-3-kmeans-raw").verdict.outcome is UNSETTLED
    book.write("debris", "synthetic", "k-means, d = 7", row | {"acc": 0.1})
    assert book.settle("table-3-kmeans-raw").numbers["ours_acc"] == pytest.approx(0.1)
    book.write("debris", "synthetic", "k-means, d = 7", row)
    book.write("debris", "synthetic", "k-means, d = 7", row | {"acc": 0.1}, quick=True)
    assert book.settle("table-3-kmeans-raw").verdict.outcome is HOLDS


def test_records_are_looked_for_where_asked_then_here_then_in_the_checkout(book, tmp_path, monkeypatch):
    monkeypatch.setattr(evidence, "COMMITTED", tmp_path / "checkout")
    for place, acc in ((tmp_path / "checkout", 0.1), (tmp_path / "runs" / "reproduce", 0.2), (book.folder, 0.3)):
        # the last one written is the first one looked at
        Book(place).write("debris", "synthetic", "k-means, d = 7", {"acc": acc, "nmi": 0.0, "ari": 0.0})
        assert book.settle("table-3-kmeans-raw").numbers["ours_acc"] == pytest.approx(acc)


def test_the_command_takes_a_folder_of_records(book, capsys):
    orbits(book)
    assert main(["claims", "--only", "table-3-kmeans-raw", "--records", str(book.folder)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "holds" in shown
    assert "record: debris.jsonl, commit" in shown
    assert main(["claims", "--only", "table-3-kmeans-raw", "--records", str(book.folder), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["claims"][0]["source"] == "debris.jsonl, commit c0ffee, abacus"
    assert str(book.folder) not in record["command"]
    assert main(["claims", "--records", str(book.folder / "no")]) == 2
    assert "--records: there is no folder" in capsys.readouterr().err


def named_rows(study: str) -> set[tuple[str, str]]:
    """Every (case, method) the claims read, with one encoder where they take all there are."""
    mini = "all-MiniLM-L6-v2"
    if study == "debris":
        return {("synthetic", name) for name in ("k-means, d = 7", debris.KMEANS, debris.PAPER, debris.DEFAULT)}
    if study == "vq":
        return {(f"K = {K}", name) for K in (16, 64) for name in (vq.PAPER, vq.DEFAULT, vq.HARD)}
    if study == "hierarchy":
        return {(f"{hierarchy.CASE}{mini}", name) for name in hierarchy.METHODS.values()}
    if study == "ablation":
        arms = {("digits", ablation.TEMPERATURE), ("MNIST", ablation.TEMPERATURE), ("digits", ablation.DEFAULT)}
        return {(images, f"{arm}, ratio {ratio:g}") for images, arm in arms for ratio in ablation.RATIOS}
    clusters = {readout.CLS_KMEANS, readout.MEAN_KMEANS, readout.PAPER, readout.DEFAULT}
    heads = clusters | {readout.CLS_LOGISTIC, readout.MEAN_LOGISTIC}
    cases = {readout.SST2: heads, readout.IMDB: heads, readout.NEWSGROUPS: clusters}
    return {(f"{prefix}{mini}", name) for prefix, names in cases.items() for name in names}


@pytest.mark.parametrize("study", ["debris", "readout", "vq", "hierarchy", "ablation"])
def test_the_rows_read_are_rows_that_the_study_runs(study):
    pytest.importorskip(f"ddcl.experiments.reproduce.{study}")
    assert named_rows(study) <= {(run.case, run.method) for run in load_study(study).runs(False, 1)}
