"""The baseline a head is compared with: fair wherever the rows lie, and never the end of a run."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ddcl.fitting.batches import Rows
from ddcl.fitting.classes import Classes
from ddcl.fitting.classifying import accuracies, logistic_regression


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_logistic_regression_is_as_good_in_any_units_and_far_from_the_origin(offset, scale):
    random = np.random.default_rng(0)
    of = np.arange(400) % 4
    z = (scale * (4 * np.eye(4, 8)[of] + random.normal(size=(400, 8)) + offset)).astype(np.float32)
    found = logistic_regression(z[:300], of[:300])(z[300:])
    assert np.mean(found == of[300:]) > 0.9


def test_a_class_that_is_rare_beyond_the_draw_is_drawn_all_the_same(monkeypatch):
    monkeypatch.setattr("ddcl.fitting.classifying.BASELINE_ROWS", 20)
    z = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    numbers = torch.zeros(500, dtype=torch.long)
    numbers[123] = 1
    found = accuracies(Rows(z, normalise=False), Classes(numbers, np.arange(450, 500)), torch.zeros(500), seed=0)
    assert found["logistic_regression"] == 1.0
    assert found["logistic_regression_rows"] > 20  # one of each class was added
