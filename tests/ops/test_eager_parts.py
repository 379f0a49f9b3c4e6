"""What the eager backend does differently on a CPU, each against the plain way."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ddcl import ops
from ddcl.ops import TokenTerms, registration
from ddcl.ops.eager.products import as_right_factor, sum_of_rows
from ddcl.ops.eager.winners import has_fast_winners, winners

TERMS = TokenTerms._fields[:-1]


def deficits(scores: Tensor) -> Tensor:
    return scores - scores.amax(-1, keepdim=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("K", [1, 32, 64, 127])
def test_winners_are_the_first_of_the_largest(K, dtype):
    scores = torch.randint(0, 1 + K // 4, (4099, K)).to(dtype)  # many ties
    expected = (scores == scores.amax(-1, keepdim=True)).int().argmax(-1)
    assert torch.equal(winners(deficits(scores), torch.empty_like(scores)), expected)
    merged = torch.zeros(3, K, dtype=dtype)  # all of them largest
    assert torch.equal(winners(merged, torch.empty_like(merged)), torch.zeros(3, dtype=torch.int64))


def test_each_of_the_most_prototypes_can_win():
    scores = torch.eye(127)
    assert torch.equal(winners(deficits(scores), torch.empty_like(scores)), torch.arange(127))


def test_a_row_of_nan_gets_an_index_that_exists():
    scores = torch.randn(5, 37)
    scores[2] = float("nan")
    found = winners(deficits(scores), torch.empty_like(scores))
    assert 0 <= int(found[2]) < 37
    others = torch.tensor([0, 1, 3, 4])
    assert torch.equal(found[others], scores[others].argmax(-1))


def test_indices_of_a_large_block_are_those_of_the_smallest_distances():
    N, K, m = 2**14, 37, 5
    assert has_fast_winners(torch.empty(N, K))
    z, bank = torch.randn(N, 1, m), torch.randn(1, K, m)
    z[7] = float("nan")  # reaches its own outputs only
    found = ops.readout(z, bank, torch.ones(1, 1), None, "full", "eager")
    whole = torch.arange(N) != 7
    exact = torch.cdist(z[whole, 0].double(), bank[0].double())
    chosen = exact.gather(1, found.indices[whole]).squeeze(1)
    torch.testing.assert_close(chosen, exact.amin(-1), rtol=1e-5, atol=1e-5)
    assert all(getattr(found, name)[whole].isfinite().all() for name in TERMS)
    assert found.total[7].isnan().all()


@pytest.mark.parametrize(("rows", "shape"), [(1, (3, 5)), (2**13, (64, 48)), (2**13, (64, 16)), (2**13, (512, 256))])
def test_a_right_factor_has_the_same_numbers_in_whatever_order(rows, shape):
    matrix = torch.randn(shape)
    for given in (matrix, matrix.mT.contiguous().mT):
        assert torch.equal(as_right_factor(given, rows), matrix)


@pytest.mark.parametrize("rows", [0, 1, 4096, 9001])
def test_the_sum_of_rows_has_every_row_once(rows):
    values = torch.randn(rows, 7, dtype=torch.float64)
    torch.testing.assert_close(sum_of_rows(values), values.sum(0))


@pytest.mark.parametrize("shape", [(5, 3), (3, 9)], ids=["V from norms", "V from pairs"])
@pytest.mark.parametrize("T", [1e-38, 1e-20, 1e-6, 0.7, 1.0, 1e6, 1e20, 1e37])
def test_one_temperature_for_all_gives_what_the_same_for_each_token_does(T, shape):
    # the first may be put into the bank before the products, the second not
    z, bank = torch.randn(11, 1, shape[1], requires_grad=True), torch.randn(1, *shape, requires_grad=True)
    results = []
    for rows in (1, 11):
        terms = ops.readout(z, bank, torch.full((rows, 1), T), None, "full", "eager")
        grads = torch.autograd.grad(terms.total.sum() + terms.centroid.square().sum(), (z, bank))
        results.append((*terms, *grads))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("gradient", ops.GRADIENTS)
@pytest.mark.parametrize("names", [TERMS, *((name,) for name in TERMS[1:])], ids=str)
def test_a_mean_over_tokens_has_the_gradient_of_its_terms(names, gradient):
    # a mean hands down one number expanded over the tokens, a sum of products one number for each
    N, H = 13, 2
    inputs = [torch.randn(N, H, 5), torch.randn(H, 7, 5), torch.rand(1, H) + 0.5]
    inputs = [x.double().requires_grad_() for x in inputs]
    terms = ops.readout(*inputs, None, gradient, "eager")
    even = torch.full((N, H), 1 / (N * H), dtype=torch.float64)
    expanded = sum(getattr(terms, name).sum() / (N * H) for name in names)
    spelled_out = sum((getattr(terms, name).flatten(1) * even[:, :1]).sum() for name in names)
    for one, other in zip(
        torch.autograd.grad(expanded, inputs, retain_graph=True, allow_unused=True),
        torch.autograd.grad(spelled_out, inputs, allow_unused=True),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("T", [0.7, 1e-38], ids=["T in the bank", "T apart"])
def test_assignments_computed_again_are_those_that_were_kept_to_the_bit(T, monkeypatch):
    # compiled code keeps none: it must not train differently
    z, bank = torch.randn(29, 1, 5, requires_grad=True), torch.randn(1, 7, 5, requires_grad=True)
    results = []
    for bound in (10**9, 0):
        monkeypatch.setattr(registration, "KEPT_NUMBERS", bound)
        terms = ops.readout(z, bank, torch.full((1, 1), T), None, "full", "eager")
        results.append(torch.autograd.grad(terms.total.sum() + terms.centroid.square().sum(), (z, bank)))
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))
