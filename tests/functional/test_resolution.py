"""How cold it must be for prototypes to stand apart, and a schedule that stays below it."""

from __future__ import annotations

import math

import pytest
import torch

import ddcl
from ddcl import CriticalSchedule, PrototypeBank
from ddcl.functional.resolution import LOOKED_AT

F64 = torch.float64


@pytest.mark.parametrize(("gradient", "share"), [("full", 1.0), ("stop", 0.5)])
def test_two_points_resolve_at_their_squared_distance_which_is_their_critical_temperature(gradient, share):
    z = torch.tensor([[1.0, 2.0], [4.0, 6.0]], dtype=F64)
    assert ddcl.resolving_temperature(z, gradient=gradient) == pytest.approx(25 * share)
    assert float(ddcl.critical_temperature(z, gradient=gradient)) == pytest.approx(25 * share)


@pytest.mark.parametrize(("relative", "apart"), [(0.9, True), (1.1, False)])
def test_soft_k_means_keeps_two_groups_apart_below_it_and_not_above(relative, apart):
    z = torch.tensor([[-1.0], [1.0]], dtype=F64)
    T = relative * ddcl.resolving_temperature(z, gradient="stop")
    bank = torch.tensor([[-0.1], [0.1]], dtype=F64)
    for _ in range(500):
        bank = ddcl.soft_kmeans_step(z, bank, T)
    assert (ddcl.separation(bank) > 0.01) == apart


def test_it_goes_with_the_square_of_the_scale_and_not_with_the_place():
    centers = torch.randn(23, 5, dtype=F64)
    found = ddcl.resolving_temperature(centers)
    torch.testing.assert_close(ddcl.resolving_temperature(1e-3 * centers), 1e-6 * found)
    torch.testing.assert_close(ddcl.resolving_temperature(centers + 1e4), found, rtol=1e-6, atol=0)


def test_every_head_has_its_own():
    banks = torch.randn(3, 7, 5) * torch.tensor([1.0, 2.0, 5.0])[:, None, None]
    found = ddcl.resolving_temperature(banks, gradient="stop")
    assert found.shape == (3,)
    for bank, one in zip(banks, found, strict=True):
        assert ddcl.resolving_temperature(bank, gradient="stop") == one


def test_one_accidental_pair_among_many_does_not_set_the_scale_and_many_do():
    line = 3 * torch.arange(41.0, dtype=F64)[:, None]
    assert ddcl.resolving_temperature(line) == pytest.approx(9)
    line[1] = line[0]
    assert ddcl.resolving_temperature(line) == pytest.approx(9)
    line[3], line[5] = line[2], line[4]
    assert ddcl.resolving_temperature(line) == 0


def test_a_bank_larger_than_what_is_looked_at_is_sampled_over_its_whole_length():
    # spacing 1 in the first half, 10 in the second: a twentieth falls short of 1 only if the first half is seen
    steps = torch.cat([torch.ones(LOOKED_AT), torch.full((LOOKED_AT,), 10.0)])
    bank = steps.cumsum(0)[:, None]
    assert ddcl.resolving_temperature(bank) == pytest.approx(1)
    assert ddcl.resolving_temperature(bank.flip(0)) == pytest.approx(1)
    assert ddcl.resolving_temperature(bank[LOOKED_AT:]) == pytest.approx(100)


def test_one_prototype_alone_is_apart_at_any_temperature():
    assert ddcl.resolving_temperature(torch.randn(1, 3)) == math.inf


@pytest.mark.bad_input
def test_what_is_no_bank_is_refused_by_name():
    with pytest.raises(ValueError, match=r"prototypes: got shape \(3,\)"):
        ddcl.resolving_temperature(torch.randn(3))
    with pytest.raises(ValueError, match="gradient: got 'half'"):
        ddcl.resolving_temperature(torch.randn(3, 2), gradient="half")


def line_bank(spacing: float, **options) -> PrototypeBank:
    bank = PrototypeBank(5, 1, dtype=F64, **options)
    with torch.no_grad():
        bank.prototypes.copy_(spacing * torch.arange(5.0)[:, None])
    return bank


@pytest.mark.parametrize(("gradient", "factor"), [("full", 1.0), ("stop", 0.5)])
def test_a_schedule_holds_t_below_a_multiple_of_what_the_bank_resolves_and_below_a_times_t_c(gradient, factor):
    z = torch.randn(211, 1, dtype=F64)
    critical = float(ddcl.critical_temperature(z, gradient=gradient))
    for spacing, expected in ((0.1, 0.5 * factor * 0.01), (100.0, 0.9 * critical)):
        bank = line_bank(spacing, gradient=gradient)
        CriticalSchedule(0.9, 0.9, steps=1, resolved=0.5).attach(bank).observe(z)
        bank(z)
        assert bank.temperature.item() == pytest.approx(expected, rel=1e-6)


