"""Two time scales: the split of parameters and what it does to training."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ddcl import DDCLAttention, PrototypeBank, banks_of, param_groups


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 6), nn.ModuleDict({"deep": DDCLAttention(6, 4, num_heads=2)})["deep"])


def test_prototypes_are_found_anywhere_and_everything_else_is_slower():
    net = model()
    fast, slow = param_groups(net, lr=0.5, epsilon=0.01)
    assert fast["params"] == [net[1].bank.prototypes]
    assert fast["lr"] == 0.5
    assert fast["weight_decay"] == 0
    assert slow["lr"] == pytest.approx(0.005)
    found = {id(p) for group in (fast, slow) for p in group["params"]}
    assert found == {id(p) for p in net.parameters()}


@pytest.mark.parametrize("optimiser", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_any_torch_optimiser_takes_the_groups(optimiser):
    net = model()
    opt = optimiser(param_groups(net, lr=0.1, epsilon=0.1), weight_decay=0.1)
    before = [p.detach().clone() for p in net.parameters()]
    hidden, readout = net(torch.randn(3, 7, 5))
    (hidden.square().mean() + readout.loss.total).backward()
    opt.step()
    assert all(not torch.equal(p, b) for p, b in zip(net.parameters(), before, strict=True) if p.grad.abs().sum() > 0)


def test_with_plain_gradient_descent_the_ratio_of_steps_is_epsilon():
    net = nn.Sequential(nn.Linear(3, 3, bias=False), PrototypeBank(4, 3))
    x = torch.randn(20, 3)
    steps = {}
    for epsilon in (1.0, 0.1):
        opt = torch.optim.SGD(param_groups(net, lr=0.1, epsilon=epsilon))
        before = {name: p.detach().clone() for name, p in net.named_parameters()}
        opt.zero_grad()
        net(x).loss.total.backward()
        opt.step()
        steps[epsilon] = {name: (p.detach() - before[name]).norm() for name, p in net.named_parameters()}
        net.load_state_dict({**net.state_dict(), **before})
    torch.testing.assert_close(steps[0.1]["1.prototypes"], steps[1.0]["1.prototypes"])
    torch.testing.assert_close(steps[0.1]["0.weight"], 0.1 * steps[1.0]["0.weight"], rtol=1e-3, atol=1e-6)


def test_shared_banks_count_once_and_frozen_parameters_not_at_all():
    bank = PrototypeBank(4, 3)
    net = nn.ModuleList([bank, bank, nn.Linear(3, 3), nn.Linear(3, 3).requires_grad_(False)])
    fast, slow = param_groups(net, lr=0.1)
    assert len(fast["params"]) == 1
    assert len(slow["params"]) == 2
    assert list(banks_of(bank)) == [""]


def test_an_empty_split_is_refused_with_a_way_out():
    with pytest.raises(ValueError, match="model: it holds no PrototypeBank"):
        param_groups(nn.Linear(3, 3), lr=0.1)
    with pytest.raises(ValueError, match="model: all its prototypes are frozen"):
        param_groups(nn.Sequential(nn.Linear(3, 3), PrototypeBank(4, 3).requires_grad_(False)), lr=0.1)
    with pytest.raises(ValueError, match="no trainable parameter besides its prototypes"):
        param_groups(PrototypeBank(4, 3), lr=0.1)


@pytest.mark.parametrize(
    ("name", "value"), [("lr", 0.0), ("lr", float("nan")), ("epsilon", -1.0), ("epsilon", float("inf"))]
)
def test_bad_rates_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"{name}: got"):
        param_groups(model(), **{"lr": 0.1, "epsilon": 0.1, name: value})
