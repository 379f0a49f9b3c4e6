"""Separation, barrier, distinct prototypes, usage: each against a count or a formula done by hand."""

from __future__ import annotations

import math

import pytest
import torch

import ddcl
from ddcl.ops import blocks


@pytest.mark.parametrize("block", [2**20, 8])
def test_separation_is_the_smallest_squared_distance_per_head(block, monkeypatch):
    monkeypatch.setitem(blocks.BLOCK_NUMBERS, "cpu", block)
    banks = torch.randn(3, 7, 5, dtype=torch.float64)
    pairs = torch.cdist(banks, banks).square() + torch.eye(7) * 1e9
    torch.testing.assert_close(ddcl.separation(banks), pairs.amin((1, 2)))
    torch.testing.assert_close(ddcl.separation(banks[1]), pairs[1].min())


def test_separation_of_one_prototype_is_infinite_and_of_duplicates_zero():
    assert ddcl.separation(torch.randn(1, 4)) == math.inf
    assert ddcl.separation(torch.ones(3, 4)) == 0


def test_separation_is_exact_for_close_prototypes_far_from_the_origin():
    bank = torch.tensor([[1000.0, 0.0], [1000.001, 0.0], [2000.0, 0.0]])
    expected = float(bank[1, 0].double() - bank[0, 0].double()) ** 2
    assert float(ddcl.separation(bank)) == pytest.approx(expected, rel=1e-6)


def test_separation_has_the_gradient_of_its_closest_pair():
    bank = torch.tensor([[0.0], [1.0], [5.0]], requires_grad=True)
    ddcl.separation(bank).backward()
    torch.testing.assert_close(bank.grad, torch.tensor([[-2.0], [2.0], [0.0]]))


@pytest.mark.parametrize("block", [2**20, 8])
def test_barrier_is_the_papers_sum_with_its_gradient(block, monkeypatch):
    monkeypatch.setitem(blocks.BLOCK_NUMBERS, "cpu", block)
    banks = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)

    def by_hand(P: torch.Tensor) -> torch.Tensor:
        pairs = [(h, j, k) for h in range(2) for j in range(5) for k in range(5) if j != k]
        return 0.7 / 2 * sum(1 / (P[h, j] - P[h, k]).square().sum() for h, j, k in pairs)

    torch.testing.assert_close(ddcl.barrier(banks, 0.7), by_hand(banks))
    torch.testing.assert_close(
        torch.autograd.grad(ddcl.barrier(banks, 0.7), banks), torch.autograd.grad(by_hand(banks), banks)
    )
    assert ddcl.barrier(torch.ones(2, 3), 1.0) == math.inf
    assert ddcl.barrier(torch.randn(1, 3), 1.0) == 0


@pytest.mark.parametrize("strength", [-1.0, math.nan, math.inf])
def test_barrier_refuses_a_bad_strength(strength):
    with pytest.raises(ValueError, match="strength: got"):
        ddcl.barrier(torch.randn(3, 2), strength)


@pytest.mark.parametrize("block", [2**20, 8])
def test_distinct_prototypes_counts_groups_once_even_through_chains(block, monkeypatch):
    monkeypatch.setitem(blocks.BLOCK_NUMBERS, "cpu", block)
    chain = torch.arange(6.0)[:, None] * 0.9  # neighbours within 1, ends not
    bank = torch.cat([chain.flip(0), torch.tensor([[100.0], [100.5], [200.0]])])
    assert ddcl.distinct_prototypes(bank, scale=1.0, tolerance=1.0) == 3
    assert ddcl.distinct_prototypes(bank, scale=1.0, tolerance=0.1) == 9
    assert ddcl.distinct_prototypes(torch.zeros(5, 2), scale=1.0) == 1


def test_distinct_prototypes_takes_a_scale_per_head():
    banks = torch.tensor([[[0.0], [1.0]], [[0.0], [1.0]]])
    assert ddcl.distinct_prototypes(banks, scale=torch.tensor([1.0, 1e7])).tolist() == [2, 1]


def test_usage_counts_winners_and_leaves_masked_tokens_out():
    found = ddcl.usage(torch.tensor([[0, 0, 1, -1], [3, 3, 3, -1]]), num_prototypes=8)
    assert found.usage == 3 / 8
    assert found.counts.tolist() == [2, 1, 0, 3, 0, 0, 0, 0]
    p = torch.tensor([2, 1, 3]) / 6
    torch.testing.assert_close(found.perplexity, torch.exp(-(p * p.log()).sum()))


def test_usage_over_batches_is_that_of_their_union():
    indices = torch.randint(0, 5, (100,))
    together, split = ddcl.usage(indices, 7), ddcl.usage(indices.split(9), 7)
    assert torch.equal(together.counts, split.counts)
    assert ddcl.usage([], 4).perplexity == 0


def test_usage_has_a_row_per_head():
    indices = torch.tensor([[0, 1], [0, 2], [0, 2]])
    found = ddcl.usage(indices, 3, num_heads=2)
    assert found.counts.tolist() == [[3, 0, 0], [0, 1, 2]]
    torch.testing.assert_close(found.usage, torch.tensor([1 / 3, 2 / 3]))


@pytest.mark.parametrize("bad", [torch.tensor([0, 5]), torch.tensor([-2])])
def test_usage_refuses_indices_out_of_range(bad):
    with pytest.raises(ValueError, match="indices: got values from"):
        ddcl.usage(bad, 5)


def test_usage_counts_in_any_integer_type():
    for dtype, K in ((torch.uint8, 256), (torch.int8, 128), (torch.int32, 300)):
        assert ddcl.usage(torch.full((10,), K - 1, dtype=dtype), K).counts.sum() == 10


def test_half_precision_banks_are_measured_in_float32():
    assert ddcl.separation(torch.tensor([[0.0], [300.0]]).half()) == 90_000
    assert float(ddcl.barrier(torch.tensor([[0.0], [0.003]]).half(), 1.0)) == pytest.approx(1 / 0.003**2, rel=0.01)


@pytest.mark.bad_input
def test_usage_refuses_floats():
    with pytest.raises(TypeError, match="indices: got dtype"):
        ddcl.usage(torch.rand(3), 5)


def test_a_merged_bank_passes_the_papers_figure_and_no_honest_one():
    z = torch.randn(300, 4)
    merged = torch.zeros(16, 4) + z.mean(0)
    soft = ddcl.soft_usage(z, merged, 1.0)
    assert soft.paper_usage == 1
    assert soft.perplexity == pytest.approx(16)
    assert ddcl.distinct_prototypes(merged, ddcl.covariance(z).trace) == 1
    assert ddcl.usage(ddcl.readout(z, merged, 1.0).indices, 16).usage == 1 / 16


def test_soft_usage_is_the_mean_of_the_assignments_over_all_unmasked_tokens():
    z, banks = torch.randn(10, 2, 3), torch.randn(2, 4, 3)
    mask = torch.arange(10) % 3 > 0
    q = ddcl.assignments(z[mask], banks, 0.5)
    batches = [(z[:4], mask[:4]), (z[4:], mask[4:])]
    for found in (ddcl.soft_usage(z, banks, 0.5, mask=mask), ddcl.soft_usage(batches, banks, 0.5)):
        torch.testing.assert_close(found.mean_assignment, q.mean(0))
