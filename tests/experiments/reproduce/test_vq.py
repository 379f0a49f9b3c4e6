"""Table 5 on pictures small enough for a test."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from ddcl.experiments.reproduce.bottleneck import STARTS, rank_correlation
from ddcl.experiments.reproduce.bottleneck import notes as bottleneck_notes
from ddcl.experiments.reproduce.study import Done
from ddcl.experiments.reproduce.vq import STUDY
from ddcl.experiments.reproduce.vq.measuring import EpochCounts, evaluate, psnr
from ddcl.experiments.reproduce.vq.quantisers import METHODS, VARIANTS, Coded, build
from ddcl.experiments.reproduce.vq.settings import Settings
from ddcl.experiments.reproduce.vq.study import OURS, PAPER, _epochs_to_all
from ddcl.experiments.reproduce.vq.training import Autoencoder, train

SMALL = Settings(quantiser=OURS, num_codes=16, epochs=2, batch=32, width=16)


@pytest.fixture(scope="module")
def pictures():
    """Patches of three colours on a ground of a fourth: something that a few codes can say."""
    generator = torch.Generator().manual_seed(0)
    colours = torch.randint(256, (4, 3), generator=generator)
    cells = torch.randint(4, (128, 8, 8), generator=generator)
    return colours[cells].repeat_interleave(4, 1).repeat_interleave(4, 2).to(torch.uint8)


@pytest.mark.parametrize("name", [*METHODS, *VARIANTS])
def test_every_quantiser_trains_and_is_measured(name, pictures):
    trained = train(pictures, replace(SMALL, quantiser=name, epochs=1), 0, "cpu")
    figures = evaluate(trained.model, pictures[:32], "cpu")
    assert 0 < figures["mse"] < 1
    assert 1 <= figures["perplexity"] <= trained.model.quantiser.num_codes
    assert trained.epochs["epoch"] == [1]


def test_training_lowers_the_error(pictures):
    trained = train(pictures, replace(SMALL, epochs=8, lr=3e-3), 0, "cpu")
    errors = trained.epochs["train_mse"]
    assert errors[-1] < 0.7 * errors[0]


def test_the_default_bank_follows_its_tokens_by_soft_kmeans_at_a_falling_temperature(pictures):
    trained = train(pictures, SMALL, 0, "cpu")
    quantiser = trained.model.quantiser
    assert not quantiser.quantizer.bank.prototypes.requires_grad
    before, after = quantiser.schedule.at(0)[0], quantiser.schedule.at(10**6)[0]
    assert after < before < 1


def test_the_papers_recipe_is_soft_absolute_and_slow(pictures):
    model = Autoencoder(replace(SMALL, quantiser=PAPER), "cpu")
    quantiser = model.quantiser
    quantiser.start(torch.randn(64, SMALL.dim), 10, 5)
    assert float(quantiser.quantizer.bank.temperature) == pytest.approx(2.0)
    quantiser.after_epoch()
    assert float(quantiser.quantizer.bank.temperature) == pytest.approx(2.0 * np.exp(-1 / 20))
    assert quantiser.quantizer.mode == "soft"
    assert quantiser.slow_rate == pytest.approx(0.1 * quantiser.fast_rate)


def test_hard_values_are_codes(pictures):
    quantiser = build(PAPER, 8, 4, "cpu").eval()
    quantiser.start(torch.randn(64, 4), 10, 5)
    z = torch.randn(20, 4)
    found = quantiser.hard(z)
    codes = quantiser.quantizer.bank.prototypes[0]
    assert torch.equal(found.value, codes[found.indices])
    assert found.soft is not None
    assert not torch.allclose(found.soft, found.value)


def test_an_unknown_quantiser_is_named_with_those_there_are():
    with pytest.raises(ValueError, match=r"quantiser: got 'VQ', expected one of straight-through VQ"):
        build("VQ", 8, 4, "cpu")


def test_counts_of_an_epoch():
    counts = EpochCounts(4, "cpu")
    counts.add(Coded(torch.zeros(3, 2), torch.tensor([0, 0, 1]), torch.zeros(())), torch.tensor(0.5))
    counts.add(Coded(torch.zeros(1, 2), torch.tensor([1]), torch.zeros(())), torch.tensor(0.3))
    found = counts.read()
    assert found["usage"] == 0.5
    assert found["perplexity"] == pytest.approx(2.0)
    assert found["train_mse"] == pytest.approx(0.4)
    assert counts.read()["usage"] == 0  # it has started again


def test_decibels():
    assert psnr(torch.tensor([0.01])).tolist() == pytest.approx([20.0])


def test_epochs_until_all_codes_were_used():
    assert _epochs_to_all([0.5, 1.0, 0.9]) == 2
    assert _epochs_to_all([0.5, 0.9]) == float("inf")


def test_a_full_study_has_every_method_at_every_size():
    runs = STUDY.runs(False, 3)
    assert len(runs) == len(set(runs)) == 3 * 4 * len(METHODS)
    assert {run.settings.epochs for run in runs} == {15}


def done(case, method, **metrics):
    return Done({"case": case, "method": method, "seed": 0, "settings": {}}, metrics, {}, 1.0, {})


def test_verdicts_come_from_the_numbers():
    rival = "EMA, k-means start, restarts"
    ours = {"relative_perplexity": 0.95, "gap": 0.01}
    better = [done("K = 64", rival, mse=0.006), done("K = 64", OURS, mse=0.005, **ours)]
    (said,) = STUDY.notes(better)
    assert said.count("met") == 3
    assert "missed" not in said
    worse = [done("K = 64", rival, mse=0.004), done("K = 64", OURS, mse=0.005, relative_perplexity=0.8, gap=0.03)]
    (said,) = STUDY.notes(worse)
    assert said.count("missed") == 3


def test_every_start_is_a_quantiser_there_is():
    assert set(STARTS) <= {*METHODS, *VARIANTS}


def test_early_use_against_late_error():
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == -1
    assert rank_correlation([1, 1], [1, 2]) == 0
    finished = [done("K = 64", a, first_usage=1.0, mse=e) for a, e in ((STARTS[0], 0.009), (STARTS[-1], 0.005))]
    said = bottleneck_notes(finished)
    assert "+0.00" in said[0]
    assert f"5.00 ({STARTS[-1]}) to 9.00 ({STARTS[0]})" in said[1]
