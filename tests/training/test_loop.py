"""The training loop, and what the project promises of it: no scale, no collapse, no lost run."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import ddcl
from ddcl import CollapseMonitor, CollapseWarning, PrototypeBank, Recipe, SoftKMeans, TokenNorm, Trainer, paper_recipe
from ddcl.training import Critical, Exponential, GuardWarning, Progress
from ddcl.training.checkpoint import load_checkpoint, restore_random, save_checkpoint
from ddcl.training.recipe import Setting

F64 = torch.float64
MOVES = ["soft-kmeans", "gradient"]
INPUTS, WIDTH, K = 11, 5, 7


def groups(count: int = K, dim: int = INPUTS, each: int = 32, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (3 * torch.randn(count, 1, dim, dtype=dtype) + torch.randn(count, each, dim, dtype=dtype)).flatten(0, 1)


class Net(nn.Module):
    """Encoder, normalisation, bank and a linear reading of the centroids."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.norm = nn.Linear(INPUTS, WIDTH), TokenNorm(WIDTH)
        self.bank, self.head = PrototypeBank(K, WIDTH), nn.Linear(WIDTH, INPUTS)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> ddcl.Readout:
        return self.bank(self.norm(self.encoder(x), mask), mask)


def reconstruction(net: Net, batch: list[torch.Tensor]) -> torch.Tensor:
    """A task besides the readout: the inputs from the centroids, over unmasked tokens."""
    x, mask = batch
    found = net(x, mask)
    return found.loss.total + (net.head(found.centroid) - x)[mask].square().mean()


@pytest.mark.parametrize("move", MOVES)
def test_embeddings_alone_are_fitted_and_the_bank_let_go(move):
    z = groups()[torch.randperm(K * 32)]
    bank = PrototypeBank(K, INPUTS)
    best = ddcl.kmeans(z, K, restarts=10, generator=torch.Generator().manual_seed(0)).distortion
    history = Trainer(bank, Recipe(epochs=5, move=move)).fit(z.split(61))
    last = history[-1].metrics
    assert last["distinct"] == K
    assert last["usage"] == 1
    assert last["tokens"] == len(z)
    assert last["quantization"] == pytest.approx(float(best), rel=0.02)
    assert not bank.training
    assert not bank._forward_hooks
    assert not bank._forward_pre_hooks
    assert bank.prototypes.requires_grad


@pytest.mark.parametrize("move", MOVES)
def test_an_encoder_in_front_learns_its_task_from_unmasked_tokens(move):
    x, mask = groups()[torch.randperm(K * 32)].reshape(28, 8, INPUTS), torch.rand(28, 8) > 0.3
    x[~mask] = 1e6  # padding that would drown everything
    net = Net()
    before = {name: value.clone() for name, value in net.named_parameters()}
    loader = DataLoader(TensorDataset(x, mask), batch_size=9)
    history = Trainer(net, Recipe(epochs=8, move=move, restarts=1), loss=reconstruction).fit(loader)
    assert history[-1].metrics["tokens"] == mask.sum()
    assert history[-1].metrics["distinct"] == K
    assert history[-1].loss < history[0].loss
    assert all(not torch.equal(value, before[name]) for name, value in net.named_parameters())


def test_the_bank_moves_by_its_own_means_and_the_rest_by_the_optimiser():
    seen = {}

    def optimiser(parameter_groups):
        seen.update({group["name"]: group["lr"] for group in parameter_groups})
        return torch.optim.Adam(parameter_groups)

    x = groups()
    Trainer(Net(), Recipe(epochs=1, restarts=1, lr=0.02, epsilon=0.05), optimiser=optimiser).fit(x.split(61))
    assert seen == {"encoder": pytest.approx(0.001)}
    seen.clear()
    recipe = Recipe(epochs=1, restarts=1, lr=0.02, epsilon=0.05, move="gradient", relative_lr=False)
    Trainer(Net(), recipe, optimiser=optimiser).fit(x.split(61))
    assert seen == {"prototypes": pytest.approx(0.02), "encoder": pytest.approx(0.001)}


