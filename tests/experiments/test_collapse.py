"""The collapse battery: what counts as collapsed, the table of it, and a corner of the grid run for real."""

from __future__ import annotations

import csv
import math
import sys
from dataclasses import fields, replace

import pytest
import torch

from ddcl.cli import main
from ddcl.experiments.collapse import running
from ddcl.experiments.collapse.battery import Row, append, read, run_all, summary, write
from ddcl.experiments.collapse.cases import ABOUT, ENCODERS, METHODS, RATIOS, SCALES, SIZES, Case, grid, quick_grid
from ddcl.experiments.collapse.models import Clusterer, make_encoder, mixture
from ddcl.experiments.collapse.running import Outcome, run
from ddcl.experiments.environment import environment
from ddcl.rivals import EMA, STRAIGHT_THROUGH, HardQuantizer

HEALTHY = Outcome(
    relative_entropy=0.2, distinct_share=1.0, usage=0.8, kmeans_usage=0.8, relative_trace=1.0, seconds=1.5
)
RIVALS = ("straight-through VQ", "EMA VQ")
MISSING = "vector-quantize-pytorch is not installed"


def below(value: float) -> float:
    return math.nextafter(value, -math.inf)


def above(value: float) -> float:
    return math.nextafter(value, math.inf)


@pytest.mark.parametrize(
    ("figure", "inside", "outside", "reason"),
    [
        ("relative_entropy", 0.95, above(0.95), "uniform"),
        ("distinct_share", 0.9, below(0.9), "merged"),
        ("usage", 0.9 * 0.8, below(0.9 * 0.8), "unused"),
        ("relative_trace", 0.01, below(0.01), "shrunk"),
    ],
)
def test_a_run_counts_as_collapsed_from_its_threshold_on_and_for_that_reason_alone(figure, inside, outside, reason):
    assert HEALTHY.reasons == ()
    assert replace(HEALTHY, **{figure: inside}).reasons == ()
    assert replace(HEALTHY, **{figure: outside}).reasons == (reason,)
    assert replace(HEALTHY, **{figure: math.nan}).reasons == (reason,)


def test_usage_is_held_against_what_k_means_reaches():
    assert replace(HEALTHY, usage=0.45, kmeans_usage=0.5).reasons == ()
    assert replace(HEALTHY, usage=0.45, kmeans_usage=1.0).reasons == ("unused",)
    assert replace(HEALTHY, kmeans_usage=math.nan).reasons == ("unused",)


def test_a_run_may_collapse_for_every_reason_at_once():
    assert Outcome(*[math.nan] * 6).reasons == ("uniform", "merged", "unused", "shrunk")


def test_the_grid_is_every_combination_and_a_frozen_encoder_runs_at_one_ratio():
    cases = grid(("default", "paper"), seeds=(0, 1))
    learning = 3 * len(SCALES) * len(SIZES) * len(RATIOS)
    assert len(cases) == len(set(cases)) == 2 * 2 * (learning + len(SCALES) * len(SIZES))
    assert {case.encoder for case in cases} == set(ENCODERS)
    assert {case.ratio for case in cases if case.encoder == "frozen"} == {RATIOS[-1]}
    assert set(quick_grid(("default",))) <= set(grid(("default",)))
    assert set(ABOUT) == set(METHODS)


def test_the_data_are_the_same_at_every_scale_and_others_for_another_seed():
    torch.testing.assert_close(mixture(100.0, 3), 100 * mixture(1.0, 3))
    assert not torch.allclose(mixture(1.0, 3), mixture(1.0, 4))


@pytest.mark.parametrize("kind", ENCODERS)
def test_every_encoder_gives_the_dimension_it_says(kind):
    encoder, dim = make_encoder(kind)
    x = mixture(1.0, 0)[:7]
    assert encoder(x).shape == (7, dim)
    assert Clusterer(kind, 5, "standard")(x).centroid.shape == (7, dim)


