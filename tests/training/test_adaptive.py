"""A bank that finds its own size, and everything that hangs on to it following."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

import ddcl
from ddcl import CollapseMonitor, CriticalSchedule, PrototypeBank, Recipe, SoftKMeans, Trainer
from ddcl.nn.shared import OffsetBank, SharedPrototypes
from ddcl.training.adaptive import AdaptiveSize, SizeChange
from ddcl.training.recipe import Critical, Setting

M = 5
MOVES = ["soft-kmeans", "gradient"]


def clusters(count: int, seed: int = 0, each: int = 64, dim: int = M) -> tuple[torch.Tensor, torch.Tensor]:
    """Well separated: random centres, no two closer than 15 standard deviations of a cluster."""
    generator = torch.Generator().manual_seed(seed)
    centers = torch.zeros(count, dim)
    while torch.pdist(centers).min() < 15:
        centers = 10 * torch.randn(count, dim, generator=generator)
    order = torch.randperm(count * each, generator=generator)
    labels = torch.arange(count).repeat(each)[order]
    return centers[labels] + torch.randn(count * each, dim, generator=generator), labels


def pairs_at(*places: float) -> torch.Tensor:
    """Tokens of variance 1e-4 about points on a line."""
    return torch.cat([place + 0.01 * torch.tensor([[-1.0], [1.0]]).repeat(8, 1) for place in places])


def bank_at(*places: float, temperature: float = 1.0) -> PrototypeBank:
    bank = PrototypeBank(len(places), 1, temperature=temperature)
    bank.move_to(torch.tensor(places).reshape(1, -1, 1))
    return bank


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("move", MOVES)
def test_started_at_2_and_bounded_by_64_it_ends_at_8_for_8_clusters(move, seed):
    z, labels = clusters(8, seed)
    torch.manual_seed(seed)
    bank = PrototypeBank(2, M)
    recipe = Recipe(epochs=20, move=move, seed=seed, adapt=AdaptiveSize(minimum=2, maximum=64))
    history = Trainer(bank, recipe).fit(z.split(128))
    assert bank.num_prototypes == 8
    assert history[-1].num_prototypes == {"": 8}
    assert history[-1].metrics["distinct"] == 8
    assert history[-1].troubles == ()
    found = bank(z).indices
    assert len(torch.stack([labels, found]).unique(dim=1).T) == 8  # one prototype for each cluster, and no other


def test_the_scale_of_the_data_does_not_matter():
    z, _ = clusters(3, each=32)
    sizes = []
    for scale in (1e-3, 1.0, 1e3):
        bank = PrototypeBank(2, M)
        history = Trainer(bank, Recipe(epochs=6, adapt=AdaptiveSize(maximum=16))).fit((scale * z).split(48))
        sizes.append([one.num_prototypes[""] for one in history])
    assert sizes[0] == sizes[1] == sizes[2]
    assert sizes[1][-1] == 3


def test_the_resolution_says_what_is_a_cluster():
    # four points: two pairs 2 apart, 20 from each other; a pair has variance 1 of 101
    z = torch.cat([pairs_at(-11.0, -9.0), pairs_at(9.0, 11.0)])[torch.randperm(64)]
    for resolution, expected in ((0.1, 2), (0.005, 4)):
        bank = PrototypeBank(2, 1)
        Trainer(bank, Recipe(epochs=12, adapt=AdaptiveSize(resolution=resolution))).fit(z.split(16))
        assert bank.num_prototypes == expected


@pytest.mark.parametrize(("resolution", "expected"), [(0.1, 4), (0.03, 8)])
def test_a_row_of_clusters_needs_a_finer_resolution(resolution, expected):
    # two neighbours have 25 of the row's variance of 525: a share of 0.048
    z = 10.0 * torch.randint(8, (512, 1)) + torch.randn(512, 1)
    bank = PrototypeBank(2, 1)
    Trainer(bank, Recipe(epochs=20, adapt=AdaptiveSize(resolution=resolution))).fit(z.split(128))
    assert bank.num_prototypes == expected


def test_a_prototype_that_holds_two_groups_becomes_two():
    z, bank = pairs_at(0.0, 10.0), bank_at(5.0, 400.0)
    found = AdaptiveSize(minimum=1).adapt(bank, z)
    assert found == SizeChange(pruned=1, merged=0, split=1)
    assert sorted(bank.prototypes.flatten().tolist()) == pytest.approx([0.0, 10.0], abs=1e-3)


def test_what_wins_nothing_is_pruned_down_to_the_minimum():
    z = pairs_at(0.0, 10.0)
    for minimum, left in ((2, 2), (4, 4), (1, 2)):
        bank = bank_at(0.0, 10.0, 300.0, 400.0, 500.0)
        found = AdaptiveSize(minimum=minimum).adapt(bank, z)
        assert bank.num_prototypes == left == 5 - found.pruned
        assert {0.0, 10.0} <= set(bank.prototypes.flatten().tolist())


def test_duplicates_are_merged_and_so_is_what_the_temperature_does_not_tell_apart():
    z = pairs_at(0.0, 10.0)
    bank = bank_at(0.0, 0.0, 10.0, 10.01)
    # of two that coincide exactly one wins every token, the other none
    assert AdaptiveSize().adapt(bank, z) == SizeChange(pruned=1, merged=1, split=0)
    assert bank.num_prototypes == 2
    # at a temperature below the variance of a pair (2 * 1e-4 in mode stop) the same two are two things
    cold = bank_at(0.0, 9.99, 10.01, temperature=1e-5)
    assert AdaptiveSize().adapt(cold, z, grow=False) == SizeChange(0, 0, 0)


def test_the_maximum_is_kept_and_the_worst_cell_goes_first():
    z = torch.cat([pairs_at(0.0, 10.0), pairs_at(1000.0, 1100.0)])
    bank = bank_at(5.0, 1050.0)
    assert AdaptiveSize(maximum=3).adapt(bank, z).split == 1
    assert bank.num_prototypes == 3
    assert sorted(bank.prototypes.flatten().tolist()) == pytest.approx([5.0, 1000.0, 1100.0], abs=1e-2)
    assert AdaptiveSize(maximum=3).adapt(bank, z) == SizeChange(0, 0, 0)


def test_a_run_never_leaves_its_bounds():
    z, _ = clusters(8, each=16)
    bank = PrototypeBank(3, M)
    history = Trainer(bank, Recipe(epochs=8, adapt=AdaptiveSize(minimum=3, maximum=5))).fit(z.split(32))
    sizes = [one.num_prototypes[""] for one in history]
    assert min(sizes) >= 3
    assert sizes[-1] == max(sizes) == 5


def test_two_merged_prototypes_at_the_minimum_are_one_to_be_split():
    bank = bank_at(5.0, 5.0)
    assert AdaptiveSize(minimum=2).adapt(bank, pairs_at(0.0, 10.0)).split == 1
    assert bank.num_prototypes == 2
    assert sorted(bank.prototypes.flatten().tolist()) == pytest.approx([0.0, 10.0], abs=1e-3)


@pytest.mark.parametrize("make", [lambda p: torch.optim.Adam(p, lr=1e-6), lambda p: torch.optim.SGD(p, 1e-6, 0.9)])
def test_momentum_of_a_prototype_that_stays_goes_along_and_what_is_new_has_none(make):
    z = pairs_at(0.0, 10.0, 20.0)
    bank = bank_at(300.0, 0.0, 15.0, temperature=0.1)
    optimiser = make(bank.parameters())
    bank(z + 0.5).loss.total.backward()
    optimiser.step()
    before = {k: v.clone() for k, v in optimiser.state[bank.prototypes].items() if torch.is_tensor(v)}
    assert AdaptiveSize().adapt(bank, z, optimiser=optimiser) == SizeChange(pruned=1, merged=0, split=1)
    assert bank.prototypes.flatten().tolist() == pytest.approx([0.0, 10.0, 20.0], abs=0.01)
    after = optimiser.state[bank.prototypes]
    for name, value in before.items():
        if value.dim():
            assert after[name].flatten().tolist() == [float(value[0, 1, 0]), 0.0, 0.0]
            assert value[0, 1, 0] != 0
        else:
            assert after[name] == value
    optimiser.zero_grad()
    bank(z).loss.total.backward()
    optimiser.step()


def test_a_loss_of_before_that_is_still_held_does_not_stand_in_the_way():
    z, bank = pairs_at(0.0, 10.0, 30.0, 40.0), bank_at(5.0, 35.0)
    held = bank(z).loss.total
    held.backward()
    parameter = bank.prototypes
    AdaptiveSize().adapt(bank, z)
    assert bank.prototypes is parameter
    assert bank.num_prototypes == 4
    assert parameter.grad is None
    bank(z).loss.total.backward()
    assert parameter.grad.shape == parameter.shape
    assert held.isfinite()


def test_the_mover_keeps_what_it_knows_of_those_that_stay():
    z = pairs_at(0.0, 10.0, 20.0)
    bank = bank_at(300.0, 0.0, 15.0, temperature=0.1)
    mover = SoftKMeans(momentum=0.5).attach(bank)
    monitor = CollapseMonitor().attach(bank, mover=mover)
    schedule = CriticalSchedule(0.01, 0.01, steps=1).attach(bank)
    bank(z)
    mass = mover.state_dict()[""]["mass"]
    AdaptiveSize().adapt(bank, z, followers=(mover, monitor, schedule))
    found = mover.state_dict()[""]
    assert found["mass"].tolist() == [[mass[0, 1].item(), 0.0, 0.0]]
    assert found["total"].shape == (1, 3, 1)
    for _ in range(5):
        bank(z)
        mover.step()
        schedule.step()
    assert monitor.read()["usage"] == 1
    assert bank.prototypes.flatten().tolist() == pytest.approx([0.0, 10.0, 20.0], abs=1e-3)


def test_every_part_follows_a_bank_of_another_size():
    z = torch.cat([pairs_at(0.0, 10.0), pairs_at(30.0, 70.0)])
    bank = bank_at(5.0, 50.0, temperature=0.1)
    parts = (
        SoftKMeans().attach(bank),
        CollapseMonitor().attach(bank),
        CriticalSchedule(0.01, 0.01, steps=1).attach(bank),
    )
    bank(z)
    AdaptiveSize().adapt(bank, z, followers=parts)
    assert bank.num_prototypes == 4
    bank(z)
    parts[0].step()
    with torch.no_grad(), parts[1].measuring() as report:
        bank.eval()(z)
    assert report.measures[""][0].distinct == 4
    assert parts[0].state_dict()[""]["mass"].shape == (1, 4)
    smaller = bank_at(5.0, 50.0)
    with pytest.raises(ValueError, match="state: bank '' had 4 prototypes, expected 2; load the model first"):
        SoftKMeans().attach(smaller).load_state_dict(parts[0].state_dict())


@pytest.mark.parametrize("move", MOVES)
def test_a_run_that_was_stopped_ends_where_the_unbroken_one_does(move, tmp_path: Path):
    z, _ = clusters(4, each=32)
    ends = []
    for name, stop in (("unbroken", None), ("broken", 3)):

        def interrupt(now, stop=stop):
            if now.epoch == stop:
                raise KeyboardInterrupt

        for attempt in range(2):
            torch.manual_seed(1)
            bank = PrototypeBank(2, M)
            callback = interrupt if attempt == 0 else None
            trainer = Trainer(bank, Recipe(epochs=8, move=move, adapt=AdaptiveSize()), callback=callback)
            try:
                history = trainer.fit(z.split(32), checkpoint=tmp_path / name, resume=True)
                break
            except KeyboardInterrupt:
                assert bank.num_prototypes > 2  # it is stopped after it has grown
        ends.append((bank.prototypes.detach(), bank.temperature, [one.num_prototypes for one in history]))
    assert torch.equal(ends[0][0], ends[1][0])
    assert torch.equal(ends[0][1], ends[1][1])
    assert ends[0][2] == ends[1][2]


def test_the_state_of_a_grown_bank_loads_into_one_of_any_size():
    bank = PrototypeBank(7, M).init_from(torch.randn(50, M))
    other = torch.nn.Sequential(PrototypeBank(2, M))
    optimiser = torch.optim.SGD(other.parameters(), lr=1.0)
    other.load_state_dict(torch.nn.Sequential(bank).state_dict())
    assert other[0].num_prototypes == 7
    z = torch.randn(11, M)
    assert torch.equal(other(z).centroid, bank(z).centroid)
    other(z).loss.total.backward()
    optimiser.step()  # made before, it holds the same parameter
    assert not torch.equal(other[0].prototypes, bank.prototypes)
    fixed = PrototypeBank(2, M)
    fixed.resizable = False
    for loader in (fixed, PrototypeBank(2, M + 1), PrototypeBank(2, M, num_heads=2)):
        with pytest.raises(RuntimeError, match="size mismatch for prototypes"):
            loader.load_state_dict(bank.state_dict())


def test_a_resized_bank_is_copied_cast_and_compiled_at_its_size():
    bank = PrototypeBank(2, M)
    bank.resize_to(torch.randn(1, 3, M))
    assert copy.deepcopy(bank).prototypes.shape == (1, 3, M)
    assert bank.double().prototypes.shape == (1, 3, M)
    assert "num_prototypes=3" in repr(bank)


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_compiled_code_sees_the_new_size():
    torch._dynamo.reset()
    bank, z = PrototypeBank(2, M), torch.randn(11, M)
    fast = torch.compile(bank, fullgraph=True, backend="aot_eager")
    fast(z)
    bank.resize_to(torch.randn(1, 3, M))
    torch.testing.assert_close(fast(z).centroid, bank(z).centroid)
    torch._dynamo.reset()


def test_a_plan_for_a_bank_that_finds_its_size_goes_from_near_critical_to_the_resolution():
    setting = Setting(steps=10, resolving=0.2, started=True, learning=False, resolution=0.07)
    schedule = Critical(share=1.0).schedule(setting)
    assert schedule.at(0) == pytest.approx((0.9,))
    assert schedule.at(10) == pytest.approx((0.07,))
    assert schedule.resolved is None
    assert Critical(end=0.02).schedule(setting).at(10) == pytest.approx((0.02,))


def test_tokens_without_number_change_nothing():
    bank = bank_at(0.0, 1.0)
    assert AdaptiveSize().adapt(bank, torch.full((4, 1), float("nan"))) == SizeChange(0, 0, 0)
    assert AdaptiveSize().adapt(bank, torch.empty(0, 1)) == SizeChange(0, 0, 0)


@pytest.mark.parametrize(
    ("bank", "message"),
    [
        (PrototypeBank(4, M, num_heads=2), "bank '0': it has 2 heads, expected 1: all heads share one K"),
        (OffsetBank(SharedPrototypes(4, M)), "bank '0': it is not resizable"),
        (PrototypeBank(1, M), "bank '0': it has 1 prototypes, expected from 2 to 8, the bounds of its size"),
        (PrototypeBank(9, M), "bank '0': it has 9 prototypes, expected from 2 to 8"),
    ],
)
def test_banks_that_cannot_be_resized_are_refused_before_the_run(bank, message):
    trainer = Trainer(torch.nn.Sequential(bank), Recipe(epochs=1, adapt=AdaptiveSize(maximum=8)))
    with pytest.raises(ValueError, match=message):
        trainer.fit([torch.randn(20, M)])


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"minimum": 0}, "minimum: got 0"),
        ({"minimum": 9, "maximum": 8}, "maximum: got 8, expected an integer of at least 9"),
        ({"resolution": 1.0}, "resolution: got 1.0, expected a multiple of T_c between 0 and 1"),
    ],
)
def test_bad_bounds_are_refused_by_name(settings, message):
    with pytest.raises(ValueError, match=message):
        AdaptiveSize(**settings)


@pytest.mark.bad_input
def test_bad_points_and_a_barrier_beside_it_are_refused():
    bank = PrototypeBank(2, M)
    for points in (torch.zeros(2, 3, M), torch.zeros(3, M), torch.zeros(1, 0, M), torch.zeros(1, 3, 4)):
        with pytest.raises(ValueError, match=r"points: got shape .*, expected \(1, K, 5\) with K >= 1"):
            bank.resize_to(points)
    with pytest.raises(ValueError, match="points: 5 of 15 values are NaN"):
        bank.resize_to(torch.tensor([0.0, 0.0, float("nan")]).reshape(1, 3, 1).expand(1, 3, M))
    with pytest.raises(ValueError, match=r"barrier: got 1\.0 with adapt"):
        Recipe(move="gradient", barrier=1.0, adapt=AdaptiveSize())
    assert ddcl.banks_of(bank)[""].num_prototypes == 2