def test_unless_told_the_bank_moves_by_soft_k_means_alone_and_by_gradient_where_a_task_has_a_say():
    z, recipe = groups(), Recipe(epochs=1, restarts=1)
    taking = []

    def loss(bank: PrototypeBank, batch: torch.Tensor) -> torch.Tensor:
        taking.append(bank.prototypes.requires_grad)
        return bank(batch).loss.total

    Trainer(PrototypeBank(K, INPUTS), recipe, loss=loss).fit(z.split(61))
    assert set(taking) == {True}
    alone = Trainer(PrototypeBank(K, INPUTS), recipe)
    alone.loss = loss
    taking.clear()
    alone.fit(z.split(61))
    assert set(taking) == {False}


def test_the_learning_rate_of_a_bank_is_counted_in_units_of_its_tokens():
    rates = {}

    def optimiser(parameter_groups):
        rates[scale, relative] = parameter_groups[0]["lr"]
        return torch.optim.Adam(parameter_groups)

    z = torch.randn(101, 3)
    spread = float((ddcl.covariance(z).trace / 3).sqrt())
    for scale in (1e-3, 8.0):
        for relative in (True, False):
            recipe = Recipe(epochs=1, restarts=1, move="gradient", relative_lr=relative)
            Trainer(PrototypeBank(5, 3), recipe, optimiser=optimiser).fit([scale * z])
            assert rates[scale, relative] == pytest.approx(0.01 * scale * spread if relative else 0.01)


class StoppedError(Exception):
    pass


def stop_after(epoch: int):
    def callback(progress: Progress) -> None:
        if progress.epoch == epoch:
            raise StoppedError

    return callback