def some_rows() -> list[Row]:
    """Outcomes of two methods, among them one that collapsed for two reasons and one that is no number."""
    merged = replace(HEALTHY, distinct_share=0.25, relative_trace=0.001)
    lost = Outcome(0.0, math.nan, math.nan, math.nan, math.nan, 2.0)
    return [
        Row(Case("default", "frozen", 0.01, 16, 1.0, 0), HEALTHY),
        Row(Case("default", "linear", 100.0, 16, 0.1, 1), HEALTHY),
        Row(Case("paper", "linear", 0.01, 16, 0.1, 0), merged),
        Row(Case("paper", "mlp", 0.01, 16, 0.1, 0), HEALTHY),
        Row(Case("paper", "mlp", 0.01, 16, 1.0, 0), lost),
    ]


def test_the_summary_counts_runs_and_reasons():
    header, _, *lines = ([cell.strip() for cell in line.split("|")[1:-1]] for line in summary(some_rows()).splitlines())
    table = [dict(zip(header, line, strict=True)) for line in lines]
    assert table == [
        {
            "method": "default",
            "runs": "2",
            "collapsed": "0 / 2",
            "frozen": "0 / 1",
            "linear": "0 / 1",
            "mlp": "-",
            "transformer": "-",
            "uniform": "0",
            "merged": "0",
            "unused": "0",
            "shrunk": "0",
        },
        {
            "method": "paper",
            "runs": "3",
            "collapsed": "2 / 3",
            "frozen": "-",
            "linear": "1 / 1",
            "mlp": "1 / 2",
            "transformer": "-",
            "uniform": "0",
            "merged": "2",
            "unused": "1",
            "shrunk": "2",
        },
    ]


def test_what_is_written_is_read_back_with_where_it_was_measured(tmp_path):
    path, rows = tmp_path / "deep" / "battery.csv", some_rows()
    write(rows, path, environment("ddcl battery"))
    found = read(path)
    assert [row.case for row in found] == [row.case for row in rows]
    for mine, theirs in zip(rows, found, strict=True):
        for field in fields(Outcome):
            expected = getattr(mine.outcome, field.name)
            assert getattr(theirs.outcome, field.name) == pytest.approx(expected, rel=1e-3, nan_ok=True), field.name
    assert summary(found) == summary(rows)
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["collapsed"] for line in lines] == ["", "", "merged shrunk", "", "merged unused shrunk"]
    assert {line["command"] for line in lines} == {"ddcl battery"}
    assert all(line["torch"] == torch.__version__ and line["commit"] for line in lines)


@pytest.mark.parametrize(("figure", "value"), [("relative_entropy", 0.95001), ("distinct_share", 0.89999)])
def test_a_verdict_at_the_edge_survives_the_rounding_of_the_table(figure, value, tmp_path):
    row = Row(Case("paper", "mlp", 0.01, 16, 0.1, 0), replace(HEALTHY, **{figure: value}))
    assert row.outcome.reasons
    write([row], tmp_path / "battery.csv", environment("ddcl battery"))
    assert read(tmp_path / "battery.csv")[0].outcome.reasons == row.outcome.reasons


def test_runs_come_in_the_order_of_their_cases_with_progress(monkeypatch):
    cases = quick_grid(("default",))[:3]
    outcomes = [replace(HEALTHY, seconds=float(k)) for k in range(3)]
    monkeypatch.setattr("ddcl.experiments.collapse.battery.run", lambda case: outcomes[cases.index(case)], raising=True)
    seen = []
    rows = run_all(cases, progress=lambda count, row: seen.append((count, row)))
    assert rows == [Row(case, outcome) for case, outcome in zip(cases, outcomes, strict=True)]
    assert seen == list(enumerate(rows, start=1))


