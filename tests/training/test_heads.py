"""Per-head temperatures, and the barrier, as parts of a recipe."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import ddcl
from ddcl import PrototypeBank, Recipe, Trainer
from ddcl.training.losses import quantisation_loss
from ddcl.training.recipe import Critical, Exponential, Setting

K, M = 5, 3
SETTING = Setting(steps=100, resolving=0.2, started=True, learning=False)


def tokens(heads: int = 2) -> torch.Tensor:
    scale = torch.arange(1.0, heads + 1).reshape(heads, 1)
    return scale * (3 * torch.randn(K, 1, heads, M) + torch.randn(K, 40, heads, M)).flatten(0, 1)


@pytest.mark.parametrize("move", ["soft-kmeans", "gradient"])
def test_two_heads_end_at_the_temperatures_asked_for_each(move):
    z = tokens()[torch.randperm(K * 40)]
    bank = PrototypeBank(K, M, num_heads=2)
    plan = Critical(start=(0.5, 0.2), end=(0.05, 0.005))
    metrics = Trainer(bank, Recipe(epochs=6, move=move, temperature=plan)).fit(z.split(50))[-1].metrics
    # the schedule follows T_c by a running covariance, the figures are exact
    assert metrics["bank/0/relative_temperature"] == pytest.approx(0.05, rel=0.1)
    assert metrics["bank/1/relative_temperature"] == pytest.approx(0.005, rel=0.1)


def test_one_number_stands_for_all_heads_and_temperatures_never_rise():
    schedule = Critical(start=0.3, end=(0.5, 0.01)).schedule(SETTING)
    assert schedule.at(0) == pytest.approx((0.3, 0.3))
    assert schedule.at(100) == pytest.approx((0.3, 0.01))
    schedule = Critical(end=(0.02, 0.2)).schedule(SETTING)
    assert schedule.at(0) == pytest.approx((0.2, 0.9))
    assert schedule.resolved == 0.5
    assert len(Critical(start=0.3, end=0.01).schedule(SETTING).at(0)) == 1


@pytest.mark.bad_input
def test_a_plan_for_another_number_of_heads_is_refused():
    with pytest.raises(ValueError, match="start: got 2 values, expected 1 or num_heads = 3"):
        Trainer(PrototypeBank(K, M, num_heads=3), Recipe(epochs=1, temperature=Critical(end=(0.1, 0.2)))).fit(
            [tokens(3)]
        )
    with pytest.raises(ValueError, match="end: got 3 values, expected 1 or as many as start has, 2"):
        Critical(start=(0.5, 0.5), end=(0.1, 0.2, 0.3)).schedule(SETTING)


def hot(z: torch.Tensor) -> Exponential:
    """Held at 1.5 T_c, where a bank merges."""
    T = 1.5 * float(ddcl.critical_temperature(z))
    return Exponential(start=T, end=T)


@pytest.mark.filterwarnings("ignore::ddcl.CollapseWarning")
@pytest.mark.slow
@pytest.mark.parametrize("strength", [0.05, "auto"])
def test_prototypes_started_close_stay_apart_behind_a_barrier_and_merge_without(strength):
    z = torch.randn(256, M)
    apart = {}
    for barrier in (0.0, strength):
        bank = PrototypeBank(2, M)
        bank.move_to(torch.tensor([[[0.2, 0.0, 0.0], [-0.2, 0.0, 0.0]]]))
        recipe = Recipe(epochs=20, move="gradient", init=None, temperature=hot(z), barrier=barrier)
        Trainer(bank, recipe).fit(z.split(64))
        apart[barrier] = float(ddcl.separation(bank.prototypes.detach())[0])
    assert apart[0.0] < 1e-3
    assert apart[strength] > 0.1


def test_the_loss_that_is_descended_includes_the_barrier():
    z = tokens(1)[:, 0]
    bank = PrototypeBank(K, M).init_from(z)
    still = Recipe(epochs=1, move="gradient", init=None, lr=1e-12, temperature=Critical(start=0.1, end=0.1))
    history = Trainer(bank, replace(still, barrier=3.0)).fit([z])
    barrier = float(ddcl.barrier(bank.prototypes.detach(), 3.0))
    with torch.no_grad():
        assert history[0].loss == pytest.approx(float(quantisation_loss(bank, z)) + barrier, rel=1e-4)
    assert barrier > 1e-2 * history[0].loss


def test_an_automatic_barrier_does_not_depend_on_the_scale_of_the_data():
    z = tokens(1)[:, 0].double()
    runs = []
    for scale in (1.0, 1024.0):
        bank = PrototypeBank(K, M, dtype=torch.float64)
        recipe = Recipe(epochs=4, move="gradient", barrier="auto")
        history = Trainer(bank, recipe).fit((scale * z).split(50))
        runs.append((bank.prototypes.detach() / scale, torch.tensor([one.loss / scale**2 for one in history])))
    torch.testing.assert_close(runs[0], runs[1], rtol=1e-4, atol=1e-6)
    free = PrototypeBank(K, M, dtype=torch.float64)
    Trainer(free, Recipe(epochs=4, move="gradient")).fit(z.split(50))
    assert (free.prototypes - runs[0][0]).abs().max() > 1e-2  # and it does something


def test_asking_for_a_barrier_moves_the_bank_by_gradient():
    bank = PrototypeBank(K, M)
    trainer = Trainer(bank, Recipe(epochs=1, barrier=0.1))
    trainer.fit([tokens(1)[:, 0]])
    assert trainer.mover is None
    assert trainer.optimiser is not None


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"barrier": 1.0, "move": "soft-kmeans"}, "barrier: got 1.0 with move='soft-kmeans', expected move='gradient'"),
        ({"barrier": "auto", "move": "soft-kmeans"}, "barrier: got 'auto' with move='soft-kmeans'"),
        ({"barrier": -1.0}, "barrier: got -1.0, expected a finite number of at least 0 or 'auto'"),
        ({"barrier": "strong"}, "barrier: got 'strong', expected a number or 'auto'"),
    ],
)
def test_a_barrier_that_cannot_act_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**settings)


def test_a_barrier_needs_prototypes_that_are_apart_at_the_start():
    bank = PrototypeBank(2, M)
    bank.move_to(torch.zeros(1, 2, M))
    with pytest.raises(ValueError, match=r"barrier: got 0\.5, expected 0: prototypes coincide at the start"):
        Trainer(bank, Recipe(epochs=1, init=None, barrier=0.5), monitor=ddcl.CollapseMonitor()).fit([tokens(1)[:, 0]])
