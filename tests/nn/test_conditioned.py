"""ConditionedBank: the same as a bank built for every context, and what it can do that one bank cannot."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

import ddcl
from ddcl import PrototypeBank, readout
from ddcl.nn.conditioned import ConditionedBank

B, T, K, M, C = 3, 5, 7, 2, 11
F64 = torch.float64
TERMS = ("total", "reconstruction", "variance", "quantization", "entropy", "free_energy")


def conditioned(heads: int = 1, *, gradient: str = "full", scale: bool = True, dtype=F64) -> ConditionedBank:
    bank = PrototypeBank(K, M, num_heads=heads, temperature=0.7, gradient=gradient, dtype=dtype)
    module = ConditionedBank(bank, C, scale=scale)
    with torch.no_grad():
        for parameter in (module.shift.weight, *([module.log_scale.weight] if scale else [])):
            parameter.normal_(std=0.3)
    return module


def tokens(heads: int = 1, dtype=F64) -> torch.Tensor:
    return torch.randn(B, T, *([heads] if heads > 1 else []), M, dtype=dtype)


def by_loop(module: ConditionedBank, z: torch.Tensor, context: torch.Tensor, mask: torch.Tensor | None = None):
    """Each context's bank built, and each sequence read through its own."""
    found = []
    for i in range(B):
        prototypes = module.prototypes_at(context[i])
        s = torch.ones(module.bank.num_heads, dtype=z.dtype)
        if module.log_scale is not None:
            s = module.log_scale(context[i]).exp()
        heat = s.square() * module.bank.temperature
        found.append(
            readout(
                z[i],
                prototypes,
                heat[0] if module.bank.num_heads == 1 else heat,
                gradient=module.bank.gradient,
                mask=None if mask is None else mask[i],
            )
        )
    return found


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("gradient", ["full", "stop"])
@pytest.mark.parametrize("heads", [1, 2])
def test_it_equals_a_bank_built_for_every_context_in_values_and_gradients(heads, gradient, scale):
    module, z = conditioned(heads, gradient=gradient, scale=scale), tokens(heads).requires_grad_()
    context = torch.randn(B, C, dtype=F64, requires_grad=True)
    mask = torch.rand(B, T) > 0.3
    weight = torch.randn(z.shape, dtype=F64)
    found = module(z, context, mask)
    expected = by_loop(module, z, context, mask)
    for name in ("centroid", "indices", "assignments"):
        torch.testing.assert_close(getattr(found, name), torch.stack([getattr(one, name) for one in expected]))
    for name in TERMS:
        each = torch.stack([getattr(one.per_token, name) for one in expected])
        torch.testing.assert_close(getattr(found.per_token, name), each)
        mean = each[mask].mean()
        torch.testing.assert_close(getattr(found.loss, name), mean)
    inputs = [z, context, *module.parameters()]
    total = found.loss.total + (found.centroid * weight).sum()
    shares = mask.sum(1) / mask.sum()
    by_hand = sum(share * one.loss.total for share, one in zip(shares, expected, strict=True))
    by_hand = by_hand + (torch.stack([one.centroid for one in expected]) * weight).sum()
    torch.testing.assert_close(torch.autograd.grad(total, inputs), torch.autograd.grad(by_hand, inputs))


def test_a_new_module_is_the_plain_bank():
    bank = PrototypeBank(K, M, temperature=0.7)
    z = tokens(dtype=torch.float32)
    found, expected = ConditionedBank(bank, C)(z, torch.randn(B, C)), bank(z)
    assert torch.equal(found.centroid, expected.centroid)
    assert torch.equal(found.indices, expected.indices)
    torch.testing.assert_close(tuple(found.loss), tuple(expected.loss))


@pytest.mark.parametrize("heads", [1, 2])
def test_a_context_may_be_for_a_token_a_sequence_or_all(heads):
    module, z = conditioned(heads), tokens(heads)
    one = torch.randn(C, dtype=F64)
    expected = module(z, one.expand(B, T, C))
    for context in (one, one.expand(B, C)):
        found = module(z, context)
        torch.testing.assert_close(found.centroid, expected.centroid)
        torch.testing.assert_close(found.loss.total, expected.loss.total)
    each = torch.randn(B, T, C, dtype=F64)
    found = module(z, each)
    torch.testing.assert_close(found.centroid[1, 2], module(z[1, 2], each[1, 2]).centroid)


@pytest.mark.parametrize("heads", [1, 2])
def test_what_is_masked_reaches_no_output_and_no_gradient(heads):
    module, z, context = conditioned(heads), tokens(heads), torch.randn(B, C, dtype=F64)
    mask = torch.rand(B, T) > 0.3
    mask[1] = False
    clean = module(z, context, mask)
    spoilt_z, spoilt_context = z.clone(), context.clone()
    spoilt_z[~mask], spoilt_context[1] = float("nan"), float("nan")
    spoilt_z.requires_grad_()
    found = module(spoilt_z, spoilt_context, mask.long())
    assert torch.equal(found.centroid, clean.centroid)
    assert (found.centroid[~mask] == 0).all()
    assert (found.indices[~mask] == -1).all()
    assert torch.equal(found.loss.total, clean.loss.total)
    (found.loss.total + found.centroid.sum()).backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in module.parameters())
    assert (spoilt_z.grad[~mask] == 0).all()


