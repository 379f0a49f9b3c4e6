"""Starting the banks of a model from what enters them, in the order of their calls."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import ddcl
from ddcl import PrototypeBank, init_banks
from ddcl.training.starting import tokens_entering


class Stack(nn.Module):
    """The second bank reads what the first leaves of the tokens; named against the order of the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.after = PrototypeBank(3, 2)
        self.before = PrototypeBank(5, 2)

    def forward(self, z: Tensor, mask: Tensor | None = None) -> Tensor:
        rest = z - self.before(z, mask).centroid
        return self.after(rest, mask).centroid


def call(model: nn.Module, batch: Tensor) -> Tensor:
    return model(batch)


def test_tokens_come_in_the_order_of_the_calls_and_of_the_banks_named_alone():
    model, z = Stack(), torch.randn(7, 11, 2)
    found = tokens_entering(model, z, call)
    assert list(found) == ["before", "after"]
    assert torch.equal(found["before"], z.reshape(77, 1, 2))
    assert list(tokens_entering(model, z, call, names=["after"])) == ["after"]
    assert len(tokens_entering(model, z, call, limit=13)["before"]) == 13


def test_a_bank_is_started_from_what_the_banks_before_it_make_of_the_data():
    model, z = Stack(), 10 + torch.randn(300, 2)
    init_banks(model, z.split(100), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        rest = z - model.before(z).centroid
    # far from where the unstarted first bank would have left the tokens, which is at their own place near 10
    assert bool(model.after.initialised)
    expected = ddcl.critical_temperature(rest) * 0.1
    torch.testing.assert_close(model.after.temperature[0].double(), expected, rtol=1e-5, atol=0.0)
    assert float((model.after.prototypes[0].detach().mean(0)).norm()) < 1


def test_the_trainer_starts_stacked_banks_in_order_and_its_temperatures_fit_them():
    model, z = Stack(), 10 + torch.randn(300, 2)
    loss = lambda model, batch: (model(batch) ** 2).mean()  # noqa: E731
    trainer = ddcl.Trainer(model, ddcl.Recipe(epochs=1), loss=loss)
    last = trainer.fit(z.split(100))[-1]
    for name in ("before", "after"):
        assert 0 < last.metrics[f"{name}/0/relative_temperature"] < 1
        assert last.metrics[f"{name}/0/distinct_share"] == 1


@pytest.mark.parametrize("as_pair", [False, True])
def test_masked_tokens_start_nothing_and_every_part_is_left_in_its_mode(as_pair):
    bank = PrototypeBank(2, 1)
    z = torch.tensor([0.0, 0.2, 4.0, 4.2, float("nan")]).unsqueeze(-1)
    mask = torch.tensor([True, True, True, True, False])
    batches = [(z, mask)] if as_pair else [{"z": z, "mask": mask}]
    frozen = nn.Dropout().eval()
    bank.add_module("frozen", frozen)
    init_banks(bank, batches)
    torch.testing.assert_close(bank.prototypes.detach().flatten().sort().values, torch.tensor([0.1, 4.1]))
    assert bank.training
    assert not frozen.training


def test_banks_that_no_batch_reaches_and_models_without_banks_are_refused():
    model = Stack()
    with pytest.raises(ValueError, match="model: bank 'after' was not called by any batch"):
        init_banks(model, [torch.randn(9, 2)], forward=lambda model, x: model.before(x))
    with pytest.raises(ValueError, match="model: it holds no PrototypeBank"):
        init_banks(nn.Linear(2, 2), [torch.randn(3, 2)])


def test_batches_that_can_be_walked_only_once_will_do():
    model = Stack()
    init_banks(model, iter(torch.randn(4, 50, 2)))
    assert all(bool(bank.initialised) for bank in ddcl.banks_of(model).values())
