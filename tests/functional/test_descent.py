"""W, F and what changes them along training (theory: section 6)."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

import ddcl
from ddcl.functional.stability.descent import DescentTrace, barrier_strength, lyapunov, temperature_slope

F64 = torch.float64


def data() -> tuple[Tensor, Tensor]:
    """Tokens of four groups and a start away from rest."""
    centers = torch.tensor([[-3.0, -2.0], [-3.0, 2.0], [3.0, -2.0], [3.0, 2.0]], dtype=F64)
    z = (centers[:, None] + 0.5 * torch.randn(4, 25, 2, dtype=F64)).flatten(0, 1)
    return z, 2 * torch.randn(5, 2, dtype=F64)


def test_w_is_the_loss_plus_the_barrier():
    z, bank = data()
    value = lyapunov(z, bank, 1.5, strength=0.3)
    apart = sum(0.15 / float((p - q).square().sum()) for i, p in enumerate(bank) for j, q in enumerate(bank) if i != j)
    assert float(value) == pytest.approx(float(ddcl.readout(z, bank, 1.5).loss.total) + apart)
    assert float(lyapunov(z, bank[[0, 0]], 1.5)) == pytest.approx(float(ddcl.readout(z, bank[:1], 1.5).loss.total))
    assert float(lyapunov(z, bank[[0, 0]], 1.5, strength=0.3)) == float("inf")


@pytest.mark.parametrize("shape", [(5, 3), (2, 5, 3)], ids=["one bank", "two heads"])
@pytest.mark.parametrize("T", [0.05, 0.9, 20.0])
def test_the_slope_in_t_is_that_of_autograd_and_never_negative(shape, T):
    bank = torch.randn(shape, dtype=F64) + 7
    z = torch.randn(4, 11, *shape[:-2], 3, dtype=F64) + 7
    mask = torch.rand(4, 11) < 0.7
    z[~mask] = float("nan")
    temperature = torch.tensor(T, dtype=F64, requires_grad=True)
    loss = ddcl.readout(z, bank, temperature, mask=mask, backend="reference").loss
    (expected,) = torch.autograd.grad(loss.total, temperature, retain_graph=True)
    found = temperature_slope(z, bank, T, mask=mask)
    torch.testing.assert_close(found, expected)
    assert found >= 0
    # and F falls as T rises, by the entropy
    (of_free_energy,) = torch.autograd.grad(loss.free_energy, temperature)
    torch.testing.assert_close(of_free_energy, -loss.entropy.detach())


def descend(trace: DescentTrace, temperatures: list[float], *, gradient: str, lr: float) -> None:
    """Gradient descent on L + barrier with an encoder (a linear map) at a tenth of the bank's rate."""
    x, start = data()
    weight, bank = torch.eye(2, dtype=F64).requires_grad_(), start.requires_grad_()
    for T in temperatures:
        trace.record((x @ weight).detach(), bank.detach(), T)
        value = lyapunov(x @ weight, bank, T, strength=trace.strength, gradient=gradient)
        value.backward()
        with torch.no_grad():
            weight -= 0.1 * lr * weight.grad
            bank -= lr * bank.grad
        weight.grad = bank.grad = None


@pytest.mark.parametrize("strength", [0.0, 0.5])
@pytest.mark.parametrize("schedule", ["fixed", "falling"])
def test_w_falls_along_small_steps_at_fixed_temperature_and_while_it_falls(schedule, strength):
    temperatures = [4.0] * 150 if schedule == "fixed" else torch.linspace(8.0, 0.5, 150).tolist()
    trace = DescentTrace(strength=strength)
    descend(trace, temperatures, gradient="full", lr=0.02)
    values = [step.lyapunov for step in trace.steps]
    assert all(after < before for before, after in pairwise(values))
    assert trace.rises(tolerance=0.0) == []
    if schedule == "falling":
        assert all(step.by_temperature < 0 < step.free_energy_by_temperature for step in trace.steps[1:])
    else:
        assert all(step.by_temperature == 0 == step.free_energy_by_temperature for step in trace.steps)