def interrupted_and_not(recipe: Recipe, x: torch.Tensor, batch_size: int, path: Path, reseed: int | None):
    """Two histories and models of the same run, the second stopped after half its epochs and taken up anew."""

    def fresh() -> tuple[Net, DataLoader]:
        torch.manual_seed(1)
        return Net(), DataLoader(TensorDataset(x), batch_size=batch_size, shuffle=True)

    whole, loader = fresh()
    expected = Trainer(whole, recipe).fit(loader)
    net, loader = fresh()
    with pytest.raises(StoppedError):
        Trainer(net, recipe, callback=stop_after(recipe.epochs // 2)).fit(loader, checkpoint=path)
    resumed, loader = fresh()
    if reseed is not None:
        torch.manual_seed(reseed)
    history = Trainer(resumed, recipe).fit(loader, checkpoint=path, resume=True)
    return whole, expected, resumed, history


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize(
    ("batch_size", "reseed"),
    [(28, None), (32, None), (28, 99)],
    ids=["8 steps an epoch", "7 steps an epoch", "another random state at the start"],
)
def test_a_resumed_run_is_the_uninterrupted_one_bit_by_bit(move, batch_size, reseed, tmp_path):
    recipe = Recipe(epochs=10, move=move, restarts=1)
    whole, expected, resumed, history = interrupted_and_not(recipe, groups(), batch_size, tmp_path / "run.pt", reseed)
    assert [one.epoch for one in history] == list(range(1, 11))
    found = resumed.state_dict()
    for name, value in whole.state_dict().items():
        assert torch.equal(value, found[name]), name
    assert [one.metrics for one in history] == [one.metrics for one in expected]
    assert [one.loss for one in history] == [one.loss for one in expected]
    assert [one.troubles for one in history] == [one.troubles for one in expected]


def test_a_finished_run_is_read_back_as_it_ended(tmp_path):
    z, recipe = groups(), Recipe(epochs=2, restarts=1)
    bank = PrototypeBank(K, INPUTS)
    first = Trainer(bank, recipe).fit(z.split(61), checkpoint=tmp_path / "run.pt")
    other = PrototypeBank(K, INPUTS)
    calls = []
    again = Trainer(other, recipe, callback=calls.append).fit(z.split(61), checkpoint=tmp_path / "run.pt", resume=True)
    assert again == first
    assert calls == []
    assert torch.equal(bank.prototypes, other.prototypes)
    assert torch.equal(bank.temperature, other.temperature)


def test_without_resume_a_run_begins_anew_and_with_it_but_without_a_file_too(tmp_path):
    z, path = groups(), tmp_path / "deep" / "run.pt"
    recipe = Recipe(epochs=1, restarts=1)
    assert len(Trainer(PrototypeBank(K, INPUTS), recipe).fit(z.split(61), checkpoint=path, resume=True)) == 1
    seen = []
    Trainer(PrototypeBank(K, INPUTS), recipe, callback=seen.append).fit(z.split(61), checkpoint=path)
    assert len(seen) == 1


def test_a_checkpoint_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "run.pt"
    save_checkpoint(path, {"value": torch.tensor(1.0)})

    def crash(state, file):
        Path(file).write_bytes(b"half of a ch")
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", crash)
        with pytest.raises(OSError, match="disk full"):
            save_checkpoint(path, {"value": torch.tensor(2.0)})
    assert load_checkpoint(path)["value"] == 1
    save_checkpoint(path, {"value": torch.tensor(3.0)})
    assert load_checkpoint(path)["value"] == 3
    assert [file.name for file in tmp_path.iterdir()] == ["run.pt"]


def test_a_checkpoint_returns_the_random_numbers_too(tmp_path):
    save_checkpoint(tmp_path / "run.pt", {})
    expected = torch.rand(5)
    torch.rand(3)
    restore_random(load_checkpoint(tmp_path / "run.pt"))
    assert torch.equal(torch.rand(5), expected)


@pytest.mark.parametrize("move", MOVES)
def test_bfloat16_trains_with_prototypes_in_float32(move):
    seen = []

    def loss(net: Net, x: torch.Tensor) -> torch.Tensor:
        tokens = net.norm(net.encoder(x))
        seen.append(tokens.dtype)
        return net.bank(tokens).loss.total

    net = Net()
    recipe = Recipe(epochs=6, restarts=1, precision="bfloat16", move=move)
    history = Trainer(net, recipe, loss=loss).fit(groups().split(61))
    assert set(seen) == {torch.bfloat16}
    assert net.bank.prototypes.dtype == net.encoder.weight.dtype == torch.float32
    assert history[-1].metrics["distinct"] == K
    assert history[-1].metrics["usage"] == 1
    assert all(math.isfinite(one.loss) for one in history)


def test_soft_k_means_takes_the_same_step_under_autocast():
    # bfloat16 in, float32 inside: the tokens are the same, so are the means of their cells
    z, start = torch.randn(199, 3) + 3, torch.randn(5, 3) + 3
    places = {}
    for enabled in (False, True):
        bank = PrototypeBank(5, 3, temperature=0.5)
        with torch.no_grad():
            bank.prototypes.copy_(start)
        mover = SoftKMeans(0.0).attach(bank)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            bank(z)
        mover.step()
        places[enabled] = bank.prototypes.detach()
    torch.testing.assert_close(places[True], places[False])


@pytest.mark.parametrize("clip", [0.5, None])
def test_clip_bounds_the_gradient_of_the_encoder_only(clip):
    norms: dict[str, list[float]] = {"prototypes": [], "encoder": []}

    class Watching(torch.optim.SGD):
        def step(self, closure=None):  # noqa: ARG002
            for group in self.param_groups:
                found = [p.grad.flatten() for p in group["params"] if p.grad is not None]
                norms[group["name"]].append(float(torch.cat(found).norm()))

    def loss(net: Net, x: torch.Tensor) -> torch.Tensor:
        return 1e3 * net(x).loss.total

    recipe = Recipe(epochs=1, restarts=1, move="gradient", clip=clip)
    Trainer(Net(), recipe, loss=loss, optimiser=Watching).fit(groups().split(61))
    assert min(norms["prototypes"]) > 1
    if clip is None:
        assert min(norms["encoder"]) > 1
    else:
        assert norms["encoder"] == pytest.approx([clip] * 4, rel=1e-4)


def test_clip_has_nothing_to_do_for_a_bank_alone():
    z = groups()
    places = []
    for clip in (1e-9, None):
        torch.manual_seed(0)
        bank = PrototypeBank(K, INPUTS)
        Trainer(bank, Recipe(epochs=1, restarts=1, move="gradient", clip=clip)).fit(z.split(61))
        places.append(bank.prototypes.detach())
    assert torch.equal(*places)


def test_the_callback_sees_every_epoch_and_figures_come_as_often_as_asked():
    z, seen = groups(), []
    recipe = Recipe(epochs=5, restarts=1)
    history = Trainer(PrototypeBank(K, INPUTS), recipe, measure_every=2, callback=seen.append).fit(z.split(61))
    assert seen == history
    assert [one.epoch for one in seen] == [1, 2, 3, 4, 5]
    assert [bool(one.metrics) for one in seen] == [False, True, False, True, True]  # the last in any case
    assert [one.step for one in seen] == [4, 8, 12, 16, 20]
    assert {(one.epochs, one.steps) for one in seen} == {(5, 20)}
    assert all(later.seconds >= earlier.seconds for earlier, later in pairwise(seen))


def test_the_loss_of_an_epoch_is_the_mean_over_its_batches():
    given = iter([1.0, 2.0, 6.0])

    def loss(bank: PrototypeBank, z: torch.Tensor) -> torch.Tensor:
        return bank(z).loss.total * 0 + next(given)

    (one,) = Trainer(PrototypeBank(K, INPUTS), Recipe(epochs=1, restarts=1), loss=loss).fit(groups().split(75))
    assert one.loss == pytest.approx(3.0)


@pytest.mark.bad_input
def test_batches_that_cannot_be_trained_on_are_refused():
    z = groups()
    with pytest.raises(TypeError, match="batches: got an iterator that ends after one epoch"):
        Trainer(PrototypeBank(K, INPUTS)).fit(iter(z.split(61)))
    with pytest.raises(ValueError, match="batches: got none"):
        Trainer(PrototypeBank(K, INPUTS)).fit([])
    labels = torch.randint(2, (len(z),))
    with pytest.raises(TypeError, match=r"batch: got tuple of tensor of torch.float32, tensor of torch.int64"):
        Trainer(PrototypeBank(K, INPUTS)).fit([(z, labels)])
    with pytest.raises(TypeError, match="batch: got dict"):
        Trainer(PrototypeBank(K, INPUTS)).fit([{"z": z}])


def test_models_that_cannot_be_trained_are_refused():
    with pytest.raises(ValueError, match="model: it holds no PrototypeBank"):
        Trainer(nn.Linear(2, 2))

    class Idle(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = PrototypeBank(K, INPUTS), PrototypeBank(K, INPUTS)

        def forward(self, x):
            return self.used(x)

    with pytest.raises(ValueError, match="bank 'unused' was not called by any batch"):
        Trainer(Idle(), Recipe(epochs=1, restarts=1)).fit(groups().split(61))


def test_a_loader_that_does_not_know_its_length_is_walked_once_to_count():
    z = groups()

    class Stream(IterableDataset):
        def __iter__(self):
            return iter(z)

    seen = []
    Trainer(PrototypeBank(K, INPUTS), Recipe(epochs=2, restarts=1), callback=seen.append).fit(
        DataLoader(Stream(), batch_size=61)
    )
    assert [one.step for one in seen] == [4, 8]


class Labelled(NamedTuple):
    x: torch.Tensor
    label: torch.Tensor


@pytest.mark.parametrize("kind", ["named tuple", "dict"])
def test_batches_of_any_kind_reach_a_loss_of_ones_own_as_they_are(kind):
    x, label = groups(), torch.arange(K * 32) % 3
    parts = [Labelled(a, b) for a, b in zip(x.split(61), label.split(61), strict=True)]
    batches = parts if kind == "named tuple" else [part._asdict() for part in parts]
    seen = []

    def forward(bank, batch):
        return bank(batch.x if kind == "named tuple" else batch["x"])

    def loss(bank, batch):
        seen.append(type(batch))
        return forward(bank, batch).loss.total

    Trainer(PrototypeBank(K, INPUTS), Recipe(epochs=1, restarts=1), loss=loss, forward=forward).fit(batches)
    assert seen == [type(batches[0])] * 4


def test_a_run_that_fails_lets_the_banks_go():
    bank = PrototypeBank(K, INPUTS)
    with pytest.raises(StoppedError):
        Trainer(bank, Recipe(epochs=3, restarts=1), callback=stop_after(1)).fit(groups().split(61))
    assert not bank._forward_hooks
    assert not bank._forward_pre_hooks
    assert bank.prototypes.requires_grad


def test_a_bank_that_was_frozen_is_frozen_when_its_mover_lets_it_go():
    bank = PrototypeBank(5, 3).requires_grad_(False)
    SoftKMeans().attach(bank).detach()
    assert not bank.prototypes.requires_grad


def test_a_run_does_not_warn_of_a_temperature_that_it_never_uses():
    # T = 1.0 is what a bank has before anyone sets it, and above T_c of these tokens
    z = nn.functional.normalize(torch.randn(311, 67), dim=-1)
    bank = PrototypeBank(K, 67)
    assert bank.temperature.item() > ddcl.critical_temperature(z)
    history = Trainer(bank, Recipe(epochs=1, init=None, restarts=1)).fit(z.split(61))
    assert history[-1].metrics["relative_temperature"] < 1


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epochs": 0}, "epochs: got 0"),
        ({"restarts": 0}, "restarts: got 0"),
        ({"move": "adam"}, "move: got 'adam', expected one of 'soft-kmeans', 'gradient'"),
        ({"precision": "half"}, "precision: got 'half'"),
        ({"init": "random"}, "init: got 'random'"),
        ({"lr": 0.0}, r"lr: got 0\.0"),
        ({"lr": math.inf}, "lr: got inf"),
        ({"epsilon": -1.0}, r"epsilon: got -1\.0"),
        ({"clip": 0.0}, r"clip: got 0\.0"),
    ],
)
def test_bad_settings_of_a_recipe_are_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**arguments)