def test_a_battery_that_was_stopped_goes_on_where_it_stood(monkeypatch, tmp_path, capsys):
    path, cases, ran = tmp_path / "deep" / "battery.csv", quick_grid(("default",)), []

    def stopped(case):
        if len(ran) == 4:
            raise KeyboardInterrupt
        ran.append(case)
        return HEALTHY

    monkeypatch.setattr("ddcl.experiments.collapse.battery.run", stopped)
    asked = ["bench", "collapse", "--quick", "--methods", "default", "--out", str(path)]
    with pytest.raises(KeyboardInterrupt):
        main(asked)
    assert [row.case for row in read(path)] == ran == cases[:4]
    monkeypatch.setattr("ddcl.experiments.collapse.battery.run", lambda case: ran.append(case) or HEALTHY)
    assert main([*asked, "--resume"]) == 0
    assert [row.case for row in read(path)] == ran == cases
    assert f"| default | {len(cases)} | 0 / {len(cases)} |" in capsys.readouterr().out
    assert main(asked) == 0  # without --resume the table is begun anew
    assert [row.case for row in read(path)] == cases


def test_a_row_is_not_added_to_a_table_of_other_columns(tmp_path):
    (tmp_path / "other.csv").write_text("name,value\na,1\n")
    with pytest.raises(ValueError, match=r"other\.csv: its columns are not those"):
        append(some_rows()[0], tmp_path / "other.csv", environment("ddcl battery"))


@pytest.mark.parametrize("method", METHODS)
def test_a_run_is_the_same_every_time(method, monkeypatch):
    if method in RIVALS:
        pytest.importorskip("vector_quantize_pytorch", reason=MISSING)
    monkeypatch.setattr(running, "EPOCHS", 1)
    case = Case(method, "linear", 1.0, 7, 0.1, 3)
    first = run(case)
    torch.rand(5)  # whatever came before
    second = run(case)
    assert replace(first, seconds=0.0) == replace(second, seconds=0.0)
    assert first.seconds > 0
    assert not math.isnan(first.usage)


@pytest.mark.parametrize("kind", [STRAIGHT_THROUGH, EMA])
def test_a_rival_gives_each_token_its_nearest_code_and_moves_its_codes_in_training(kind):
    pytest.importorskip("vector_quantize_pytorch", reason=MISSING)
    quantizer = HardQuantizer(kind, 5, 3)
    z = torch.randn(101, 3)
    assert quantizer.codes.shape == (5, 3)
    quantizer.eval()
    quantized, indices, _ = quantizer(z)
    assert torch.equal(indices, torch.cdist(z, quantizer.codes).argmin(-1))
    torch.testing.assert_close(quantized, quantizer.codes[indices])
    before = quantizer.codes.clone()
    quantizer.train()
    loss = quantizer(z)[2]
    assert loss.shape == ()
    if kind == STRAIGHT_THROUGH:
        (grad,) = torch.autograd.grad(loss, list(quantizer.parameters()))
        assert grad.abs().sum() > 0
    else:
        assert list(quantizer.parameters()) == []
        assert not torch.equal(quantizer.codes, before)


def test_without_their_package_the_rivals_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "vector_quantize_pytorch", None)
    with pytest.raises(ImportError, match=r"pip install 'ddcl\[rivals\]'"):
        HardQuantizer(EMA, 5, 3)


# of the quick grid: both scales, every encoder, and the ratio at which an encoder is hardest to hold
CORNER = [("frozen", 0.01), ("linear", 0.01), ("mlp", 100.0)]


@pytest.mark.slow
def test_the_default_collapses_nowhere_in_a_corner_of_the_grid_where_the_papers_recipe_does():
    default = [case for case in quick_grid(("default",)) if (case.encoder, case.scale) in CORNER and case.ratio == 1.0]
    paper = [replace(case, method="paper") for case in default if case.scale == 0.01]
    assert (len(default), len(paper)) == (3, 2)
    rows = run_all(default + paper)
    collapsed = {
        method: [row.case for row in rows if row.case.method == method and row.outcome.reasons] for method in ABOUT
    }
    assert collapsed["default"] == []
    assert collapsed["paper"]
