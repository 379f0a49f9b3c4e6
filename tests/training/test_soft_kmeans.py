"""Running soft k-means as the way a bank moves."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

import ddcl
from ddcl import CriticalSchedule, PrototypeBank, SoftKMeans

F64 = torch.float64


def test_cell_moments_are_the_sums_they_say_from_a_tensor_batches_and_masks():
    z, banks, T = torch.randn(30, 2, 3, dtype=F64) + 50, torch.randn(2, 5, 3, dtype=F64) + 50, torch.tensor([0.5, 2.0])
    mask = torch.rand(30) > 0.3
    q = ddcl.assignments(z[mask], banks, T)
    mass = q.sum(0)
    pull = torch.einsum("nhk,nhm->hkm", q, z[mask]) - mass[..., None] * banks
    for data, m in ((z, mask), ([(z[:11], mask[:11]), (z[11:], mask[11:])], None)):
        found = ddcl.cell_moments(data, banks, T, mask=m)
        torch.testing.assert_close(found.mass, mass)
        torch.testing.assert_close(found.pull, pull)


def test_minus_twice_the_pull_is_the_gradient_of_mode_stop():
    z, bank = torch.randn(40, 3, dtype=F64), torch.randn(5, 3, dtype=F64, requires_grad=True)
    (grad,) = torch.autograd.grad(ddcl.readout(z, bank, 0.8, gradient="stop").per_token.total.sum(), bank)
    torch.testing.assert_close(grad, -2 * ddcl.cell_moments(z, bank.detach(), 0.8).pull)


def test_steps_never_raise_the_free_energy_and_end_where_the_gradient_vanishes():
    z, bank = torch.randn(200, 3, dtype=F64), torch.randn(6, 3, dtype=F64)
    energies = []
    for _ in range(300):
        energies.append(float(ddcl.readout(z, bank, 0.5).loss.free_energy))
        bank = ddcl.soft_kmeans_step(z, bank, 0.5)
    assert all(b <= a + 1e-12 for a, b in pairwise(energies))
    bank.requires_grad_()
    (grad,) = torch.autograd.grad(ddcl.readout(z, bank, 0.5, gradient="stop").loss.total, bank)
    assert grad.abs().max() < 1e-3


def test_with_no_memory_the_mover_takes_plain_steps():
    z, start = torch.randn(60, 3), torch.randn(5, 3)
    bank = PrototypeBank(5, 3, temperature=0.5)
    with torch.no_grad():
        bank.prototypes.copy_(start)
    mover = SoftKMeans(momentum=0.0).attach(bank)
    bank(z)
    mover.step()
    torch.testing.assert_close(bank.prototypes[0].detach(), ddcl.soft_kmeans_step(z, start, 0.5))


def test_batches_are_averaged_and_masked_tokens_left_out():
    bank = PrototypeBank(1, 2, num_heads=3, temperature=1.0)
    mover = SoftKMeans(momentum=0.5).attach(bank)
    first, second = torch.full((4, 3, 2), 1.0), torch.full((4, 3, 2), 4.0)
    second[2:] = float("nan")
    bank(first)
    bank(second, torch.tensor([True, True, False, False]))
    mover.step()
    # masses 4 and 2, the older halved once: (4 * 1 + 2 * 2 * 4) / (4 + 2 * 2)
    torch.testing.assert_close(bank.prototypes.detach(), torch.full((3, 1, 2), 20 / 8))


def test_the_bank_takes_no_gradient_while_attached_and_tokens_do():
    bank = PrototypeBank(4, 3)
    mover = SoftKMeans().attach(bank)
    z = torch.randn(9, 3, requires_grad=True)
    bank(z).loss.total.backward()
    assert bank.prototypes.grad is None
    assert z.grad.abs().sum() > 0
    mover.detach()
    assert bank.prototypes.requires_grad
    before = bank.prototypes.detach().clone()
    bank(z)
    mover.step()
    assert torch.equal(bank.prototypes.detach(), before)


def test_a_prototype_that_holds_nothing_stays():
    bank = PrototypeBank(2, 1, temperature=1e-3)
    with torch.no_grad():
        bank.prototypes.copy_(torch.tensor([[[0.0], [1e4]]]))
    mover = SoftKMeans(0.0).attach(bank)
    bank(torch.tensor([[0.5], [0.7]]))
    mover.step()
    torch.testing.assert_close(bank.prototypes.detach().flatten(), torch.tensor([0.6, 1e4]))


def test_state_goes_with_a_checkpoint():
    bank, z = PrototypeBank(4, 3, temperature=1.0), torch.randn(50, 3)
    mover = SoftKMeans(0.7).attach(bank)
    bank(z)
    saved = mover.state_dict()
    mover.step()
    expected = bank.prototypes.detach().clone()
    other = SoftKMeans(0.7).attach(bank)
    other.load_state_dict(saved)
    other.step()
    torch.testing.assert_close(bank.prototypes.detach(), expected)
    with pytest.raises(ValueError, match="state: it knows banks"):
        other.load_state_dict({"elsewhere": {}})


def run(z: torch.Tensor, K: int, merged: bool = False) -> PrototypeBank:
    """Cool a bank on fixed data: the schedule and the mover together."""
    torch.manual_seed(0)
    bank = PrototypeBank(K, z.shape[1], gradient="stop", dtype=z.dtype)
    bank.init_from(z, restarts=1, generator=torch.Generator().manual_seed(0))
    if merged:
        spread = ddcl.covariance(z).trace.sqrt().to(z.dtype)
        with torch.no_grad():
            bank.prototypes.copy_(z.mean(0) + 1e-6 * spread * torch.randn(K, z.shape[1], dtype=z.dtype))
    schedule = CriticalSchedule(0.95, 0.02, steps=250).attach(bank).observe(z)
    mover = SoftKMeans(momentum=0.0).attach(bank)
    for _ in range(300):
        bank(z)
        mover.step()
        schedule.step()
    return bank


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_the_scale_of_the_data_changes_no_assignment(scale):
    z = torch.randn(400, 8, dtype=F64)
    reference = run(z, 10)(z).indices
    assert torch.equal(run(scale * z, 10)(scale * z).indices, reference)
    single = z.float()
    agree = run(scale * single, 10)(scale * single).indices == run(single, 10)(single).indices
    assert agree.float().mean() >= 0.999


def test_a_merged_bank_recovers_without_any_restart():
    centers = 5 * torch.randn(12, 6, dtype=F64)
    z = (centers[:, None] + 0.3 * torch.randn(12, 40, 6, dtype=F64)).flatten(0, 1)
    bank = run(z, 12, merged=True)
    assert ddcl.distinct_prototypes(bank.prototypes[0], ddcl.covariance(z).trace) >= 0.95 * 12
    assert ddcl.usage(bank(z).indices, 12).usage >= 0.9


def test_bad_settings_and_models_without_banks_are_refused():
    with pytest.raises(ValueError, match=r"momentum: got 1\.0"):
        SoftKMeans(1.0)
    with pytest.raises(ValueError, match="holds no PrototypeBank"):
        SoftKMeans().attach(nn.Linear(2, 2))


def revived(share, *, steps=60, heads=1):
    """Two tight groups; of four prototypes one is far from any token."""
    torch.manual_seed(0)
    z = torch.cat([torch.randn(200, heads, 2) - 6, torch.randn(200, heads, 2) + 6])
    bank = PrototypeBank(num_prototypes=4, dim=2, num_heads=heads, temperature=0.1)
    places = torch.tensor([[-6.0, -6.0], [6.0, 6.0], [6.5, 6.5], [100.0, 100.0]])
    bank.move_to(places.expand(heads, -1, -1).clone())
    z = z if heads > 1 else z[:, 0]
    mover = SoftKMeans(0.5, revive=share, every=5).attach(bank)
    for _ in range(steps):
        bank(z)
        mover.step()
    return bank, z


@pytest.mark.parametrize("heads", [1, 3])
def test_a_prototype_that_holds_nothing_is_revived_where_distortion_lies(heads):
    left, z = revived(0.0, heads=heads)
    bank, _ = revived(0.1, heads=heads)
    for one, expected in ((left, 0.75), (bank, 1.0)):
        indices = one(z).indices.reshape(-1, heads)
        assert all(ddcl.usage(indices[:, head], 4).usage == expected for head in range(heads))
    assert float(bank(z).loss.quantization) < float(left(z).loss.quantization)


def test_a_bank_whose_cells_are_all_heavy_is_left_as_it_is():
    torch.manual_seed(0)
    z = torch.randn(400, 2)
    banks = []
    for share in (0.0, 0.05):
        bank = PrototypeBank(num_prototypes=4, dim=2, temperature=0.1)
        bank.init_from(z, generator=torch.Generator().manual_seed(0))
        mover = SoftKMeans(0.5, revive=share, every=1).attach(bank)
        for _ in range(10):
            bank(z)
            mover.step()
        banks.append(bank.prototypes.detach())
    assert torch.equal(*banks)


@pytest.mark.parametrize(("relieve", "place"), [("mass", 0.0), ("distortion", 10.0)])
def test_the_cell_that_is_halved_carries_the_most_of_what_was_asked_for(relieve, place):
    torch.manual_seed(0)
    many_close, few_apart = 0.1 * torch.randn(300, 2), torch.tensor([10.0, 0.0]) + 2 * torch.randn(50, 2)
    bank = PrototypeBank(3, 2, temperature=1e-3)
    bank.move_to(torch.tensor([[[0.0, 0.0], [10.0, 0.0], [500.0, 0.0]]]))
    mover = SoftKMeans(0.0, revive=0.1, every=1, relieve=relieve).attach(bank)
    bank(torch.cat([many_close, few_apart]))
    mover.step()
    assert float(bank.prototypes[0, 2, 0]) == pytest.approx(place, abs=3)


@pytest.mark.bad_input
def test_what_is_revived_is_checked():
    with pytest.raises(ValueError, match=r"relieve: got 'weight', expected one of"):
        SoftKMeans(relieve="weight")
    with pytest.raises(ValueError, match=r"revive: got 1\.5, expected a number from 0 to below 1"):
        SoftKMeans(revive=1.5)