@pytest.mark.bad_input
def test_a_bad_number_of_epochs_between_measurements_is_refused_by_name():
    with pytest.raises(ValueError, match="measure_every: got 0"):
        Trainer(PrototypeBank(5, 3), measure_every=0)


def test_the_plan_of_a_bank_started_from_data_is_cool_and_cooler_behind_an_encoder_that_learns():
    still = Critical().schedule(Setting(steps=100, resolving=0.4, started=True, learning=False))
    assert (*still.start, *still.end, still.resolved, still.steps) == pytest.approx((0.2, 0.02, 0.5, 70))
    learning = Critical().schedule(Setting(steps=100, resolving=0.4, started=True, learning=True))
    assert (*learning.start, *learning.end, learning.resolved) == pytest.approx((0.04, 0.004, 0.1))
    merged = Critical().schedule(Setting(steps=100, resolving=0.4, started=False, learning=False))
    assert (*merged.start, *merged.end) == pytest.approx((0.9, 0.02))
    assert merged.resolved is None  # it would be held at T = 0


@pytest.mark.parametrize("resolving", [0.0, 1e-12, 3.0, math.inf])
def test_the_plan_stays_between_nothing_and_the_critical_temperature_whatever_the_data_resolve(resolving):
    plan = Critical().schedule(Setting(steps=100, resolving=resolving, started=True, learning=True))
    assert 0 < plan.end[0] <= plan.start[0] < 1


