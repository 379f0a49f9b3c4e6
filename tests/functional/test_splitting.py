"""Split margins in high dimensions, where the matrices are never built, and the Lanczos method behind them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import ddcl
from ddcl.functional import splitting
from ddcl.functional.largest_eigenpairs import largest_eigenpairs

F64 = torch.float64


def symmetric(K: int, m: int, rank: int) -> Tensor:
    """K random matrices of a rank, eigenvalues of both signs."""
    x = torch.randn(K, m, rank, dtype=F64)
    return x @ (torch.randn(K, rank, 1, dtype=F64) * x.mT)


@pytest.mark.parametrize(("K", "m", "rank"), [(5, 3, 3), (7, 31, 31), (3, 101, 4), (1, 1, 1)])
def test_largest_eigenpairs_are_those_of_the_matrices(K, m, rank):
    matrices = symmetric(K, m, rank)
    found = largest_eigenpairs(
        lambda x: torch.einsum("kij,kj->ki", matrices, x), torch.randn(K, m, dtype=F64), steps=m, tolerance=1e-12
    )
    torch.testing.assert_close(found.values, torch.linalg.eigvalsh(matrices)[:, -1])
    images = torch.einsum("kij,kj->ki", matrices, found.vectors)
    torch.testing.assert_close(images, found.values[:, None] * found.vectors)
    torch.testing.assert_close(found.vectors.norm(dim=-1), torch.ones(K, dtype=F64))


def test_matrices_that_are_done_wait_for_the_others():
    # one of rank nothing, one of rank one, one of full rank, in one call
    matrices = torch.stack([symmetric(1, 23, 23)[0], torch.zeros(23, 23, dtype=F64), torch.ones(23, 23, dtype=F64)])
    found = largest_eigenpairs(
        lambda x: torch.einsum("kij,kj->ki", matrices, x), torch.randn(3, 23, dtype=F64), tolerance=1e-12
    )
    torch.testing.assert_close(found.values, torch.linalg.eigvalsh(matrices)[:, -1])
    assert torch.isfinite(found.vectors).all()


def test_a_loose_tolerance_spares_products_and_still_bounds_the_value():
    matrices = symmetric(5, 97, 97)
    exact = torch.linalg.eigvalsh(matrices)

    def found(tolerance):
        start = torch.randn(5, 97, dtype=F64, generator=torch.Generator().manual_seed(0))
        return largest_eigenpairs(
            lambda x: torch.einsum("kij,kj->ki", matrices, x), start, steps=97, tolerance=tolerance
        )

    loose, tight = found(1e-2), found(1e-10)
    assert loose.products < tight.products
    assert (loose.values <= exact[:, -1] + 1e-9).all()
    # the value is off by the square of the residual over the gap, never by more than the residual
    assert ((exact[:, -1] - loose.values) <= 1e-2 * exact.abs().amax(-1)).all()


@pytest.mark.parametrize("gradient", ["full", "stop"])
@pytest.mark.parametrize(("T", "kept"), [(1.7, True), (1.7, False), (0.05, True), (0.05, False)])
def test_products_give_the_margins_that_matrices_give(gradient, T, kept, monkeypatch):
    # at the lower temperature most tokens weigh nothing in most cells, and each cell is worked on by itself
    z = torch.randn(211, 5, dtype=F64) * torch.tensor([3.0, 1.0, 1.0, 0.5, 0.1], dtype=F64) + 100
    bank = torch.cat([z[:18], z[:1]])  # two of them coincide
    sparse = (ddcl.assignments(z, bank, T) > 1e-12).double().mean() < 0.2
    assert bool(sparse) == (T < 1)
    dense = ddcl.split_modes(z, bank, T, gradient=gradient)
    monkeypatch.setattr(splitting, "WIDEST_DENSE", 1)
    if not kept:
        monkeypatch.setattr(splitting, "KEPT_NUMBERS", 0)
    by_products = ddcl.split_modes(iter(z.split(50)), bank, T, gradient=gradient)
    torch.testing.assert_close(by_products.margins, dense.margins)
    torch.testing.assert_close(by_products.mass, dense.mass)
    overlap = (by_products.directions * dense.directions).sum(-1).abs()
    torch.testing.assert_close(overlap, torch.ones_like(overlap))


def test_margins_in_many_dimensions_respect_masks_and_heads():
    z = torch.randn(83, 2, 71)  # wider than where matrices are built
    z[:, 1, 3] *= 4
    banks, mask = z[:7].transpose(0, 1).contiguous(), torch.arange(83) % 3 > 0
    margins = ddcl.split_margins(z, banks, torch.tensor([1.0, 2.0]), mask=mask)
    assert margins.shape == (2, 7)
    assert margins.dtype == F64
    for head, T in enumerate((1.0, 2.0)):
        torch.testing.assert_close(margins[head], ddcl.split_margins(z[mask, head], banks[head], T))
