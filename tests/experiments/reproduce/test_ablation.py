"""The ratio of the learning rates: what starts where, what the arms differ in, and what is said of them."""

from __future__ import annotations

import dataclasses

import pytest
import torch

pytest.importorskip("sklearn")

from ddcl.experiments.reproduce.ablation import (
    ARMS,
    RATIOS,
    STUDY,
    Setting,
    execute,
    linear_encoder,
    load,
    recipe,
    runs,
)
from ddcl.experiments.reproduce.ablation_notes import notes
from ddcl.experiments.reproduce.study import Done, Run
from ddcl.training import Critical, Exponential

DIGITS = Setting("digits", 300, None, "paper's T", 1.0, epochs=6, measure_every=3)


def made_up(arm, ratio, seed, series, **metrics):
    settings = {"arm": arm, "ratio": ratio}
    run = {"case": "digits", "method": f"{arm}, ratio {ratio:g}", "seed": seed, "settings": settings}
    epochs = {"epoch": [25, 50, 300], "separation": series}
    return Done(run, {"separation_start": 2.0, "acc_start": 0.79} | metrics, epochs, 1.0, {})


def test_the_study_has_every_set_arm_and_ratio():
    found = runs(False, 5)
    assert len(found) == (3 + 2) * len(RATIOS) * 5
    assert {run.settings.arm for run in found if run.case == "digits"} == set(ARMS)
    assert {run.settings.arm for run in found if run.case == "MNIST"} == {"paper's T", "critical T"}
    assert len({(run.case, run.method, run.seed) for run in found}) == len(found)
    assert {run.settings.epochs for run in found} == {300}
    assert {(run.case, run.settings.ratio) for run in runs(True, 1)} == {("digits", 0.001), ("digits", 1.0)}


def test_the_encoder_starts_as_the_widest_projection_of_centred_pixels():
    pictures = load("digits", 300, None)
    assert pictures.x.shape == (300, 64)
    assert float(pictures.x.abs().max()) <= 1.0
    torch.testing.assert_close(pictures.x.mean(0), torch.zeros(64), atol=1e-5, rtol=0)
    z = linear_encoder(pictures.start, normalised=False)(pictures.x).detach()
    covariance = z.mT @ z / len(z)
    widest = torch.linalg.eigvalsh(pictures.x.mT @ pictures.x / len(z)).flip(0)[:32]
    torch.testing.assert_close(covariance.diagonal(), widest, atol=1e-5, rtol=1e-3)
    torch.testing.assert_close(covariance - covariance.diagonal().diag(), torch.zeros(32, 32), atol=1e-5, rtol=0)


def test_fewer_inputs_start_at_the_same_projection():
    full, cut = load("digits", 300, None), load("digits", 300, 40)
    assert cut.x.shape == (300, 40)
    torch.testing.assert_close((cut.x @ cut.start.mT).abs(), (full.x @ full.start.mT).abs(), atol=1e-3, rtol=1e-3)


def test_the_second_arm_differs_from_the_paper_in_the_temperature_alone():
    paper, critical, default = (recipe(dataclasses.replace(DIGITS, arm=arm), 0) for arm in ARMS)
    assert isinstance(paper.temperature, Exponential)
    assert critical == dataclasses.replace(paper, temperature=Critical())
    assert default.relative_lr
    assert {one.move for one in (paper, critical, default)} == {"gradient"}
    assert {one.epsilon for one in (paper, critical, default)} == {1.0}


@pytest.mark.parametrize("arm", ARMS)
def test_a_run_is_measured_from_its_start(arm):
    result = execute(Run("digits", "a method", 0, dataclasses.replace(DIGITS, arm=arm)), "cpu")
    assert list(result.epochs["epoch"]) == [3, 6]
    assert result.metrics["acc_best"] == max(result.epochs["acc"])
    assert result.metrics["acc"] == result.epochs["acc"][-1]
    assert result.metrics["acc_start"] > 0.5
    assert {column.metric for column in STUDY.columns} <= set(result.metrics)
    # a normalisation holds the tokens' spread whatever the encoder does
    shrunk = result.metrics["relative_trace"] < 0.999
    assert shrunk == (arm != "default")


def test_a_fast_encoder_draws_prototypes_together_that_a_slow_one_leaves_apart():
    fast, slow = (
        execute(Run("digits", "", 0, dataclasses.replace(DIGITS, count=None, ratio=ratio, epochs=30)), "cpu").metrics
        for ratio in (1.0, 0.001)
    )
    assert slow["separation"] > slow["separation_start"] > 5 * fast["separation"]
    assert fast["relative_trace"] < 0.7 < slow["relative_trace"]


def test_notes_tell_collapse_from_growth():
    finished = [
        made_up("paper's T", 1.0, 0, [0.1, 0.002, 0.0002], acc=0.4, acc_best=0.8),
        made_up("paper's T", 1.0, 1, [0.1, 0.006, 0.0002], acc=0.5, acc_best=0.8),
        made_up("paper's T", 0.1, 0, [2.0, 3.0, 4.0], acc=0.8, acc_best=0.82),
        made_up("paper's T", 0.1, 1, [2.0, 1.5, 4.0], acc=0.8, acc_best=0.84),
        made_up("critical T", 1.0, 0, [2.0, 1.0, 1.0], acc=0.7, acc_best=0.8),
    ]
    said = notes(finished)
    assert any(
        "digits, paper's T: at equal rates S(P) is 0.002 of its start after 50 epochs (near zero" in s for s in said
    )
    assert any("grows throughout in 1 of 2 runs and ends above its start in 2" in s for s in said)
    assert any("0.1: 0.830 / 0.800, 1: 0.800 / 0.450; its start, k-means: 0.790" in s for s in said)
    assert any(
        "digits, critical T: at equal rates S(P) is 0.5 of its start" in s and "(not near zero" in s for s in said
    )
    assert len(said) == 5  # nothing is said of slow encoders that were not run