def test_a_plan_that_is_given_is_followed():
    schedule = Critical(start=0.5, end=0.1, share=0.5, warmup=0.2).schedule(
        Setting(steps=50, resolving=0.4, started=True, learning=False)
    )
    assert (schedule.start, schedule.end, schedule.steps, schedule.warmup) == ((0.5,), (0.1,), 25, 10)
    assert schedule.resolved is None


def test_the_papers_recipe_has_the_papers_temperatures_epoch_by_epoch():
    z = 100 * groups()
    bank = PrototypeBank(K, INPUTS)
    recipe = replace(paper_recipe(3), restarts=1)
    assert recipe.temperature == Exponential(2.0, 0.3, 20.0)
    history = Trainer(bank, recipe).fit(z.split(61))
    temperatures = [one.metrics["temperature"] for one in history]
    assert temperatures == pytest.approx([2 * math.exp(-t / 20) for t in (1, 2, 3)])


def test_an_encoder_left_to_the_quantisation_loss_alone_is_warned_of():
    net = nn.Sequential(nn.Linear(INPUTS, WIDTH), PrototypeBank(K, WIDTH))
    recipe = Recipe(epochs=1, restarts=1)
    with pytest.warns(GuardWarning, match="maps everything to one point"):
        Trainer(net, recipe).fit(groups().split(61))
    Trainer(net, recipe, loss=lambda model, x: model(x).loss.total).fit(groups().split(61))  # one's own loss: no word
    with pytest.warns(GuardWarning, match=r"epsilon: the encoder's learning rate is 0\.5 times"):
        Trainer(Net(), replace(recipe, epsilon=0.5)).fit(groups().split(61))


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "share"), [(F64, 1.0), (torch.float32, 0.999)])
def test_the_scale_of_the_data_changes_no_assignment_of_a_default_run(dtype, share):
    # overlapping groups and more prototypes than groups: nothing but the same arithmetic gives the same cells
    z = (torch.randn(13, 1, 7, dtype=F64) + torch.randn(13, 157, 7, dtype=F64)).flatten(0, 1)
    z = z[torch.randperm(len(z))].to(dtype)

    def assigned(scale: float) -> torch.Tensor:
        torch.manual_seed(0)
        bank = PrototypeBank(17, 7, dtype=dtype)
        Trainer(bank, Recipe(epochs=15, restarts=2)).fit((scale * z).split(257))
        return bank(scale * z).indices

    reference = assigned(1.0)
    assert len(reference.unique()) == 17
    for scale in (1e-3, 8.0, 1e3):
        assert (assigned(scale) == reference).double().mean() >= share, scale


