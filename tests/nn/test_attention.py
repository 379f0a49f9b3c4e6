"""DDCLAttention: the paper's equations 4 to 7, masks, initialisation."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

import ddcl
from ddcl import DDCLAttention


def test_one_head_is_definition_1_of_the_paper():
    layer = DDCLAttention(6, 4, temperature=0.8)
    x = torch.randn(2, 5, 6)
    d = (x.unsqueeze(-2) - layer.bank.prototypes[0]).square().sum(-1)
    mu = torch.softmax(-d / 0.8, -1) @ layer.bank.prototypes[0]
    expected = torch.nn.functional.layer_norm(x + mu @ layer.output.weight.T, (6,), layer.norm.weight, layer.norm.bias)
    hidden, found = layer(x)
    torch.testing.assert_close(hidden, expected)
    torch.testing.assert_close(found.centroid, mu)
    assert {name for name, _ in layer.named_parameters()} == {
        "bank.prototypes",
        "output.weight",
        "norm.weight",
        "norm.bias",
    }


def test_heads_are_equations_6_and_7_of_the_paper():
    H, m = 3, 12
    layer = DDCLAttention(7, 5, proto_dim=m, num_heads=H, temperature=1.1)
    x = torch.randn(2, 11, 7)
    parts = []
    for h, W in enumerate(layer.project.weight.chunk(H)):
        z, P = x @ W.T, layer.bank.prototypes[h]
        q = torch.softmax(-(z.unsqueeze(-2) - P).square().sum(-1) / 1.1, -1)
        parts.append(q @ P)
    o = torch.cat(parts, -1) @ layer.output.weight.T
    expected = torch.nn.functional.layer_norm(x + o, (7,), layer.norm.weight, layer.norm.bias)
    out = layer(x)
    torch.testing.assert_close(out.hidden, expected)
    assert out.readout.centroid.shape == (2, 11, H, m // H)


@pytest.mark.parametrize("heads", [1, 2])
def test_masked_content_reaches_neither_outputs_nor_any_gradient(heads):
    layer = DDCLAttention(6, 4, proto_dim=4, num_heads=heads)
    clean, mask = torch.randn(3, 5, 6), torch.rand(3, 5) > 0.4
    results = []
    for junk in (0.0, float("nan"), 1e30):
        x = clean.clone()
        x[~mask] = junk
        x.requires_grad_()
        layer.zero_grad()
        hidden, found = layer(x, mask)
        (hidden.square().sum() + found.loss.total).backward()
        results.append([hidden, found.centroid, *found.loss, x.grad, *(p.grad.clone() for p in layer.parameters())])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
    assert (results[0][0][~mask] == 0).all()


def test_init_from_sees_the_tokens_after_the_projection_and_without_the_masked():
    layer = DDCLAttention(6, 4, proto_dim=4, num_heads=2)
    x, mask = torch.randn(9, 5, 6), torch.rand(9, 5) > 0.3
    x[~mask] = float("nan")
    z = layer.project(x[mask]).reshape(-1, 2, 2)
    expected = 0.1 * ddcl.critical_temperature(z.detach(), num_heads=2).float()
    for data, m in ((x, mask), ([(x[:4], mask[:4]), (x[4:], mask[4:])], None)):
        layer.bank.reset_parameters()
        assert layer.init_from(data, mask=m) is layer
        assert layer.bank.initialised
        torch.testing.assert_close(layer.bank.temperature, expected)
        assert torch.isfinite(layer.bank.prototypes).all()


def test_init_from_walks_through_batches_without_holding_them():
    layer = DDCLAttention(6, 4, proto_dim=4)
    walks = []

    class Loader:
        def __iter__(self):
            walks.append(1)
            return (torch.randn(10, 6) for _ in range(3))

    layer.init_from(Loader())
    assert layer.bank.initialised
    assert len(walks) == 2  # once for the prototypes, once for the temperature
    layer.init_from(iter([torch.randn(10, 6)]))
    with pytest.raises(TypeError, match=r"x: got a batch \(z, torch.int64\)"):
        layer.init_from([(torch.randn(10, 6), torch.arange(10))])


def test_state_dict_round_trip_restores_outputs_temperature_and_state():
    layer = DDCLAttention(6, 4, proto_dim=4, num_heads=2).init_from(torch.randn(20, 6))
    other = DDCLAttention(6, 4, proto_dim=4, num_heads=2)
    assert not other.load_state_dict(layer.state_dict()).missing_keys
    x = torch.randn(2, 3, 6)
    assert torch.equal(layer(x).hidden, other(x).hidden)
    assert other.bank.initialised


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_copies_give_the_same_outputs(clone):
    layer = DDCLAttention(6, 4)
    x = torch.randn(2, 3, 6)
    assert torch.equal(layer(x).hidden, clone(layer)(x).hidden)


def test_device_and_dtype_reach_every_part():
    layer = DDCLAttention(6, 4, proto_dim=4, device="meta", dtype=torch.bfloat16)
    assert all(p.is_meta and p.dtype == torch.bfloat16 for p in layer.parameters())
    assert layer(torch.randn(2, 3, 6, device="meta", dtype=torch.bfloat16)).hidden.shape == (2, 3, 6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_every_float_type_trains(dtype):
    layer = DDCLAttention(6, 4, proto_dim=4, num_heads=2, dtype=dtype)
    hidden, found = layer(torch.randn(2, 3, 6, dtype=dtype))
    assert hidden.dtype == dtype
    (hidden.float().sum() + found.loss.total).backward()
    assert all(torch.isfinite(p.grad).all() and p.grad.dtype == dtype for p in layer.parameters())


def test_autocast_computes_projections_in_half_and_the_readout_in_float32():
    layer = DDCLAttention(6, 4, proto_dim=4, num_heads=2)
    x, mask = torch.randn(2, 3, 6), torch.ones(2, 3, dtype=torch.bool)
    plain = layer(x, mask)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = layer(x, mask)
    assert mixed.readout.centroid.dtype == torch.bfloat16
    assert mixed.readout.loss.total.dtype == torch.float32
    torch.testing.assert_close(mixed.readout.loss.total, plain.readout.loss.total, rtol=0.05, atol=0.05)
    (mixed.hidden.float().sum() + mixed.readout.loss.total).backward()
    assert layer.bank.prototypes.grad.dtype == torch.float32


@pytest.mark.parametrize("batch", [(), (7,), (2, 3, 4)])
def test_any_number_of_leading_axes_is_taken(batch):
    layer = DDCLAttention(6, 4, num_heads=2)
    assert layer(torch.randn(*batch, 6)).hidden.shape == (*batch, 6)


def test_an_empty_batch_and_a_fully_masked_row_are_defined():
    layer = DDCLAttention(6, 4, num_heads=2)
    assert layer(torch.randn(0, 5, 6)).hidden.shape == (0, 5, 6)
    mask = torch.tensor([[True, True], [False, False]])
    hidden, found = layer(torch.randn(2, 2, 6), mask)
    assert (hidden[1] == 0).all()
    assert torch.isfinite(found.loss.total)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dim": 0}, "dim: got 0"),
        ({"num_heads": 4}, "dim: got 6, expected a multiple of num_heads = 4"),
        ({"proto_dim": 5, "num_heads": 2}, "proto_dim: got 5, expected a multiple of num_heads = 2"),
        ({"proto_dim": 0}, "proto_dim: got 0"),
    ],
)
def test_bad_settings_are_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        DDCLAttention(**{"dim": 6, "num_prototypes": 4, **arguments})


@pytest.mark.bad_input
def test_bad_tokens_and_masks_are_refused_by_name():
    layer = DDCLAttention(6, 4)
    with pytest.raises(ValueError, match=r"x: got shape \(2, 5\), expected \(..., 6\)"):
        layer(torch.randn(2, 5))
    with pytest.raises(TypeError, match="x: got list"):
        layer([[1.0]])
    with pytest.raises(TypeError, match=r"x: got dtype torch.float64, expected that of the layer"):
        layer(torch.randn(2, 3, 6).double())
    with pytest.raises(ValueError, match=r"mask: got shape \(2,\), expected \(2, 3\)"):
        layer(torch.randn(2, 3, 6), torch.ones(2, dtype=torch.bool))
