"""The fused kernels on a GPU: real sizes, the compiler, graphs, memory; tests/ops/test_kernels.py runs there too."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import ddcl
from ddcl import ops

pytest.importorskip("triton", reason="the fused kernels need the package triton")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # PyTorch's own modules warn about each other while compiling
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:torch._inductor"),
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream:UserWarning"),
]

HALF = torch.bfloat16


def inputs(N: int, H: int, K: int, m: int, dtype: torch.dtype = HALF) -> list[Tensor]:
    z = torch.randn(N, H, m, device="cuda").to(dtype).requires_grad_()
    bank = torch.randn(H, K, m, device="cuda").to(dtype).requires_grad_()
    return [z, bank, torch.full((1, H), m**0.5, device="cuda")]


def outputs(given: list[Tensor], backend: str, weights: Tensor) -> list[Tensor]:
    """Centroids, terms and the gradients of a loss that uses both."""
    terms = ops.readout(*given, None, "full", backend)
    grads = torch.autograd.grad(
        (terms.centroid, terms.total.mean()), given[:2], (weights, torch.ones((), device="cuda"))
    )
    return [x.detach() for x in (*terms[:-1], *grads)]


@pytest.mark.parametrize(
    ("N", "H", "K", "m"),
    [
        (2**16 + 3, 1, 64, 64),
        (20_000, 1, 16, 128),
        (20_000, 1, 61, 128),
        (10_001, 4, 32, 64),
        (3000, 2, 50, 48),
        (8192, 1, 1024, 256),
        (4099, 3, 200, 128),
        (1000, 1, 300, 768),
        (500, 1, 100, 1024),
        (700, 1, 9000, 64),
        (1000, 1, 1, 7),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, HALF, torch.float16], ids=str)
def test_real_sizes_give_the_numbers_of_the_eager_backend_in_float32(N, H, K, m, dtype):
    given = inputs(N, H, K, m, dtype)
    weights = torch.randn(N, H, m, device="cuda").to(dtype)
    exact = [x.detach().float().requires_grad_() for x in given[:2]] + [given[2]]
    tolerance = {torch.float32: 1e-4, HALF: 2e-2, torch.float16: 3e-3}[dtype]
    expected = outputs(exact, "eager", weights.float())
    names = [*ops.TokenTerms._fields[:-1], "d_z", "d_prototypes"]
    for name, one, other in zip(names, outputs(given, "triton", weights), expected, strict=True):
        error = (one.float() - other).norm() / other.norm().clamp_min(1e-3 * expected[1].norm())
        assert error < tolerance, f"{name}: {error:.1e}"


def test_the_kernels_are_what_runs_and_say_so():
    z, bank, _ = inputs(100, 1, 8, 16)
    assert ops.choose("auto", z, bank) == ("triton", "fused kernels: one pass over the tokens")
    assert ops.choose("auto", z.double(), bank.double()).backend == "eager"
    assert ddcl.readout(z[:, 0], bank[0], 1.0).centroid.dtype == HALF


@pytest.mark.parametrize("K", [32, 500])
def test_the_same_bits_every_time(K):
    given, weights = inputs(30_000, 2, K, 64), torch.randn(30_000, 2, 64, device="cuda", dtype=HALF)
    for one, other in zip(outputs(given, "triton", weights), outputs(given, "triton", weights), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("K", [32, 500])
def test_tensors_the_copy_engine_cannot_move_give_the_same_numbers(K):
    N, m = 5000, 64
    z, bank, T = inputs(N, 1, K, m)
    shifted = torch.empty(N * m + 1, device="cuda", dtype=HALF)[1:].view(N, 1, m).copy_(z.detach()).requires_grad_()
    assert shifted.data_ptr() % 16 != 0
    weights = torch.randn(N, 1, m, device="cuda", dtype=HALF)
    plain, moved = outputs([z, bank, T], "triton", weights), outputs([shifted, bank, T], "triton", weights)
    for one, other in zip(plain, moved, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("K", [32, 500])
def test_compiled_and_captured_runs_are_plain_runs(K):
    z, bank, T = inputs(2000, 1, K, 64)

    def step(z: Tensor, bank: Tensor) -> tuple[Tensor, ...]:
        out = ddcl.readout(z, bank, T[0, 0], check_values=False)
        return torch.autograd.grad(out.loss.total + out.centroid.float().square().mean(), (z, bank))

    def forward(z: Tensor, bank: Tensor) -> tuple[Tensor, Tensor]:
        out = ddcl.readout(z, bank, T[0, 0])
        return out.centroid, out.loss.total

    flat, points = z.detach()[:, 0].requires_grad_(), bank.detach()[0].requires_grad_()
    plain = step(flat, points)
    compiled = torch.compile(forward, fullgraph=True)
    centroid, total = compiled(flat, points)
    for one, other in zip(
        torch.autograd.grad(total + centroid.float().square().mean(), (flat, points)), plain, strict=True
    ):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=1e-4)

    # leaves of their own: a leaf belongs to the stream that first sent it a gradient
    flat, points = flat.detach().clone().requires_grad_(), points.detach().clone().requires_grad_()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step(flat, points)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        captured = step(flat, points)
    graph.replay()
    for one, other in zip(captured, plain, strict=True):
        assert torch.equal(one, other)


def test_export_keeps_the_operator():
    class Head(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bank = ddcl.PrototypeBank(8, 16, device="cuda")

        def forward(self, x: Tensor) -> Tensor:
            return self.bank(x).centroid

    head, x = Head(), torch.randn(20, 16, device="cuda")
    exported = torch.export.export(head, (x,))
    assert "ddcl.readout" in exported.graph_module.code
    torch.testing.assert_close(exported.module()(x), head(x))


def test_autocast_trains_a_layer_with_its_bank_in_float32():
    layer = ddcl.DDCLAttention(64, 16, proto_dim=32, device="cuda")
    x = torch.randn(8, 50, 64, device="cuda")
    plain = layer(x).readout.loss.total
    with torch.autocast("cuda", dtype=HALF):
        hidden, out = layer(x)
        loss = hidden.float().square().mean() + out.loss.total
    loss.backward()
    torch.testing.assert_close(out.loss.total, plain, rtol=0.02, atol=0.02)
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters())


@pytest.mark.parametrize(("N", "K", "m"), [(2**18, 64, 64), (2**16, 1024, 256), (2**14, 65_536, 64)])
def test_training_takes_a_quarter_more_than_what_goes_in_and_out(N, K, m):
    z, bank, T = inputs(N, 1, K, m)
    weights = torch.randn(N, 1, m, device="cuda", dtype=HALF)
    outputs([z, bank, T], "triton", weights)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    terms = ops.readout(z, bank, T, None, "full", "triton")
    grads = torch.autograd.grad(
        (terms.centroid, terms.total.mean()), (z, bank), (weights, torch.ones((), device="cuda"))
    )
    peak = torch.cuda.max_memory_allocated() - before
    inputs_and_gradients = sum(x.nbytes for x in (z, bank, weights))
    made = sum(x.nbytes for x in (*terms, *grads))
    assert peak + inputs_and_gradients <= 1.25 * (made + inputs_and_gradients)


@pytest.mark.parametrize("K", [16, 100])
def test_more_than_two_to_the_31_elements(K):
    m = 64
    N = 2**31 // m + 100
    z = torch.randn(N, 1, m, device="cuda", dtype=HALF)
    bank, T = torch.randn(1, K, m, device="cuda", dtype=HALF), torch.full((1, 1), 8.0, device="cuda")
    whole = ops.readout(z, bank, T, None, "full", "triton")
    end = ops.readout(z[-1000:].contiguous(), bank, T, None, "full", "triton")
    for one, other in zip(whole, end, strict=True):
        torch.testing.assert_close(one[-1000:], other)


def test_float32_is_exact_unless_tf32_is_allowed():
    given, weights = inputs(2000, 1, 50, 64, torch.float32), torch.randn(2000, 1, 64, device="cuda")
    exact = outputs(
        [x.detach().double().requires_grad_() for x in given[:2]] + [given[2].double()], "eager", weights.double()
    )
    before = torch.backends.cuda.matmul.allow_tf32
    errors = []
    try:
        for allowed in (False, True):
            torch.backends.cuda.matmul.allow_tf32 = allowed
            found = outputs(given, "triton", weights)
            errors.append([float((one - other).norm() / other.norm()) for one, other in zip(found, exact, strict=True)])
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    # ten binary digits of every factor left, d / T is off by a per cent or two
    assert max(errors[0]) < 1e-4 < max(errors[1]) < 0.1, errors