@pytest.mark.slow
def test_a_merged_bank_recovers_by_default_and_by_the_papers_recipe_does_not():
    # 61 directions in 67 dimensions, unit norm: T_c lies below the paper's lowest temperature of 0.3
    mixture = torch.randn(61, 1, 67) + 0.15 * torch.randn(61, 10, 67)
    z = nn.functional.normalize(mixture, dim=-1).flatten(0, 1)[torch.randperm(610)]
    assert ddcl.critical_temperature(z) < 0.3
    kept = {}
    for name, recipe in {"default": Recipe(epochs=40), "paper": paper_recipe(40)}.items():
        bank = PrototypeBank(16, 67)
        with torch.no_grad():
            bank.prototypes.copy_(z.mean(0) + 1e-6 * torch.randn(16, 67))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CollapseWarning)
            history = Trainer(bank, replace(recipe, init=None)).fit(z.split(305))
        kept[name] = int(ddcl.distinct_prototypes(bank.prototypes[0], ddcl.covariance(z).trace))
        assert history[-1].metrics["distinct"] == kept[name]
    assert kept["default"] >= 0.95 * 16
    assert kept["paper"] == 1


def test_the_default_recovers_by_its_temperatures_alone_too():
    mixture = torch.randn(61, 1, 67) + 0.15 * torch.randn(61, 10, 67)
    z = nn.functional.normalize(mixture, dim=-1).flatten(0, 1)[torch.randperm(610)]
    bank = PrototypeBank(16, 67)
    with torch.no_grad():
        bank.prototypes.copy_(z.mean(0) + 1e-6 * torch.randn(16, 67))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        history = Trainer(bank, Recipe(epochs=40, init=None), monitor=CollapseMonitor()).fit(z.split(305))
    assert history[-1].metrics["distinct"] >= 0.95 * 16


@pytest.mark.parametrize("move", ["soft-kmeans", "gradient"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: ddcl.DDCLAttention(INPUTS, K),
        lambda: ddcl.PrototypeReadout(INPUTS, K, output="attention", head="classification", num_outputs=2),
        lambda: ddcl.PrototypeFeedForward(INPUTS, K, proto_dim=INPUTS, num_heads=1),
        lambda: ddcl.ResidualQuantizer(2, dim=INPUTS, num_prototypes=K),
        lambda: ddcl.SerialPrototypes(INPUTS, K),
    ],
)
@pytest.mark.filterwarnings("ignore::ddcl.training.GuardWarning", "ignore::ddcl.CollapseWarning")
def test_every_module_trains_on_the_quantisation_loss_alone(make, move):
    model = make()
    batches = [batch.unsqueeze(0) for batch in groups().split(61)]
    history = Trainer(model, Recipe(epochs=2, restarts=1, move=move)).fit(batches)
    assert all(one.loss > 0 for one in history)
    assert all(bool(bank.initialised) for bank in ddcl.banks_of(model).values())


def test_a_loss_that_nothing_learns_from_is_refused_by_name():
    with pytest.raises(ValueError, match="loss: it depends on nothing that learns"):
        Trainer(
            PrototypeBank(K, INPUTS),
            Recipe(epochs=1, restarts=1),
            loss=lambda model, batch: model(batch).loss.total.detach(),
        ).fit(groups().split(61))


def test_exact_figures_may_be_of_other_batches_than_the_training():
    z = torch.randn(256, 4)
    bank = PrototypeBank(4, 4)
    history = Trainer(bank, Recipe(epochs=2)).fit(z.split(64), measured=z[:96].split(32))
    assert [one.metrics["tokens"] for one in history] == [96.0, 96.0]
    assert history[-1].steps == 8
    with pytest.raises(TypeError, match="measured: got an iterator"):
        Trainer(bank, Recipe(epochs=2)).fit(z.split(64), measured=iter([z]))
