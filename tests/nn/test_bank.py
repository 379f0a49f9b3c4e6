"""PrototypeBank: state, initialisation, temperature."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

import ddcl
from ddcl import PrototypeBank


def two_clusters() -> torch.Tensor:
    return torch.cat([torch.randn(50, 3) * 0.1 + s * 4 for s in (-1, 1)])


def test_init_from_puts_prototypes_on_the_data_and_temperature_below_critical():
    z = two_clusters()
    bank = PrototypeBank(2, 3)
    assert not bank.initialised
    assert bank.init_from(z) is bank
    assert bank.initialised
    assert sorted(bank.prototypes[0, :, 0].tolist()) == pytest.approx([-4, 4], abs=0.1)
    torch.testing.assert_close(bank.temperature, 0.1 * ddcl.critical_temperature(z).float()[None])


def test_a_temperature_that_was_asked_for_is_kept():
    bank = PrototypeBank(2, 3, temperature=0.7).init_from(two_clusters())
    assert bank.temperature.tolist() == pytest.approx([0.7])


def test_a_temperature_set_by_hand_is_kept_too():
    bank = PrototypeBank(2, 3)
    bank.set_temperature(7.0)
    assert bank.init_from(two_clusters()).temperature.item() == 7


def test_the_next_temperature_may_be_set_before_this_steps_backward_pass():
    bank = PrototypeBank(4, 3, temperature=1.0)
    z = torch.randn(5, 3)
    (expected,) = torch.autograd.grad(bank(z).loss.total, bank.prototypes)
    out = bank(z)
    bank.set_temperature(0.1)
    (found,) = torch.autograd.grad(out.loss.total, bank.prototypes)
    assert torch.equal(found, expected)


@pytest.mark.bad_input
def test_numpy_integers_are_integers():
    import numpy as np

    assert PrototypeBank(np.int64(4), np.int32(3)).prototypes.shape == (1, 4, 3)


def test_mode_stop_has_its_own_critical_temperature():
    z = two_clusters()
    bank = PrototypeBank(2, 3, gradient="stop").init_from(z)
    torch.testing.assert_close(bank.temperature, 0.1 * ddcl.critical_temperature(z, gradient="stop").float()[None])


def test_data_without_spread_still_gives_a_usable_temperature():
    bank = PrototypeBank(1, 3).init_from(torch.ones(5, 3))
    assert bank.temperature > 0


def test_the_default_start_does_not_depend_on_the_scale_of_the_data():
    z = torch.randn(300, 4, dtype=torch.float64)
    results = []
    for scale in (1e-3, 1.0, 1e3):
        bank = PrototypeBank(5, 4, dtype=torch.float64)
        bank.init_from(scale * z, generator=torch.Generator().manual_seed(0))
        out = bank(scale * z)
        results.append((out.indices, out.loss.entropy, out.loss.total / scale**2))
    torch.testing.assert_close(results[0], results[1])
    torch.testing.assert_close(results[0], results[2])


def test_init_from_takes_batches_masks_heads_and_one_shot_iterators():
    z = torch.randn(40, 2, 3)
    bank = PrototypeBank(4, 3, num_heads=2)
    for data in (
        z,
        list(z.split(7)),
        iter(z.split(7)),
        ((x, torch.ones(len(x), dtype=torch.bool)) for x in z.split(7)),
    ):
        bank.reset_parameters()
        assert not bank.initialised
        bank.init_from(data)
        assert bank.initialised
        torch.testing.assert_close(bank.temperature, 0.1 * ddcl.critical_temperature(z, num_heads=2).float())


def test_init_from_refuses_tokens_of_another_dimension_and_changes_nothing():
    bank = PrototypeBank(2, 3)
    before = bank.prototypes.clone()
    with pytest.raises(ValueError, match="data: got tokens of dimension 5, expected dim = 3"):
        bank.init_from(torch.randn(9, 5))
    assert torch.equal(bank.prototypes, before)
    assert not bank.initialised


def test_state_dict_carries_prototypes_temperature_and_whether_they_are_initialised():
    bank = PrototypeBank(2, 3, num_heads=2, temperature=torch.tensor([0.5, 2.0]))
    bank.init_from(torch.randn(20, 2, 3))
    assert set(bank.state_dict()) == {"prototypes", "temperature", "initialised"}
    other = PrototypeBank(2, 3, num_heads=2)
    other.load_state_dict(bank.state_dict())
    assert other.initialised
    z = torch.randn(5, 2, 3)
    assert torch.equal(bank(z).centroid, other(z).centroid)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_copies_are_equal_and_independent(clone):
    bank = PrototypeBank(4, 3).init_from(torch.randn(20, 3))
    other = clone(bank)
    z = torch.randn(5, 3)
    assert torch.equal(bank(z).centroid, other(z).centroid)
    other.set_temperature(9.0)
    with torch.no_grad():
        other.prototypes += 1
    assert bank.temperature.item() != 9
    assert not torch.equal(bank.prototypes, other.prototypes)


def test_half_precision_modules_keep_an_exact_temperature():
    # 1e-9 is zero in float16; unit-norm data scaled down by 1e3 gets there
    bank = PrototypeBank(4, 3, temperature=1e-9).half()
    assert bank.prototypes.dtype == torch.float16
    assert bank.temperature.dtype == torch.float32
    assert bank.temperature.item() == pytest.approx(1e-9)
    assert bank.to(torch.bfloat16).temperature.dtype == torch.float32
    assert bank.double().temperature.dtype == torch.float64


def test_a_bank_on_the_meta_device_has_shapes_and_no_data():
    bank = PrototypeBank(4, 3, num_heads=2, device="meta")
    out = bank(torch.randn(5, 2, 3, device="meta"))
    assert out.centroid.shape == (5, 2, 3)
    assert out.centroid.is_meta
    assert "temperature=?" in repr(bank)
    real = bank.to_empty(device="cpu")
    real.reset_parameters()
    real.set_temperature(1.0)
    assert torch.isfinite(real(torch.randn(5, 2, 3)).centroid).all()


def test_a_frozen_bank_passes_gradients_through_and_takes_none():
    bank = PrototypeBank(4, 3).requires_grad_(False)
    z = torch.randn(5, 3, requires_grad=True)
    bank(z).loss.total.backward()
    assert bank.prototypes.grad is None
    assert z.grad.abs().sum() > 0


def test_frozen_tokens_train_the_bank_alone():
    bank = PrototypeBank(4, 3)
    bank(torch.randn(5, 3)).loss.total.backward()
    assert bank.prototypes.grad.abs().sum() > 0


def test_repr_says_what_matters():
    text = repr(PrototypeBank(4, 3, num_heads=2, temperature=torch.tensor([0.5, 2.0])))
    assert text == (
        "PrototypeBank(num_prototypes=4, dim=3, num_heads=2, temperature=[0.5, 2], gradient=full, backend=auto, "
        "initialised=False)"
    )


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_prototypes": 0}, ValueError, "num_prototypes: got 0"),
        ({"dim": 0}, ValueError, "dim: got 0"),
        ({"num_heads": -1}, ValueError, "num_heads: got -1"),
        ({"num_heads": 2.0}, TypeError, "num_heads: got 2.0"),
        ({"temperature": 0.0}, ValueError, "temperature: got 0.0"),
        ({"temperature": torch.ones(3)}, ValueError, r"temperature: got shape \(3,\), expected \(\) or \(1,\)"),
        ({"gradient": "none"}, ValueError, "gradient: got 'none'"),
        ({"backend": "fast"}, ValueError, "backend: got 'fast'"),
    ],
)
def test_bad_settings_are_refused_by_name(arguments, error, message):
    with pytest.raises(error, match=message):
        PrototypeBank(**{"num_prototypes": 4, "dim": 3, **arguments})


def test_training_a_default_bank_keeps_all_prototypes_distinct():
    z = torch.nn.functional.normalize(torch.randn(500, 8), dim=-1)  # unit norm: T = 2.0 would merge the bank
    bank = PrototypeBank(10, 8).init_from(z)
    optimiser = torch.optim.Adam(bank.parameters(), lr=1e-2)
    for _ in range(100):
        optimiser.zero_grad()
        bank(z).loss.total.backward()
        optimiser.step()
    assert ddcl.distinct_prototypes(bank.prototypes, ddcl.covariance(z).trace) == 10
    assert ddcl.usage(bank(z).indices, 10).usage == 1
