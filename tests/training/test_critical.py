"""The critical temperature autopilot: the right T_c, followed without waiting, whatever the scale."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import ddcl
from ddcl import CriticalSchedule, DDCLAttention, PrototypeBank, RunningMoments

F64 = torch.float64


def test_running_moments_of_one_batch_are_exact():
    z = torch.randn(300, 2, 5, dtype=F64) @ torch.randn(5, 5, dtype=F64) + 100
    moments = RunningMoments(2, 5, dtype=F64)
    for _ in range(60):  # the same batch again and again: the power steps converge
        moments.update(z)
    exact = ddcl.covariance(z, num_heads=2)
    torch.testing.assert_close(moments.mean, exact.mean)
    torch.testing.assert_close(moments.matrix, exact.matrix)
    torch.testing.assert_close(moments.largest, exact.largest, rtol=1e-6, atol=0)
    torch.testing.assert_close(moments.trace, exact.trace)


def test_the_first_batches_are_averaged_plainly_including_their_different_means():
    batches = [torch.randn(50, 1, 3, dtype=F64) + 10 * k for k in range(4)]
    moments = RunningMoments(1, 3, dtype=F64)
    for batch in batches:
        moments.update(batch)
    exact = ddcl.covariance(torch.cat(batches)[:, 0])
    torch.testing.assert_close(moments.matrix[0], exact.matrix)


def test_old_tokens_are_forgotten_when_the_encoder_changes_scale():
    moments = RunningMoments(1, 3, momentum=0.9)
    for scale in (10.0, 0.1):
        for _ in range(200):
            moments.update(scale * torch.randn(200, 1, 3))
        assert float(moments.largest) == pytest.approx(scale**2, rel=0.2)


def test_masked_tokens_are_not_seen_and_a_fully_masked_batch_changes_nothing():
    z = torch.randn(40, 1, 3, dtype=F64)
    mask = torch.rand(40) > 0.4
    z[~mask] = float("nan")
    moments = RunningMoments(1, 3, dtype=F64)
    moments.update(z, mask)
    torch.testing.assert_close(moments.matrix[0], ddcl.covariance(z[:, 0], mask=mask).matrix)
    before = {name: value.clone() for name, value in moments.state_dict().items()}
    moments.update(z, torch.zeros(40, dtype=torch.bool))
    for name, value in moments.state_dict().items():
        if name not in ("direction", "largest"):
            assert torch.equal(value, before[name]), name
    assert torch.isfinite(moments.largest).all()


def test_a_large_batch_is_sampled_without_bias():
    z = torch.randn(20_000, 1, 4) * torch.tensor([2.0, 1.0, 1.0, 1.0])
    moments = RunningMoments(1, 4, sample=512)
    for _ in range(100):
        moments.update(z)
    torch.testing.assert_close(moments.matrix[0].double(), ddcl.covariance(z[:, 0]).matrix, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("gradient", ["full", "stop"])
def test_the_temperature_is_a_times_the_critical_one_from_the_first_forward_pass_on(gradient):
    z = torch.randn(400, 6, dtype=F64) * torch.tensor([2.0, 1, 1, 1, 1, 1], dtype=F64)
    bank = PrototypeBank(4, 6, gradient=gradient, dtype=F64)
    schedule = CriticalSchedule(0.9, 0.1, steps=50).attach(bank).observe(z)
    critical = ddcl.critical_temperature(z, gradient=gradient)
    torch.testing.assert_close(bank.temperature[0], 0.9 * critical)
    for t in range(60):
        bank(z)
        schedule.step()
        a = 0.9 * (0.1 / 0.9) ** min((t + 1) / 50, 1)
        torch.testing.assert_close(bank.temperature[0], a * critical, rtol=0.05, atol=0)


def test_without_observed_data_the_first_batch_sets_the_scale():
    bank = PrototypeBank(4, 6, temperature=123.0)
    CriticalSchedule(0.5, 0.5, steps=1).attach(bank)
    assert bank.temperature.item() == pytest.approx(123)
    z = 1e-3 * torch.randn(400, 6)
    bank(z)
    # power steps from a cold start bound the largest eigenvalue from below, so T errs to the safe side
    assert 0.2 < float(bank.temperature / (0.5 * ddcl.critical_temperature(z))) <= 1.0001


def test_later_on_only_one_step_in_so_many_is_looked_at():
    bank = PrototypeBank(4, 6)
    schedule = CriticalSchedule(steps=100, every=8).attach(bank)
    seen = []
    for _ in range(80):
        bank(torch.randn(50, 6))
        schedule.step()
        seen.append(int(schedule.state_dict()["moments"][""]["batches"]))
    assert seen[31] == 32
    assert seen[-1] == 32 + len([t for t in range(32, 80) if t % 8 == 0])


def test_after_hundreds_of_steps_half_as_many_are_looked_at():
    bank = PrototypeBank(4, 6)
    schedule = CriticalSchedule(steps=1000, every=8).attach(bank)
    schedule.time = 511
    seen = []
    for _ in range(48):
        schedule.step()
        bank(torch.randn(50, 6))
        seen.append(int(schedule.state_dict()["moments"][""]["batches"]))
    assert [t for t, (a, b) in enumerate(zip([0, *seen], seen, strict=False), start=512) if b > a] == [512, 528, 544]


def test_evaluation_is_not_observed():
    bank = PrototypeBank(4, 6, temperature=0.7).eval()
    CriticalSchedule(steps=10).attach(bank)
    bank(torch.randn(50, 6))
    assert bank.temperature.item() == pytest.approx(0.7)


@pytest.mark.parametrize(("shape", "middle"), [("exponential", math.sqrt(0.8 * 0.2)), ("cosine", 0.5), ("held", 0.8)])
def test_shapes_and_warmup(shape, middle):
    schedule = CriticalSchedule(0.8, 0.2, steps=10, shape=shape, warmup=5)
    assert schedule.at(0) == schedule.at(5) == (0.8,)
    assert schedule.at(10) == pytest.approx((middle,))
    assert schedule.at(15) == schedule.at(100) == pytest.approx((0.8 if shape == "held" else 0.2,))


def test_heads_may_fall_at_their_own_pace_and_have_their_own_critical_temperature():
    bank = PrototypeBank(4, 3, num_heads=2)
    z = torch.randn(500, 2, 3) * torch.tensor([1.0, 5.0])[:, None]
    schedule = CriticalSchedule([0.9, 0.5], [0.1, 0.4], steps=4).attach(bank).observe(z)
    critical = ddcl.critical_temperature(z, num_heads=2).float()
    torch.testing.assert_close(bank.temperature, torch.tensor([0.9, 0.5]) * critical)
    for _ in range(4):
        schedule.step()
    torch.testing.assert_close(bank.temperature, torch.tensor([0.1, 0.4]) * critical)


def test_a_resumed_schedule_knows_time_and_covariance():
    net = nn.ModuleList([PrototypeBank(4, 3), DDCLAttention(6, 4)])
    schedule = CriticalSchedule(steps=20).attach(net)
    for _ in range(7):
        net[0](torch.randn(30, 3))
        net[1](3 * torch.randn(5, 4, 6))
        schedule.step()
    saved, temperatures = schedule.state_dict(), [bank.temperature.clone() for bank in ddcl.banks_of(net).values()]
    fresh = CriticalSchedule(steps=20).attach(net)
    fresh.load_state_dict(saved)
    assert fresh.time == 7
    for bank, temperature in zip(ddcl.banks_of(net).values(), temperatures, strict=True):
        torch.testing.assert_close(bank.temperature, temperature)
    with pytest.raises(ValueError, match="state: it knows banks"):
        CriticalSchedule(steps=20).attach(net[0]).load_state_dict(saved)


@pytest.mark.slow
def test_a_merged_bank_recovers_and_under_the_papers_temperatures_does_not():
    # theory, section 5: unit-norm data, the bank fully merged plus noise of 1e-6
    z = nn.functional.normalize(torch.randn(64, 1, 64) + 0.15 * torch.randn(64, 10, 64), dim=-1).flatten(0, 1)
    assert ddcl.critical_temperature(z) < 0.3
    kept = {}
    for name, schedule in {
        "critical": CriticalSchedule(0.9, 0.05, steps=300),
        "paper": ddcl.ExponentialSchedule(2.0, 0.3, tau=100),
    }.items():
        bank = PrototypeBank(8, 64)
        with torch.no_grad():
            bank.prototypes.copy_(z.mean(0) + 1e-6 * torch.randn(8, 64))
        schedule.attach(bank)
        optimiser = torch.optim.SGD(bank.parameters(), lr=2.0)
        for _ in range(400):
            optimiser.zero_grad()
            bank(z).loss.total.backward()
            optimiser.step()
            schedule.step()
        kept[name] = int(ddcl.distinct_prototypes(bank.prototypes[0], ddcl.covariance(z).trace))
    assert kept["critical"] == 8
    assert kept["paper"] == 1


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_followed_bank_compiles_and_is_compiled_once():
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    bank = PrototypeBank(4, 6)
    schedule = CriticalSchedule(0.9, 0.1, steps=10).attach(bank)
    counter = CompileCounter()
    fast = torch.compile(bank, backend=counter)
    seen = []
    for _ in range(5):
        fast(torch.randn(100, 6))
        schedule.step()
        seen.append(bank.temperature.item())
    assert counter.frame_count <= 2
    assert seen == sorted(seen, reverse=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"start": 1.0}, "start: got 1.0, expected multiples of T_c between 0 and 1"),
        ({"end": 0.0}, "end: got 0.0"),
        ({"start": 0.1, "end": 0.5}, "end: got 0.5, expected at most start = 0.1"),
        ({"steps": 0}, "steps: got 0"),
        ({"warmup": -1}, "warmup: got -1"),
        ({"shape": "linear"}, "shape: got 'linear', expected one of 'exponential', 'cosine', 'held'"),
        ({"momentum": 1.0}, "momentum: got 1.0"),
        ({"start": [0.9, 0.8, 0.7], "end": [0.1, 0.1]}, "end: got 2 values"),
    ],
)
@pytest.mark.bad_input
def test_bad_settings_are_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        CriticalSchedule(**{"steps": 10, **arguments})


def test_what_cannot_be_attached_is_refused():
    with pytest.raises(ValueError, match="holds no PrototypeBank"):
        CriticalSchedule(steps=10).attach(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="start: got 3 values, expected 1 or num_heads = 2"):
        CriticalSchedule([0.9, 0.8, 0.7], 0.1, steps=10).attach(PrototypeBank(4, 3, num_heads=2))
    with pytest.raises(ValueError, match="not attached"):
        CriticalSchedule(steps=10).critical_temperature(PrototypeBank(4, 3))


@pytest.mark.parametrize("shape", ["exponential", "cosine"])
def test_a_slow_fall_goes_in_stairs_too_small_to_matter_and_arrives_exactly(shape):
    bank = PrototypeBank(4, 3)
    schedule = CriticalSchedule(0.9, 0.05, steps=4000, shape=shape, every=1000).attach(bank)
    schedule.observe(torch.randn(200, 3))
    critical = float(schedule.critical_temperature(bank))
    seen = []
    for _ in range(4000):
        (a,) = schedule.step()
        seen.append(float(bank.temperature) / critical)
        assert seen[-1] == pytest.approx(a, rel=0.0051)
    assert len(set(seen)) < 2000  # setting it costs calls that a short step feels
    assert seen[-1] == pytest.approx(0.05, rel=1e-6)