def test_the_two_parts_add_up_and_the_part_of_t_is_the_integral_of_the_slope():
    trace = DescentTrace(strength=0.2)
    descend(trace, torch.linspace(4.0, 3.9, 60).tolist(), gradient="full", lr=0.02)
    for before, step in pairwise(trace.steps):
        assert step.lyapunov - before.lyapunov == pytest.approx(step.by_parameters + step.by_temperature, abs=1e-12)
        change = step.free_energy - before.free_energy
        parts = step.free_energy_by_parameters + step.free_energy_by_temperature
        assert change == pytest.approx(parts, abs=1e-12)
        assert step.by_temperature == pytest.approx(step.slope * (step.temperature - before.temperature), rel=2e-3)


def test_in_mode_stop_f_falls_while_w_may_rise():
    # above T_c the bank merges: F falls, L grows up to the data's variance
    z, bank = data()
    T = 1.5 * float(ddcl.critical_temperature(z, gradient="stop"))
    trace = DescentTrace()
    for _ in range(40):
        trace.record(z, bank, T)
        bank = ddcl.soft_kmeans_step(z, bank, T)
    assert trace.rises(gradient="stop", tolerance=1e-12) == []
    assert len(trace.rises(gradient="full")) > 5


def test_a_step_too_long_is_found_out():
    trace = DescentTrace()
    descend(trace, [4.0] * 30, gradient="full", lr=8.0)
    assert trace.rises()
    assert trace.rises()[0] == next(
        i for i, step in enumerate(trace.steps) if i and step.lyapunov > trace.steps[i - 1].lyapunov
    )


def test_cooling_alone_is_never_counted_as_a_rise():
    z, bank = data()
    trace = DescentTrace()
    for T in (4.0, 1.0, 2.0):  # and warming raises W, by temperature
        trace.record(z, bank, T)
    assert [step.by_parameters for step in trace.steps] == [0.0, 0.0, 0.0]
    assert trace.steps[2].by_temperature > 0
    assert trace.rises(tolerance=0.0) == []


def test_masked_tokens_do_not_enter_the_trace():
    z, bank = data()
    padded = torch.cat([z, torch.full((7, 2), float("nan"), dtype=F64)])
    mask = torch.arange(len(padded)) < len(z)
    plain, masked = DescentTrace(0.1).record(z, bank, 1.0), DescentTrace(0.1).record(padded, bank, 1.0, mask=mask)
    assert masked == pytest.approx(plain, rel=1e-12)


def test_the_strength_the_paper_asks_for():
    assert barrier_strength(5, 0.1) == pytest.approx(2 * 0.1 * 10)  # ten pairs
    assert barrier_strength(1, 0.1) == 0


def test_two_prototypes_feel_the_curvature_that_bounds_the_strength_from_above():
    r, strength = 0.7, 0.3
    hessian = torch.autograd.functional.hessian(
        lambda bank: ddcl.barrier(bank.reshape(2, 1), strength), torch.tensor([0.0, r], dtype=F64)
    )
    assert float(torch.linalg.eigvalsh(hessian)[-1]) == pytest.approx(12 * strength / r**4)


@pytest.mark.bad_input
def test_bad_input_is_refused_by_name():
    with pytest.raises(ValueError, match=r"lr: got 0.0, expected a positive finite number"):
        barrier_strength(4, 0.0)
    with pytest.raises(ValueError, match="num_prototypes: got 0, expected an integer of at least 1"):
        barrier_strength(0, 0.1)
    z, bank = data()
    with pytest.raises(ValueError, match=r"temperature: got -1.0"):
        DescentTrace().record(z, bank, -1.0)
    with pytest.raises(ValueError, match=r"temperature: got shape \(3,\), expected a scalar"):
        temperature_slope(z, bank, torch.ones(3))
    with pytest.raises(ValueError, match="strength: got -1"):
        lyapunov(z, bank, 1.0, strength=-1)
    with pytest.raises(ValueError, match="gradient: got 'half'"):
        DescentTrace().rises(gradient="half")
