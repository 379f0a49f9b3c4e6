"""Critical temperatures and split margins (theory: section 4)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import ddcl
from ddcl import critical_temperature, readout, split_margins

F64 = torch.float64


def stretched(n: int = 4000) -> Tensor:
    """Tokens with variances 4, 1 and 0.25 along rotated axes."""
    z = torch.randn(n, 3, dtype=F64) * torch.tensor([2.0, 1.0, 0.5], dtype=F64)
    return z @ torch.linalg.qr(torch.randn(3, 3, dtype=F64))[0] + 5


def spread_after_descent(z: Tensor, T: float, gradient: str, backend: str) -> tuple[float, float]:
    """The bank's extent before and after gradient descent from a near-collapsed start."""
    bank = (z.mean(0) + 1e-4 * torch.randn(4, z.shape[1], dtype=F64)).requires_grad_()
    start = (bank - bank.mean(0)).square().sum().item()
    for _ in range(1000):
        (grad,) = torch.autograd.grad(readout(z, bank, T, gradient=gradient, backend=backend).loss.total, bank)
        with torch.no_grad():
            bank -= 1.0 * grad
    return start, (bank - bank.mean(0)).square().sum().item()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["reference", "eager"])
@pytest.mark.parametrize(("gradient", "factor"), [("full", 4), ("stop", 2)])
def test_bank_splits_exactly_below_its_critical_temperature(gradient, factor, backend):
    z = stretched(300)
    critical = critical_temperature(z, gradient=gradient)
    largest = torch.linalg.eigvalsh(torch.cov(z.T, correction=0))[-1]
    torch.testing.assert_close(critical, factor * largest)
    start, below = spread_after_descent(z, 0.98 * float(critical), gradient, backend)
    assert below > 100 * start  # leaves the collapsed point
    start, above = spread_after_descent(z, 1.02 * float(critical), gradient, backend)
    assert above < 0.01 * start  # returns to it


@pytest.mark.parametrize("gradient", ["full", "stop"])
@pytest.mark.parametrize("copies", [2, 3])
def test_split_margins_are_half_the_hessian_along_the_splitting_direction(gradient, copies):
    # a group of coincident prototypes beside two others; two of the group move apart by +-delta
    z = stretched(200)
    others = torch.randn(2, 3, dtype=F64) * 2 + 5
    center = torch.randn(3, dtype=F64) + 5
    T = 3.0
    bank = torch.cat([center.expand(copies, 3), others])
    modes = ddcl.split_modes(z, bank, T, gradient=gradient)

    def summed_loss(delta: Tensor) -> Tensor:
        # move the whole group symmetrically: half of its weight one way, half the other
        weights = torch.zeros(copies, dtype=F64)
        weights[0], weights[1] = 1, -1
        moved = torch.cat([center + weights[:, None] * delta, others])
        # in mode stop the loss that is descended is the free energy
        terms = readout(z, moved, T, backend="reference").per_token
        return (terms.total if gradient == "full" else terms.free_energy).sum()

    hessian = torch.autograd.functional.hessian(summed_loss, torch.zeros(3, dtype=F64))
    # two of `copies` prototypes carry 2 / copies of the group's responsibility
    share = 2 / copies
    expected = torch.linalg.eigvalsh(hessian)[0] / 2 / share
    torch.testing.assert_close(modes.margins[:copies], expected.expand(copies))
    direction = torch.linalg.eigh(hessian)[1][:, 0]
    assert abs(float(modes.directions[0] @ direction)) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("gradient", "factor"), [("full", 4), ("stop", 2)])
def test_margins_of_a_merged_bank_change_sign_at_the_critical_temperature(gradient, factor):
    z = stretched()
    merged = z.mean(0).expand(5, 3)
    critical = float(critical_temperature(z, gradient=gradient))
    for a, sign in ((0.999, -1), (1.001, 1)):
        modes = ddcl.split_modes(z, merged, a * critical, gradient=gradient)
        assert (modes.margins.sign() == sign).all()
        torch.testing.assert_close(modes.mass, torch.full((5,), float(len(z)), dtype=F64))
        torch.testing.assert_close(modes.margins / modes.mass, torch.full((5,), 1 - 1 / a, dtype=F64))


def test_everything_is_the_same_from_a_tensor_from_batches_and_from_masked_batches():
    z = stretched(100).float()
    bank = torch.randn(4, 3)
    batches = list(z.split(33))
    padded = torch.full((2, 60, 3), float("nan"))
    mask = torch.zeros(2, 60, dtype=torch.bool)
    padded[0, :60], padded[1, :40] = z[:60], z[60:]
    mask[0, :60], mask[1, :40] = True, True
    reference = critical_temperature(z), split_margins(z, bank, 2.0), ddcl.covariance(z).matrix
    for data, m in ((batches, None), (iter(batches), None), (padded, mask), ([(padded, mask)], None)):
        data = list(data) if not isinstance(data, Tensor) else data
        found = (
            critical_temperature(data, mask=m),
            split_margins(data, bank, 2.0, mask=m),
            ddcl.covariance(data, mask=m).matrix,
        )
        torch.testing.assert_close(found, reference)


def test_heads_have_their_own_critical_temperatures():
    z = torch.randn(500, 2, 3) * torch.tensor([1.0, 3.0])[:, None]
    banks = torch.randn(2, 5, 3)
    found = critical_temperature(z, num_heads=2)
    torch.testing.assert_close(found, torch.stack([critical_temperature(z[:, h]) for h in range(2)]))
    T = torch.tensor([1.0, 2.0])
    margins = split_margins(z, banks, T)
    assert margins.shape == (2, 5)
    torch.testing.assert_close(margins[1], split_margins(z[:, 1], banks[1], 2.0))


def test_covariance_keeps_its_digits_far_from_the_origin():
    z = torch.randn(1000, 4, dtype=F64)
    near, far = ddcl.covariance(z), ddcl.covariance((z + 1e6).split(77))
    torch.testing.assert_close(near.matrix, far.matrix, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(near.trace, near.matrix.trace())
    assert near.num_tokens == 1000


def test_no_tokens_have_no_covariance():
    with pytest.raises(ValueError, match="no unmasked tokens"):
        critical_temperature(torch.randn(3, 2), mask=torch.zeros(3, dtype=torch.bool))


@pytest.mark.slow
@pytest.mark.parametrize("gradient", ["full", "stop"])
def test_above_the_critical_temperature_a_separated_bank_may_still_stand(gradient):
    # T_c is where the merged bank turns stable, not where every other resting place ends: a few tokens far away
    # keep a prototype of their own, at lower loss
    z = torch.cat([0.1 * torch.randn(990, 2, dtype=F64), 0.1 * torch.randn(10, 2, dtype=F64)])
    z[990:, 0] += 10
    T = 1.5 * float(critical_temperature(z, gradient=gradient))
    bank = torch.stack([z[:990].mean(0), z[990:].mean(0)]).requires_grad_()
    optimiser = torch.optim.SGD([bank], lr=0.5)
    for _ in range(3000):
        optimiser.zero_grad()
        readout(z, bank, T, gradient=gradient).loss.total.backward()
        optimiser.step()
    assert ddcl.separation(bank.detach()) > 50
    assert (split_margins(z, bank.detach(), T, gradient=gradient) > 0).all()
    merged = z.mean(0).expand(2, 2)
    assert readout(z, bank, T).loss.total < readout(z, merged, T).loss.total
    assert (split_margins(z, merged, T, gradient=gradient) > 0).all()  # stable too: near it a bank falls in
