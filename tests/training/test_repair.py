"""Repairing a bank: idle prototypes go where they have something to do, and stay in use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

import ddcl
from ddcl import CollapseMonitor, CollapseWarning, PrototypeBank, SoftKMeans
from ddcl.training import repairing
from ddcl.training.monitor.repair import idle_prototypes, reset_rows, split_into

F64 = torch.float64
K, M, UPDATES = 7, 5, 50
DEAD, COPIES = 6, (1, 4, 5)


def clusters(dtype: torch.dtype = F64) -> torch.Tensor:
    """Tokens of K groups, 31 of each, (N, M)."""
    centers = 4 * torch.randn(K, 1, M, dtype=dtype)
    return (centers + 0.5 * torch.randn(K, 31, M, dtype=dtype)).flatten(0, 1)


def sick_bank(z: torch.Tensor, gradient: str = "full") -> PrototypeBank:
    """Four places for seven prototypes: one is dead, far from all tokens, and three coincide."""
    # cold enough for all groups to hold a prototype of their own, by either way to move
    T = 0.5 * ddcl.resolving_temperature(z.reshape(K, -1, M).mean(1), gradient="stop")
    bank = PrototypeBank(K, M, temperature=T, gradient=gradient, dtype=z.dtype)
    found = ddcl.kmeans(z, 4, restarts=1, generator=torch.Generator().manual_seed(0)).centers
    with torch.no_grad():
        bank.prototypes[0, :4] = found
        bank.prototypes[0, list(COPIES)] = found[COPIES[0]]
        bank.prototypes[0, DEAD] = 1e4
    return bank


def mover_of(bank: PrototypeBank, kind: str) -> tuple[Callable[[torch.Tensor], None], dict]:
    """A function that takes one step on tokens, and what the monitor has to know of it."""
    if kind == "soft k-means":
        mover = SoftKMeans(0.9).attach(bank)

        def move(z: torch.Tensor) -> None:
            bank(z)
            mover.step()

        return move, {"mover": mover}
    make = {
        "Adam": lambda p: torch.optim.Adam(p, lr=0.05),
        "AMSGrad": lambda p: torch.optim.Adam(p, lr=0.05, amsgrad=True),
        "SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.9),
    }[kind]
    optimiser = make([bank.prototypes])

    def descend(z: torch.Tensor) -> None:
        optimiser.zero_grad()
        bank(z).loss.total.backward()
        optimiser.step()

    return descend, {"optimiser": optimiser}


def repair(bank: PrototypeBank, z: torch.Tensor, **known) -> tuple[torch.Tensor, int]:
    """Which rows were moved, and how many prototypes were put to work."""
    monitor = CollapseMonitor(conditions=repairing()).attach(bank, **known)
    before = bank.prototypes.detach().clone()
    bank.eval()
    with monitor.measuring() as report, torch.no_grad():
        bank(z)
    bank.train()
    monitor.detach()
    moved = (bank.prototypes.detach() != before).any(-1)[0]
    return moved.nonzero().flatten(), max((trouble.repaired for trouble in report.troubles), default=0)


def won(bank: PrototypeBank, z: torch.Tensor) -> torch.Tensor:
    return ddcl.usage(bank(z).indices, bank.num_prototypes).counts


def distinct(bank: PrototypeBank, z: torch.Tensor) -> int:
    return int(ddcl.distinct_prototypes(bank.prototypes[0], ddcl.covariance(z).trace))


@pytest.mark.parametrize("gradient", ["full", "stop"])
@pytest.mark.parametrize("kind", ["soft k-means", "Adam", "AMSGrad", "SGD with momentum"])
def test_what_was_dead_or_a_copy_is_in_use_and_alone_after_fifty_more_updates(kind, gradient):
    z = clusters()
    bank = sick_bank(z, gradient)
    move, known = mover_of(bank, kind)
    for _ in range(20):  # a past for the mover or the optimiser to remember
        move(z)
    assert distinct(bank, z) == K - 2
    assert won(bank, z)[DEAD] == 0
    moved, repaired = repair(bank, z, **known)
    assert repaired == 3
    assert DEAD in moved
    assert len(set(COPIES) & set(moved.tolist())) >= 2
    for _ in range(UPDATES):
        move(z)
    assert distinct(bank, z) == K
    assert (won(bank, z) > 0).all()


@pytest.mark.parametrize(
    ("kind", "buffers"),
    [
        ("Adam", {"exp_avg", "exp_avg_sq"}),
        ("AMSGrad", {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}),
        ("SGD with momentum", {"momentum_buffer"}),
    ],
)
def test_an_optimiser_forgets_the_moved_prototypes_and_no_other(kind, buffers):
    z = clusters()
    bank = sick_bank(z)
    move, known = mover_of(bank, kind)
    for _ in range(3):
        move(z)
    state = known["optimiser"].state[bank.prototypes]
    before = {name: state[name].clone() for name in buffers}
    moved, _ = repair(bank, z, **known)
    others = torch.tensor([k for k in range(K) if k not in moved])
    assert len(others)
    for name in buffers:
        assert (before[name][0, moved].abs().sum(-1) > 0).any()
        assert not state[name][0, moved].any()
        assert torch.equal(state[name][0, others], before[name][0, others])
        assert before[name][0, others].any()


def test_an_optimiser_that_has_not_stepped_has_nothing_to_forget():
    z = clusters()
    bank = sick_bank(z)
    optimiser = torch.optim.Adam([bank.prototypes])
    reset_rows(optimiser, bank, 0, torch.tensor([0, 1]))
    assert not optimiser.state


def test_the_mover_forgets_the_moved_prototypes_and_no_other():
    z = clusters()
    bank = sick_bank(z)
    move, known = mover_of(bank, "soft k-means")
    for _ in range(3):
        move(z)
    before = known["mover"].state_dict()[""]
    moved, _ = repair(bank, z, **known)
    after = known["mover"].state_dict()[""]
    others = torch.tensor([k for k in range(K) if k not in moved])
    for name in ("mass", "total"):
        assert not after[name][0, moved].any()
        assert torch.equal(after[name][0, others], before[name][0, others])


def test_a_forgotten_prototype_stays_where_it_was_put_until_tokens_come_and_then_goes_to_their_mean():
    bank = PrototypeBank(2, 1, num_heads=2, temperature=1e-3, dtype=F64)
    with torch.no_grad():
        bank.prototypes.copy_(torch.tensor([0.0, 10.0])[:, None])
    mover = SoftKMeans(0.9).attach(bank)
    z = torch.tensor([[[1.0], [1.0]], [[9.0], [9.0]]], dtype=F64)
    for _ in range(5):
        bank(z)
        mover.step()
    with torch.no_grad():
        bank.prototypes[1, 0] = 5.0
    mover.forget(bank, 1, torch.tensor([0]))
    mover.step()
    torch.testing.assert_close(bank.prototypes.detach().squeeze(-1), torch.tensor([[1.0, 9.0], [5.0, 9.0]], dtype=F64))
    bank(torch.tensor([[[4.0], [4.0]], [[9.0], [9.0]]], dtype=F64))
    mover.step()
    assert bank.prototypes[1, 0].item() == pytest.approx(4.0)  # of this batch alone
    assert 1.0 < bank.prototypes[0, 0].item() < 2.0  # of this batch and the past
    with pytest.raises(ValueError, match="not attached to this SoftKMeans"):
        mover.forget(PrototypeBank(2, 1), 0, torch.tensor([0]))


@pytest.mark.parametrize(("kind", "gradient"), [("soft k-means", "stop"), ("Adam", "full")])
@pytest.mark.parametrize("seed", range(5))
def test_what_a_repair_parts_stays_parted_also_where_not_all_groups_can_be_told_apart(seed, kind, gradient):
    torch.manual_seed(seed)
    z = clusters()
    bank = sick_bank(z, gradient)
    bank.set_temperature(0.05 * ddcl.critical_temperature(z))
    move, known = mover_of(bank, kind)
    for _ in range(20):
        move(z)
    repair(bank, z, **known)
    parted = distinct(bank, z)
    for _ in range(UPDATES):
        move(z)
    assert distinct(bank, z) == parted


@pytest.mark.filterwarnings("ignore:above the critical temperature:ddcl.CollapseWarning")
@pytest.mark.parametrize("relative", [0.45, 0.75])
def test_a_pair_that_soft_k_means_would_draw_together_is_not_parted(relative):
    # running soft k-means descends the free energy, whose critical temperature is half that of mode full
    z = torch.randn(101, M, dtype=F64) * torch.tensor([3.0, 1, 1, 1, 1], dtype=F64)
    bank = PrototypeBank(2, M, temperature=relative * ddcl.critical_temperature(z), gradient="full", dtype=F64)
    with torch.no_grad():
        bank.prototypes.copy_(z.mean(0).expand(2, M))
    move, known = mover_of(bank, "soft k-means")
    repair(bank, z, **known)
    parted = distinct(bank, z)
    assert parted == (2 if relative < 0.5 else 1)
    for _ in range(UPDATES):
        move(z)
    assert distinct(bank, z) == parted


@pytest.mark.parametrize("gradient", ["full", "stop"])
@pytest.mark.parametrize(("relative", "split"), [(0.98, True), (1.02, False)])
def test_nothing_is_split_above_its_critical_temperature(relative, split, gradient):
    z = torch.randn(101, M, dtype=F64) * torch.tensor([3.0, 1, 1, 1, 1], dtype=F64)
    critical = ddcl.critical_temperature(z, gradient=gradient)
    bank = PrototypeBank(3, M, temperature=relative * critical, gradient=gradient, dtype=F64)
    with torch.no_grad():
        bank.prototypes.copy_(z.mean(0).expand(3, M))
    before = bank.prototypes.detach().clone()
    moved = split_into(bank, 0, torch.tensor([False, True, True]), z)
    assert bool(len(moved)) is split
    assert torch.equal(bank.prototypes.detach(), before) is not split


def test_a_bank_that_cannot_be_repaired_says_so():
    z = torch.tensor([[0.0], [1.0]], dtype=F64).repeat(5, 1)
    bank = PrototypeBank(3, 1, temperature=1e-3, dtype=F64)
    with torch.no_grad():
        bank.prototypes.copy_(torch.tensor([[[0.0], [1.0], [50.0]]]))
    before = bank.prototypes.detach().clone()
    # two places for tokens, both taken: nothing splits, and only a condition that asks all the same is met
    dead = next(one for one in repairing() if one.name == "dead prototypes")
    monitor = CollapseMonitor(conditions=[replace(dead, while_splitting=False)]).attach(bank)
    with pytest.warns(CollapseWarning, match="Repaired: 0 prototypes put to work"):  # noqa: SIM117
        with monitor.measuring():
            bank(z)
    assert torch.equal(bank.prototypes.detach(), before)


def test_two_halves_go_to_the_sides_of_the_cell_along_its_longest_axis():
    z = torch.tensor([[-3.0, 0.1], [-3.0, -0.1], [3.0, 0.1], [3.0, -0.1]], dtype=F64) + 7
    bank = PrototypeBank(2, 2, temperature=0.1, dtype=F64)
    with torch.no_grad():
        bank.prototypes.copy_(torch.tensor([[[7.0, 7.0], [99.0, 99.0]]]))
    moved = split_into(bank, 0, torch.tensor([False, True]), z)
    assert moved.tolist() == [0, 1]
    places = bank.prototypes[0].detach()
    torch.testing.assert_close(places[places[:, 0].argsort()], torch.tensor([[4.0, 7.0], [10.0, 7.0]], dtype=F64))


def test_the_cell_with_the_most_distortion_is_split_first():
    narrow = torch.tensor([[-1.0], [1.0]], dtype=F64)
    wide = torch.tensor([[96.0], [104.0]], dtype=F64)
    bank = PrototypeBank(3, 1, temperature=0.1, dtype=F64)
    with torch.no_grad():
        bank.prototypes.copy_(torch.tensor([[[0.0], [100.0], [100.0]]]))
    moved = split_into(bank, 0, torch.tensor([False, False, True]), torch.cat([narrow, wide]))
    assert moved.tolist() == [1, 2]
    assert sorted(bank.prototypes.flatten().tolist()) == pytest.approx([0.0, 96.0, 104.0])


@pytest.mark.parametrize("kind", ["soft k-means", "Adam"])
def test_a_bank_that_lags_beside_its_tokens_is_split_among_them(kind):
    z = clusters()
    bank = sick_bank(z)
    z = z + 100  # the encoder has moved on: one prototype wins all, and lies beside them
    with torch.no_grad():
        bank.prototypes[0, DEAD] = -1e4
    assert (won(bank, z) > 0).sum() < 4
    move, known = mover_of(bank, kind)
    _, repaired = repair(bank, z, **known)
    assert repaired >= 3
    assert distinct(bank, z) == K
    assert (won(bank, z) > 0).all()
    for _ in range(UPDATES):
        move(z)
    assert distinct(bank, z) == K
    assert (won(bank, z) > 0).all()


@pytest.mark.parametrize("idle", [torch.zeros(K, dtype=torch.bool), torch.ones(K, dtype=torch.bool)])
def test_with_none_idle_or_all_idle_nothing_moves(idle):
    z = clusters()
    bank = sick_bank(z)
    before = bank.prototypes.detach().clone()
    assert split_into(bank, 0, idle, z).tolist() == []
    assert torch.equal(bank.prototypes.detach(), before)


def test_idle_are_those_without_tokens_and_all_but_the_busiest_of_every_group():
    bank = torch.tensor([[0.0], [5.0], [5.0 + 1e-5], [5.0], [9.0], [9.0], [20.0]])
    counts = torch.tensor([4.0, 1.0, 3.0, 2.0, 0.0, 0.0, 0.0])
    idle = idle_prototypes(bank, counts, trace=1.0)
    assert idle.tolist() == [False, True, False, True, True, True, True]
    apart = idle_prototypes(bank, torch.ones(7), trace=1e-6)  # in these units 1e-5 is far
    assert apart.tolist() == [False, False, False, True, False, True, False]


def test_a_healthy_bank_is_left_alone():
    z = clusters()
    bank = PrototypeBank(K, M, temperature=0.05 * ddcl.critical_temperature(z), dtype=F64).init_from(z)
    moved, repaired = repair(bank, z)
    assert moved.tolist() == []
    assert repaired == 0


def test_only_the_sick_head_is_touched():
    z = clusters()
    sick = sick_bank(z)
    healthy = ddcl.kmeans(z, K, restarts=3).centers
    bank = PrototypeBank(K, M, num_heads=2, temperature=float(sick.temperature), dtype=F64)
    with torch.no_grad():
        bank.prototypes.copy_(torch.stack([healthy, sick.prototypes[0]]))
    monitor = CollapseMonitor(conditions=repairing()).attach(bank)
    with monitor.measuring() as report:
        bank(z[:, None].expand(-1, 2, -1))
    assert {trouble.head for trouble in report.troubles} == {1}
    assert torch.equal(bank.prototypes[0].detach(), healthy)
    assert int(ddcl.distinct_prototypes(bank.prototypes[1], ddcl.covariance(z).trace)) == K


def test_a_fully_merged_bank_below_its_critical_temperature_is_parted_at_once():
    z = clusters()
    bank = sick_bank(z)
    with torch.no_grad():
        bank.prototypes.copy_(z.mean(0) + 1e-6 * torch.randn(K, M))
    _, repaired = repair(bank, z)
    assert repaired == K - 1
    assert distinct(bank, z) == K
    assert (won(bank, z) > 0).all()
