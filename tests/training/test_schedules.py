"""The paper's temperature schedule."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from ddcl import DDCLAttention, ExponentialSchedule, PrototypeBank


def test_it_is_the_papers_formula_at_every_step_on_every_bank():
    net = nn.ModuleList([PrototypeBank(4, 3), DDCLAttention(6, 4, num_heads=2)])
    schedule = ExponentialSchedule(start=2.0, end=0.3, tau=20).attach(net)
    for t in range(60):
        expected = max(0.3, 2.0 * math.exp(-t / 20))
        assert net[0].temperature.tolist() == pytest.approx([expected])
        assert net[1].bank.temperature.tolist() == pytest.approx([expected] * 2)
        assert schedule.step() == pytest.approx(max(0.3, 2.0 * math.exp(-(t + 1) / 20)))
    assert schedule.at(1e9) == 0.3


def test_a_resumed_schedule_goes_on_where_it_stopped():
    bank = PrototypeBank(4, 3)
    first = ExponentialSchedule(2.0, 0.3, tau=5).attach(bank)
    for _ in range(7):
        first.step()
    saved = first.state_dict()
    second = ExponentialSchedule(2.0, 0.3, tau=5).attach(bank)
    assert bank.temperature.item() == pytest.approx(2.0)
    second.load_state_dict(saved)
    assert bank.temperature.item() == pytest.approx(first.at(7))
    assert repr(second) == "ExponentialSchedule(start=2.0, end=0.3, tau=5, time=7)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"start": 0.0}, "start: got 0.0"),
        ({"end": -1.0}, "end: got -1.0"),
        ({"tau": float("nan")}, "tau: got nan"),
        ({"start": 0.1, "end": 0.2}, "end: got 0.2, expected at most start = 0.1"),
    ],
)
def test_bad_settings_are_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        ExponentialSchedule(**arguments)


def test_a_model_without_banks_is_refused():
    with pytest.raises(ValueError, match="holds no PrototypeBank"):
        ExponentialSchedule().attach(nn.Linear(2, 2))


def test_the_papers_numbers_merge_a_bank_on_unit_norm_data_which_is_why_the_docstring_warns():
    z = torch.nn.functional.normalize(torch.randn(400, 64), dim=-1)  # T_c is about 0.12
    bank = PrototypeBank(8, 64).init_from(z)
    schedule = ExponentialSchedule(2.0, 0.3, tau=20).attach(bank)
    optimiser = torch.optim.Adam(bank.parameters(), lr=1e-2)
    for _ in range(60):
        for _ in range(5):
            optimiser.zero_grad()
            out = bank(z)
            out.loss.total.backward()
            optimiser.step()
        schedule.step()
    assert out.loss.entropy > 0.99 * math.log(8)