def test_prototypes_that_come_near_each_other_cool_the_bank_at_the_next_look():
    z = 10 * torch.randn(211, 1, dtype=F64)
    bank = line_bank(3.0)
    schedule = CriticalSchedule(0.9, 0.9, steps=100, resolved=0.5).attach(bank).observe(z)
    bank(z)
    assert bank.temperature.item() == pytest.approx(0.5 * 9)
    with torch.no_grad():
        bank.prototypes *= 0.01
    bank(z)
    schedule.step()
    assert bank.temperature.item() == pytest.approx(0.5 * 9e-4)


def test_without_a_ceiling_they_do_not():
    z = 10 * torch.randn(211, 1, dtype=F64)
    bank = line_bank(1e-3)
    CriticalSchedule(0.9, 0.9, steps=100).attach(bank).observe(z)
    bank(z)
    assert bank.temperature.item() == pytest.approx(0.9 * float(ddcl.critical_temperature(z)), rel=1e-6)


def test_every_head_is_held_below_its_own():
    bank = PrototypeBank(5, 1, num_heads=2, dtype=F64)
    with torch.no_grad():
        bank.prototypes.copy_(torch.tensor([1.0, 2.0])[:, None, None] * torch.arange(5.0)[:, None])
    z = 100 * torch.randn(211, 2, 1, dtype=F64)
    CriticalSchedule(0.9, 0.9, steps=1, resolved=0.5).attach(bank).observe(z)
    bank(z)
    assert bank.temperature.tolist() == pytest.approx([0.5, 2.0])


def test_a_merged_bank_with_a_ceiling_keeps_a_positive_temperature():
    bank = line_bank(0.0)
    CriticalSchedule(0.9, 0.9, steps=1, resolved=0.5).attach(bank)
    bank(torch.randn(211, 1, dtype=F64))
    assert bank.temperature.item() > 0


def test_a_bank_of_one_prototype_follows_its_critical_temperature_under_a_ceiling_too():
    z = torch.randn(211, 3, dtype=F64)
    bank = PrototypeBank(1, 3, dtype=F64)
    CriticalSchedule(0.9, 0.9, steps=1, resolved=0.5).attach(bank).observe(z)
    bank(z)
    assert bank.temperature.item() == pytest.approx(0.9 * float(ddcl.critical_temperature(z)), rel=0.01)


def test_a_resumed_schedule_knows_its_ceiling():
    z = 10 * torch.randn(211, 1, dtype=F64)
    bank = line_bank(0.1)
    schedule = CriticalSchedule(0.9, 0.9, steps=100, resolved=0.5).attach(bank).observe(z)
    bank(z)
    schedule.step()
    # as a run is taken up again: a new bank elsewhere is attached first, then everything is loaded
    other = line_bank(50.0)
    resumed = CriticalSchedule(0.9, 0.9, steps=100, resolved=0.5).attach(other)
    other.load_state_dict(bank.state_dict())
    resumed.load_state_dict(schedule.state_dict())
    torch.testing.assert_close(other.temperature, bank.temperature)


def test_a_resumed_schedule_looks_at_the_same_steps():
    banks = [PrototypeBank(5, 3), PrototypeBank(5, 3)]
    schedule = CriticalSchedule(steps=100, every=8).attach(banks[0])
    for _ in range(35):  # past the steps that are all looked at, and not at one that is
        banks[0](torch.randn(31, 3))
        schedule.step()
    resumed = CriticalSchedule(steps=100, every=8).attach(banks[1])
    banks[1].load_state_dict(banks[0].state_dict())
    resumed.load_state_dict(schedule.state_dict())
    z = torch.randn(31, 3)
    for bank, one in zip(banks, (schedule, resumed), strict=True):
        bank(z)
        one.step()
    assert torch.equal(banks[0].temperature, banks[1].temperature)


@pytest.mark.bad_input
@pytest.mark.parametrize("resolved", [0.0, -1.0, math.inf, math.nan])
def test_a_ceiling_that_is_no_positive_number_is_refused_by_name(resolved):
    with pytest.raises(ValueError, match=f"resolved: got {resolved}"):
        CriticalSchedule(steps=1, resolved=resolved)
