"""What a fit chooses by itself: the number of prototypes, the effort, the temperature of the reading, the head."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ddcl.fitting.classes import UNLABELLED, split_classes
from ddcl.fitting.head import fit_head
from ddcl.fitting.reading import reading_temperature
from ddcl.fitting.settings import usual_effort
from ddcl.fitting.sizes import choose_size
from ddcl.functional import assignments, kmeans


def clusters(number, rows=300, dim=24, spread=0.03):
    centers = F.normalize(torch.randn(number, dim), dim=-1)
    return F.normalize(centers[torch.arange(rows) % number] + spread * torch.randn(rows, dim), dim=-1)


@pytest.mark.parametrize("number", [2, 3, 7])
def test_as_many_prototypes_as_there_are_groups_in_any_units(number):
    z = clusters(number)
    found = choose_size(z, seed=0, most=12)
    assert found.prototypes == number
    assert found.reason.startswith("of 2 to 12, the number that stays the same")
    assert choose_size(1000 * z + 5, seed=0, most=12).prototypes == number


def test_the_choice_stays_below_its_cap_and_the_number_of_rows():
    assert choose_size(clusters(9), seed=0, most=5).prototypes <= 5
    assert choose_size(torch.tensor([[0.0], [1.0], [5.0]]), seed=0).prototypes == 2


def test_effort_is_bounded_however_many_rows_there_are():
    small, large, huge = (usual_effort(rows, 100) for rows in (1000, 10**6, 10**9))
    assert (small.epochs, small.rows_per_epoch, small.batch_size) == (50, 1000, 1000)
    assert large == huge
    assert large.epochs * large.rows_per_epoch <= 2**19
    assert usual_effort(10**6, 1000).rows_measured >= 64 * 1000  # a prototype that is not drawn would look dead
    assert usual_effort(1000, 10, epochs=3).epochs == 3


def test_mixtures_are_read_where_they_rebuild_the_rows_best():
    torch.manual_seed(0)
    z = torch.rand(600, 2)  # no groups: rows lie between prototypes
    bank = kmeans(z, 9, generator=torch.Generator().manual_seed(0)).centers
    found = reading_temperature(z, bank)

    def lost(T):
        return float((z - assignments(z, bank, T) @ bank).square().sum(-1).mean())

    assert found.reconstruction == pytest.approx(lost(found.temperature), rel=1e-5)
    assert found.reconstruction < 0.95 * lost(1e-9)
    assert all(found.reconstruction <= lost(factor * found.temperature) for factor in (0.5, 2.0))
    assert found.temperature < found.critical


def test_groups_that_stand_apart_are_read_as_one_prototype_each():
    z = clusters(4)
    bank = kmeans(z, 4).centers
    shares = assignments(z, bank, reading_temperature(z, bank).temperature)
    assert shares.amax(-1).mean() > 0.95


def test_the_head_is_the_minimum_that_scikit_learn_finds():
    linear_model = pytest.importorskip("sklearn.linear_model")
    torch.manual_seed(0)
    mixtures = torch.randn(90, 4).softmax(-1)
    classes = (mixtures @ torch.randn(4, 3) + 0.3 * torch.randn(90, 3)).argmax(-1)
    head = fit_head(mixtures, classes, 3)
    rival = linear_model.LogisticRegression(C=10.0, max_iter=2000, tol=1e-8).fit(mixtures.numpy(), classes.numpy())
    found = head(mixtures).softmax(-1).detach().numpy()
    np.testing.assert_allclose(found, rival.predict_proba(mixtures.numpy()), atol=2e-3)


def test_a_tenth_is_held_out_and_every_class_keeps_a_row():
    labels = ["a"] * 60 + ["b"] * 38 + ["only one"] + [None] * 21 + ["two", "two"]
    classes = ("a", "b", "only one", "two")
    found = split_classes(labels, classes, 0.1, seed=3)
    assert len(found.held_out) == 10
    assert 98 not in found.held_out
    held = found.numbers[torch.from_numpy(found.held_out)]
    assert bool((held >= 0).all())
    assert int((held == 3).sum()) <= 1
    assert found.numbers[99:120].tolist() == [UNLABELLED] * 21
    assert found.held_out.tolist() == split_classes(labels, classes, 0.1, seed=3).held_out.tolist()
    assert found.held_out.tolist() != split_classes(labels, classes, 0.1, seed=4).held_out.tolist()
