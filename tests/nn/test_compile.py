"""The compiler's view: no graph breaks, export, dynamic shapes, the same numbers and gradients."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.testing import CompileCounter

import ddcl
from ddcl import DDCLAttention, PrototypeBank, readout

pytestmark = [
    pytest.mark.compiled,
    # PyTorch's own modules warn about each other while tracing
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(fn, backend="aot_eager", **options):
    return torch.compile(fn, fullgraph=True, backend=backend, **options)


@pytest.mark.parametrize("gradient", ["full", "stop"])
@pytest.mark.parametrize("name", ["reference", "eager", "auto"])
@pytest.mark.parametrize("masked", [False, True])
def test_readout_compiles_without_graph_breaks_and_gives_the_same(masked, name, gradient):
    mask = torch.rand(4, 7) > 0.3 if masked else None

    def run(z, bank, T):
        out = readout(z, bank, T, gradient=gradient, mask=mask, backend=name)
        return out, out.loss.total + out.centroid.square().sum() + out.assignments[..., 0].sum()

    inputs = [torch.randn(4, 7, 5), torch.randn(6, 5), torch.tensor(0.9)]
    results = []
    for fn in (run, compiled(run)):
        x = [i.clone().requires_grad_() for i in inputs]
        out, total = fn(*x)
        assert isinstance(out, ddcl.Readout)
        results.append([out.centroid, *out.loss, out.indices, *torch.autograd.grad(total, x, materialize_grads=True)])
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("heads", [1, 2])
def test_attention_compiles_with_masks_and_changing_lengths(heads):
    layer = DDCLAttention(6, 4, proto_dim=4, num_heads=heads)
    fast = compiled(layer, dynamic=True)
    for length in (3, 8, 5):
        x, mask = torch.randn(2, length, 6), torch.rand(2, length) > 0.3
        torch.testing.assert_close(fast(x, mask).hidden, layer(x, mask).hidden)


def test_a_new_temperature_is_seen_without_compiling_again():
    bank = PrototypeBank(4, 3, temperature=1.0)
    counter = CompileCounter()
    fast = torch.compile(bank, fullgraph=True, backend=counter)
    z = torch.randn(9, 3)
    for T in (1.0, 0.1, 10.0):
        bank.set_temperature(T)
        torch.testing.assert_close(fast(z).centroid, bank(z).centroid)
    assert counter.frame_count == 1


def test_a_tensor_as_temperature_may_change_without_compiling_again():
    counter = CompileCounter()
    fast = torch.compile(lambda z, bank, T: readout(z, bank, T).centroid, fullgraph=True, backend=counter)
    z, bank = torch.randn(5, 3), torch.randn(4, 3)
    for step in range(20):
        T = torch.tensor(0.1 + 0.1 * step)
        torch.testing.assert_close(fast(z, bank, T), readout(z, bank, T).centroid)
    assert counter.frame_count == 1


@pytest.mark.bad_input
@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_compiled_code_refuses_a_bad_temperature_when_it_sees_one(bad):
    fast = compiled(lambda z, bank, T: readout(z, bank, T).centroid)
    z, bank = torch.randn(5, 3), torch.randn(4, 3)
    fast(z, bank, torch.tensor(1.0))
    with pytest.raises(ValueError, match=r"temperature: got .*, expected positive finite numbers"):
        fast(z, bank, torch.tensor(bad))
    fast(z, bank, 1.0)
    with pytest.raises(Exception, match=r"temperature: (got .*, )?expected a positive finite number"):
        fast(z, bank, bad)


@pytest.mark.slow
def test_a_transposed_bank_trains_through_inductor():
    z, bank = torch.randn(7, 3), torch.randn(3, 5, requires_grad=True)

    def loss(p: torch.Tensor) -> torch.Tensor:
        return readout(z, p.T, 1.0).loss.total

    found = torch.autograd.grad(compiled(loss, "inductor")(bank), bank)
    torch.testing.assert_close(found, torch.autograd.grad(loss(bank), bank))


@pytest.mark.slow
def test_attention_trains_through_inductor():
    layer = DDCLAttention(6, 4, proto_dim=4, num_heads=2)
    x = torch.randn(2, 5, 6)
    results = []
    for fn in (layer, compiled(layer, backend="inductor")):
        layer.zero_grad()
        hidden, found = fn(x)
        (hidden.square().sum() + found.loss.total).backward()
        results.append([hidden.detach(), *(p.grad.clone() for p in layer.parameters())])
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("heads", [1, 2])
def test_export_with_a_dynamic_batch_gives_the_same_object(heads, tmp_path):
    layer = DDCLAttention(6, 4, proto_dim=4, num_heads=heads).eval()
    x, mask = torch.randn(2, 5, 6), torch.rand(2, 5) > 0.3
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    program = torch.export.export(layer, (x, mask), dynamic_shapes=(sizes, sizes))
    torch.export.save(program, tmp_path / "layer.pt2")
    loaded = torch.export.load(tmp_path / "layer.pt2").module()
    x, mask = torch.randn(3, 11, 6), torch.rand(3, 11) > 0.3
    found, expected = loaded(x, mask), layer(x, mask)
    torch.testing.assert_close(found.hidden, expected.hidden)
    torch.testing.assert_close(found.readout.loss.total, expected.readout.loss.total)
    assert torch.equal(found.readout.indices, expected.readout.indices)


@pytest.mark.parametrize("K", [4, 70])  # fused kernels keep one bank on the chip, and stream the other
@pytest.mark.parametrize("backend", ["auto", "triton"])
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # in Triton's interpreter
def test_the_registered_operators_pass_pytorchs_own_checks(backend, K):
    if backend == "triton":
        pytest.importorskip("triton")
    z, bank, T = torch.randn(5, 2, 3), torch.randn(2, K, 3), torch.ones(1, 2)
    for mask in (None, torch.rand(5) > 0.3):
        inputs = (z.clone().requires_grad_(), bank.clone().requires_grad_(), T.clone().requires_grad_(), mask, "full")
        verdicts = torch.library.opcheck(torch.ops.ddcl.readout.default, (*inputs, backend, True))
        assert set(verdicts.values()) == {"SUCCESS"}
        upstream = [torch.randn(5, 2, 3), *(torch.randn(5, 2) for _ in range(5))]
        transposed = bank.transpose(0, 2).contiguous().transpose(0, 2)
        *terms, level = torch.ops.ddcl.readout(z, transposed, T.expand(5, 2), mask, "full", backend, True)
        kept = [terms[0], terms[5], terms[6], level]
        backward = (z, transposed, T.expand(5, 2), mask, "full", backend, upstream, [True, True, True], kept)
        verdicts = torch.library.opcheck(
            torch.ops.ddcl.readout_backward.default, backward, test_utils=("test_schema", "test_faketensor")
        )
        assert set(verdicts.values()) == {"SUCCESS"}
