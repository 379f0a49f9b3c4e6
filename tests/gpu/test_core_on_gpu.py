"""The core on a CUDA device: the same numbers as the CPU, no hidden synchronisation, bounded memory."""

from __future__ import annotations

import pytest
import torch

import ddcl
from ddcl import DDCLAttention, PrototypeBank, readout

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning"),
    # PyTorch's own modules warn about each other while compiling
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture
def exact_matmul():
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.usefixtures("exact_matmul")
@pytest.mark.parametrize("gradient", ["full", "stop"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("masked", [False, True])
def test_values_and_gradients_are_those_of_the_cpu(masked, dtype, gradient):
    z, banks = torch.randn(5, 211, 2, 17).to(dtype), torch.randn(2, 31, 17).to(dtype)
    mask = torch.rand(5, 211) > 0.3 if masked else None
    results = []
    for device in ("cpu", "cuda"):
        x, p = (values.detach().clone().to(device).requires_grad_() for values in (z, banks))
        T = torch.tensor([3.0, 7.0], device=device, requires_grad=True)
        out = readout(x, p, T, gradient=gradient, mask=None if mask is None else mask.to(device), backend="eager")
        (out.loss.total + out.loss.variance + out.centroid.float().square().mean()).backward()
        grads = [g.cpu() for g in (x.grad, p.grad)]
        results.append([out.centroid.cpu(), *(term.cpu() for term in out.per_token), *grads])
    tolerance = {torch.float64: 1e-9, torch.float32: 2e-4}.get(dtype, 2e-2)
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_a_bad_temperature_on_the_gpu_is_refused_by_name(bad):
    z, bank = torch.randn(5, 3, device="cuda"), torch.randn(4, 3, device="cuda")
    with pytest.raises(ValueError, match=r"temperature: got .*, expected positive finite numbers"):
        readout(z, bank, torch.tensor(bad, device="cuda"))


def test_looking_at_the_temperature_can_be_spared():
    z, bank = torch.randn(5, 3, device="cuda"), torch.randn(4, 3, device="cuda")
    T = torch.tensor(0.7, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        readout(z, bank, T, check_values=False)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_training_step_never_waits_for_the_gpu():
    layer = DDCLAttention(32, 8, proto_dim=16, num_heads=2, device="cuda")
    x, mask = torch.randn(4, 9, 32, device="cuda"), torch.ones(4, 9, dtype=torch.bool, device="cuda")
    optimiser = torch.optim.SGD(ddcl.param_groups(layer, lr=1e-2), foreach=True)
    schedule = ddcl.CriticalSchedule(steps=10, sample=8).attach(layer)

    def step() -> None:
        hidden, out = layer(x, mask)
        (hidden.square().mean() + out.loss.total).backward()
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()

    step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.isfinite(layer.bank.prototypes).all()


def test_training_memory_does_not_grow_with_n_times_k():
    N, m, K = 2**17, 32, 4096
    z = torch.randn(N, m, device="cuda", requires_grad=True)
    bank = torch.randn(K, m, device="cuda", requires_grad=True)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out = readout(z, bank, 8.0)
    (out.loss.total + out.centroid.sum()).backward()
    peak = torch.cuda.max_memory_allocated() - before
    assert peak < N * K * 4 / 2  # one N x K tensor alone is 2 GiB


@pytest.mark.parametrize("method", ["kmeans", "kmeans++", "farthest"])
def test_initialisation_works_where_the_data_are_and_is_reproducible(method):
    z = torch.randn(3000, 8, device="cuda")
    one, two = (
        ddcl.initial_prototypes(z, 12, method=method, generator=torch.Generator().manual_seed(0)) for _ in range(2)
    )
    assert one.device.type == "cuda"
    torch.testing.assert_close(one, two)


def test_moments_margins_and_counts_come_back_on_the_device():
    z = torch.randn(500, 8, device="cuda")
    bank = PrototypeBank(6, 8, device="cuda").init_from(z)
    prototypes = bank.prototypes[0].detach()
    T = bank.temperature[0]
    cpu = PrototypeBank(6, 8)
    cpu.load_state_dict(bank.state_dict())
    torch.testing.assert_close(
        ddcl.split_margins(z, prototypes, T).cpu(), ddcl.split_margins(z.cpu(), cpu.prototypes[0].detach(), T.cpu())
    )
    assert ddcl.distinct_prototypes(prototypes, ddcl.covariance(z).trace) == 6
    assert ddcl.usage(bank(z).indices, 6).usage == 1
    assert ddcl.soft_usage(z, prototypes, T).mean_assignment.sum().item() == pytest.approx(1)
    torch.testing.assert_close(ddcl.separation(prototypes).cpu(), ddcl.separation(prototypes.cpu()))


def test_tensors_on_different_devices_are_refused_by_name():
    with pytest.raises(ValueError, match="z: is on cpu but prototypes are on cuda:0"):
        readout(torch.randn(3, 2), torch.randn(4, 2, device="cuda"), 1.0)
    with pytest.raises(ValueError, match="mask: is on cpu but z is on cuda:0"):
        readout(torch.randn(3, 2).cuda(), torch.randn(4, 2).cuda(), 1.0, mask=torch.ones(3, dtype=torch.bool))


def test_autocast_and_compile_train_the_layer():
    layer = DDCLAttention(32, 8, proto_dim=16, num_heads=2, device="cuda")
    x = torch.randn(4, 9, 32, device="cuda")
    plain = layer(x)
    fast = torch.compile(layer, fullgraph=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        hidden, out = fast(x)
        loss = hidden.square().mean() + out.loss.total
    loss.backward()
    torch.testing.assert_close(out.loss.total, plain.readout.loss.total, rtol=0.05, atol=0.05)
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters())
