"""Banks that share their prototypes: rows that correspond, one common parameter, everything a bank does."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import ddcl
from ddcl import DDCLAttention, PrototypeBank, Recipe, SoftKMeans, Trainer
from ddcl.nn.shared import OffsetBank, SharedPrototypes

K, M, N = 5, 3, 211
F64 = torch.float64


def clusters() -> tuple[torch.Tensor, torch.Tensor]:
    centers = 6 * torch.randn(K, M)
    labels = torch.arange(N) % K
    return centers[labels] + 0.3 * torch.randn(N, M), labels


class Layers(nn.Module):
    """Two layers with a shift between them, read through banks that share their prototypes."""

    def __init__(self, **options) -> None:
        super().__init__()
        self.shared = SharedPrototypes(K, M, **options)
        self.first, self.second = OffsetBank(self.shared), OffsetBank(self.shared)
        self.between = nn.Linear(M, M)
        nn.init.eye_(self.between.weight)

    def forward(self, z: torch.Tensor) -> ddcl.Readout:
        self.last = self.second(self.between(z))
        return self.first(z)


def test_prototypes_are_the_shared_ones_and_an_offset_that_starts_at_zero():
    shared = SharedPrototypes(K, M, num_heads=2, dtype=F64)
    bank = OffsetBank(shared, temperature=0.5)
    assert isinstance(bank, PrototypeBank)
    assert torch.equal(bank.prototypes, shared.prototypes)
    nn.init.normal_(bank.offset)
    z = torch.randn(7, 2, M, dtype=F64)
    expected = ddcl.readout(z, shared.prototypes + bank.offset, 0.5)
    assert torch.equal(bank(z).centroid, expected.centroid)


def test_a_gradient_reaches_the_common_prototypes_from_every_layer():
    shared = SharedPrototypes(K, M, dtype=F64)
    first, second = OffsetBank(shared), OffsetBank(shared)
    z = torch.randn(N, M, dtype=F64)
    (first(z).loss.total + second(z + 1).loss.total).backward()
    assert not torch.equal(first.offset.grad, second.offset.grad)
    torch.testing.assert_close(shared.prototypes.grad, first.offset.grad + second.offset.grad)


def test_the_first_bank_fills_the_common_prototypes_and_rows_of_the_others_correspond():
    z, labels = clusters()
    shared = SharedPrototypes(K, M)
    first, second, third = (OffsetBank(shared) for _ in range(3))
    first.init_from(z)
    assert shared.initialised
    assert (first.offset == 0).all()
    deeper = 3 * z + torch.tensor([50.0, -20.0, 0.0])  # moved, grown, the same structure
    second.init_from(deeper)
    third.init_from(z)
    rows = first(z).indices
    assert torch.equal(second(deeper).indices, rows)
    assert len(rows.unique()) == len(labels.unique())
    torch.testing.assert_close(third.offset, torch.zeros_like(third.offset), rtol=0.0, atol=1e-4)
    assert third.drift < 1e-6 < second.drift
    # each layer has its own temperature, from its own tokens
    torch.testing.assert_close(second.temperature, 9 * first.temperature, rtol=1e-4, atol=0.0)


def test_layers_with_heads_masks_and_batches_are_started_too():
    z = torch.cat([torch.randn(40, 2, M) + 9 * s for s in (-1, 0, 1, 2, 3)])
    mask = torch.rand(len(z)) > 0.2
    z[~mask] = float("nan")
    shared = SharedPrototypes(K, M, num_heads=2)
    first, second = OffsetBank(shared), OffsetBank(shared)
    first.init_from(z, mask=mask)
    second.init_from(zip((z + 1).split(17), mask.split(17), strict=True))
    torch.testing.assert_close(second.offset, torch.ones_like(second.offset), rtol=0.0, atol=1e-4)


def test_an_emptied_store_is_filled_again():
    z, _ = clusters()
    shared = SharedPrototypes(K, M)
    bank = OffsetBank(shared).init_from(z)
    shared.reset_parameters()
    bank.reset_parameters()
    assert not shared.initialised
    assert (OffsetBank(shared).init_from(z).offset == 0).all()
    assert shared.initialised


def test_moving_one_layer_leaves_the_others():
    shared = SharedPrototypes(K, M)
    first, second = OffsetBank(shared), OffsetBank(shared)
    before = second.prototypes.clone()
    places = torch.randn(1, K, M)
    first.move_to(places)
    torch.testing.assert_close(first.prototypes, places)
    assert torch.equal(second.prototypes, before)


def test_the_common_prototypes_are_listed_once_and_learn_as_prototypes():
    model = Layers()
    fast, slow = ddcl.param_groups(model, lr=1e-2)
    assert [id(p) for p in fast["params"]] == [
        id(p) for p in (model.shared.prototypes, model.first.offset, model.second.offset)
    ]
    assert len(slow["params"]) == 2
    assert list(ddcl.banks_of(model)) == ["first", "second"]


def test_soft_kmeans_moves_offsets_and_gives_every_parameter_back():
    z, _ = clusters()
    model = Layers()
    mover = SoftKMeans(momentum=0.5).attach(model)
    assert not model.shared.prototypes.requires_grad
    common = model.shared.prototypes.clone()
    before = model(z).loss.total
    for _ in range(10):
        model(z)
        mover.step()
    assert model(z).loss.total < before
    assert torch.equal(model.shared.prototypes, common)
    mover.detach()
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("move", ["soft-kmeans", "gradient"])
def test_the_trainer_starts_moves_and_watches_every_layer(move):
    z, _ = clusters()
    model = Layers()
    model.between.requires_grad_(False)
    history = Trainer(
        model,
        Recipe(epochs=5, move=move),
        loss=lambda model, batch: model(batch).loss.total + model.last.loss.total,
        forward=lambda model, batch: model(batch),
    ).fit(z.split(53))
    for name in ("first", "second"):
        assert history[-1].metrics[f"{name}/0/distinct"] == K
        assert history[-1].metrics[f"{name}/0/usage"] == 1
    assert history[-1].troubles == ()
    # a cluster keeps its row from layer to layer
    assert torch.equal(model(z).indices, model.last.indices)


def test_an_attention_layer_takes_such_a_bank_in_place_of_its_own():
    shared = SharedPrototypes(K, M, num_heads=2)
    stack = nn.ModuleList(DDCLAttention(7, K, proto_dim=2 * M, num_heads=2) for _ in range(2))
    for layer in stack:
        layer.bank = OffsetBank(shared)
    x = torch.randn(2, 11, 7)
    for layer in stack:
        x = layer.init_from(x)(x).hidden
    assert sum(p is shared.prototypes for p in stack.parameters()) == 1
    x.sum().backward()
    assert shared.prototypes.grad.abs().sum() > 0


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_a_copy_of_a_model_shares_among_its_own_layers_only(clone):
    model = Layers()
    other = clone(model)
    assert other.first.shared is other.second.shared is other.shared
    nn.init.ones_(other.shared.prototypes)
    assert torch.equal(other.second.prototypes, torch.ones(1, K, M))
    assert not torch.equal(model.second.prototypes, other.second.prototypes)


def test_a_state_loads_into_a_fresh_model():
    z, _ = clusters()
    model = Layers()
    model.first.init_from(z)
    model.second.init_from(z + 1)
    other = Layers()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.second.prototypes, model.second.prototypes)
    assert other.shared.initialised
    assert torch.equal(other(z).centroid, model(z).centroid)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, F64])
def test_dtypes_follow_the_common_prototypes(dtype):
    shared = SharedPrototypes(K, M, dtype=dtype)
    bank = OffsetBank(shared)
    z = torch.randn(N, M).to(dtype)
    out = bank.init_from(z)(z)
    assert out.centroid.dtype == bank.offset.dtype == dtype
    assert bank.temperature.dtype == (F64 if dtype == F64 else torch.float32)
    out.loss.total.backward()
    assert torch.isfinite(shared.prototypes.grad).all()
    single = Layers().to(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert single(torch.randn(7, M)).loss.total.dtype == torch.float32


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_it_compiles_without_graph_breaks_and_gives_the_same():
    torch._dynamo.reset()
    bank, z = OffsetBank(SharedPrototypes(K, M, dtype=F64)), torch.randn(N, M, dtype=F64)
    mask = torch.rand(N) > 0.3
    results = []
    for fn in (bank, torch.compile(bank, fullgraph=True, backend="aot_eager")):
        out = fn(z, mask)
        results.append([out.centroid, out.indices, *torch.autograd.grad(out.loss.total, list(bank.parameters()))])
    torch.testing.assert_close(results[0], results[1])
    torch._dynamo.reset()


def test_a_layer_cannot_be_resized_alone():
    bank = OffsetBank(SharedPrototypes(K, M))
    with pytest.raises(ValueError, match="bank: it is not resizable"):
        bank.resize_to(torch.zeros(1, K + 1, M))


@pytest.mark.bad_input
def test_wrong_settings_are_refused_by_name():
    with pytest.raises(TypeError, match="shared: got PrototypeBank, expected SharedPrototypes"):
        OffsetBank(PrototypeBank(K, M))
    with pytest.raises(ValueError, match="num_heads: got 0"):
        SharedPrototypes(K, M, num_heads=0)
    with pytest.raises(ValueError, match="data: got tokens of dimension 4, expected dim = 3"):
        OffsetBank(SharedPrototypes(K, M)).init_from(torch.randn(N, 4))


def test_repr_says_what_is_shared():
    text = repr(OffsetBank(SharedPrototypes(K, M), temperature=0.5))
    assert "(shared): SharedPrototypes(num_prototypes=5, dim=3, num_heads=1, initialised=False)" in text