@pytest.mark.slow
def test_clusters_that_move_with_their_context_are_recovered_and_a_plain_bank_cannot():
    centers = 8 * torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 0.5]])
    context, way = torch.randn(1009, 2), torch.tensor([[9.0, 4.0], [-5.0, 7.0]])
    labels = torch.randint(5, (1009,))
    z = centers[labels] + context @ way.T + 0.3 * torch.randn(1009, 2)
    plain = PrototypeBank(5, 2).init_from(z)
    module = ConditionedBank(PrototypeBank(5, 2), 2, scale=False).init_from(z, context)
    rates = [
        {"params": module.shift.parameters(), "lr": 0.1},
        {"params": module.bank.parameters(), "lr": 0.1},
    ]
    optimiser = torch.optim.Adam(rates)
    schedule = ddcl.CriticalSchedule(0.9, 0.02, steps=300).attach(module)
    for _ in range(400):
        optimiser.zero_grad()
        module(z, context).loss.total.backward()
        optimiser.step()
        schedule.step()
    noise = 2 * 0.3**2
    assert plain(z).loss.quantization > 30 * noise
    assert module(z, context).loss.quantization < 1.1 * noise
    torch.testing.assert_close(module.shift.weight.detach(), way, rtol=0.02, atol=0.1)
    found = module(z, context).indices
    table = torch.zeros(5, 5).index_put_((labels, found), torch.ones(()), accumulate=True)
    assert table.amax(1).sum() == len(z)
    assert (table.amax(0) > 0).all()


def test_the_schedule_and_the_mover_see_tokens_in_the_banks_own_frame():
    module = ConditionedBank(PrototypeBank(K, M), 1, scale=False)
    torch.nn.init.ones_(module.shift.weight)
    base = torch.randn(B, 101, M)
    context = 100 * torch.randn(B, 1)
    schedule = ddcl.CriticalSchedule(0.5, 0.5, steps=1).attach(module)
    mover = ddcl.SoftKMeans(momentum=0.0).attach(module)
    for _ in range(20):  # the largest variance is found by power steps
        module(base + context.unsqueeze(1), context)
        mover.step()
    expected = ddcl.critical_temperature(base, gradient="stop").float()
    torch.testing.assert_close(schedule.critical_temperature(module.bank)[0], expected, rtol=0.05, atol=0.0)
    assert module.bank.prototypes.abs().max() < 5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_close_to_float32(dtype):
    module = conditioned(dtype=torch.float32)
    z, context = tokens(dtype=torch.float32), 0.3 * torch.randn(B, C)
    expected = module(z, context)
    half = copy.deepcopy(module).to(dtype)
    found = half(z.to(dtype), context.to(dtype))
    assert found.centroid.dtype == dtype
    assert found.loss.total.dtype == torch.float32
    torch.testing.assert_close(found.loss.total, expected.loss.total, rtol=0.05, atol=0.0)
    found.loss.total.backward()
    assert half.shift.weight.grad.dtype == dtype
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = module(z, context)
    assert mixed.centroid.dtype == torch.float32
    torch.testing.assert_close(mixed.loss.total, expected.loss.total, rtol=0.05, atol=0.0)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_copies_and_loaded_states_are_equal_and_independent(clone):
    module, z, context = conditioned(), tokens(), torch.randn(B, C, dtype=F64)
    other = clone(module)
    fresh = conditioned()
    fresh.load_state_dict(module.state_dict())
    for one in (other, fresh):
        assert torch.equal(one(z, context).centroid, module(z, context).centroid)
    torch.nn.init.ones_(other.shift.weight)
    assert not torch.equal(other(z, context).centroid, module(z, context).centroid)


def test_it_is_made_where_and_as_its_bank_is():
    module = ConditionedBank(PrototypeBank(K, M, dtype=F64), C)
    assert {parameter.dtype for parameter in module.parameters()} == {F64}
    assert ConditionedBank(PrototypeBank(K, M, device="meta"), C).shift.weight.is_meta
    assert "context_dim=11" in repr(module)


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("heads", [1, 2])
def test_it_compiles_without_graph_breaks_and_gives_the_same(heads):
    torch._dynamo.reset()
    module, z = conditioned(heads), tokens(heads)
    context, mask = torch.randn(B, C, dtype=F64), torch.rand(B, T) > 0.3
    results = []
    for fn in (module, torch.compile(module, fullgraph=True, backend="aot_eager")):
        out = fn(z, context, mask)
        total = out.loss.total + out.centroid.square().sum()
        results.append([out.centroid, *out.loss, out.indices, *torch.autograd.grad(total, list(module.parameters()))])
    torch.testing.assert_close(results[0], results[1])
    torch._dynamo.reset()


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("z", "context", "error", "message"),
    [
        (torch.randn(B, T, 3), torch.randn(B, C), ValueError, r"z: got shape \(3, 5, 3\), expected \(\.\.\., 2\)"),
        (
            torch.randn(B, T, M),
            torch.randn(T, C),
            ValueError,
            r"context: got shape \(5, 11\), expected \(3, 5, 11\) or",
        ),
        (torch.randn(B, T, M), torch.randn(B, 2), ValueError, r"context: got shape \(3, 2\)"),
        (torch.randn(B, T, M), torch.randn(B, C, dtype=F64), TypeError, "context: got dtype torch.float64"),
        (torch.randn(B, T, M), torch.ones(B, C, dtype=torch.long), TypeError, "context: got dtype torch.int64"),
    ],
)
def test_wrong_inputs_are_refused_by_name(z, context, error, message):
    with pytest.raises(error, match=message):
        conditioned(dtype=torch.float32)(z, context)


@pytest.mark.bad_input
def test_wrong_settings_are_refused_by_name():
    with pytest.raises(TypeError, match="bank: got Linear, expected a PrototypeBank"):
        ConditionedBank(torch.nn.Linear(2, 2), C)
    with pytest.raises(ValueError, match="context_dim: got 0"):
        ConditionedBank(PrototypeBank(K, M), 0)
