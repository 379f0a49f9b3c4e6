"""Rows from an array on the disk: everything is drawn, nothing twice in a walk, and only what is asked for is read."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ddcl.fitting import batches
from ddcl.fitting.batches import Rows, ShuffledBatches


@pytest.fixture
def numbered():
    return Rows(np.arange(103 * 3, dtype=np.float64).reshape(103, 3), normalise=False)


def drawn(walk):
    return [int(number) for batch in walk for number in batch[:, 0] / 3]


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_walk_draws_every_row_once_in_another_order_each_time(numbered, monkeypatch, in_memory):
    if not in_memory:
        monkeypatch.setattr(batches, "IN_MEMORY", 0)
    walk = ShuffledBatches(numbered, 32, 103)
    first, second = drawn(walk), drawn(walk)
    assert sorted(first) == sorted(second) == list(range(103))
    assert first != second
    assert len(list(walk)) == len(walk) == 4
    assert walk.block == (1 if in_memory else 16)


def test_the_random_state_of_torch_decides_the_order(numbered):
    walk = ShuffledBatches(numbered, 32, 103)
    state = torch.get_rng_state()
    first = drawn(walk)
    torch.set_rng_state(state)
    assert drawn(walk) == first


def test_a_short_walk_draws_some_rows_and_only_those_chosen(numbered):
    chosen = np.arange(0, 103, 2)
    walk = ShuffledBatches(numbered, 8, 20, chosen=chosen)
    found = drawn(walk)
    assert len(found) == len(set(found)) == 20
    assert set(found) <= set(chosen.tolist())
    assert set(drawn(walk)) != set(found)


def test_samples_are_even_repeatable_and_of_those_chosen(numbered):
    sample = numbered.sample(50, seed=1)
    assert torch.equal(sample, numbered.sample(50, seed=1))
    assert not torch.equal(sample, numbered.sample(50, seed=2))
    assert set(drawn([numbered.sample(9, 0, np.array([5, 7]))])) == {5, 7}
    assert drawn(numbered.in_order(10)) == list(range(103))


def test_rows_are_brought_to_length_one_where_asked():
    rows = Rows(np.array([[3.0, 4.0], [0.0, 2.0]]), normalise=True)
    torch.testing.assert_close(rows.at(slice(None)), torch.tensor([[0.6, 0.8], [0.0, 1.0]]))
