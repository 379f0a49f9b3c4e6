"""Every module on a CUDA device: the numbers of the CPU, no waiting for the device, whole under the compiler."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import ddcl

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # advice of the compiler on speed
    pytest.mark.filterwarnings("ignore:TensorFloat32:UserWarning"),
    pytest.mark.filterwarnings(r"ignore:\s*Online softmax:UserWarning"),
]

B, T, DIM = 5, 31, 16


def pooled(output: str) -> nn.Module:
    return ddcl.PrototypeReadout(DIM, 7, output=output, num_heads=2, head="classification", num_outputs=3)


def conditioned() -> nn.Module:
    class Behind(nn.Module):
        """The context is made of the tokens, so that one call serves all modules here."""

        def __init__(self) -> None:
            super().__init__()
            self.part = ddcl.ConditionedBank(ddcl.PrototypeBank(7, DIM, temperature=8.0), context_dim=3)

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return self.part(x, x[:, 0, :3].detach(), mask).centroid

    return Behind()


MODULES: dict[str, Callable[[], nn.Module]] = {
    "mean": lambda: pooled("mean"),
    "bag": lambda: pooled("bag"),
    "attention": lambda: pooled("attention"),
    "feed-forward": lambda: ddcl.PrototypeFeedForward(DIM, 7, num_heads=4),
    "quantizer": lambda: ddcl.PrototypeQuantizer(DIM, 7, num_heads=2, temperature=8.0),
    "residual": lambda: ddcl.ResidualQuantizer(2, dim=DIM, num_prototypes=7, temperature=8.0),
    "hierarchy": lambda: ddcl.HierarchicalReadout(DIM, [ddcl.Level(7, pool=4), ddcl.Level(5, dim=8)]),
    "serial": lambda: ddcl.SerialPrototypes(DIM, 7, start=0.5),
    "norm": lambda: ddcl.PrototypeNorm(DIM, 7, start=0.5),
    "offset": lambda: ddcl.OffsetBank(ddcl.SharedPrototypes(7, DIM)),
    "conditioned": conditioned,
}


def result(output: object) -> Tensor:
    """What a module is for."""
    for name in ("vector", "quantized", "centroid"):
        if hasattr(output, name):
            return getattr(output, name)
    assert isinstance(output, Tensor)
    return output


def tokens(device: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, lengths = torch.randn(B, T, DIM, generator=generator), torch.randint(3, T + 1, (B, 1), generator=generator)
    return x.to(device), (torch.arange(T) < lengths).to(device)


@pytest.mark.parametrize("name", MODULES)
def test_values_and_gradients_are_those_of_the_cpu(name):
    torch.manual_seed(0)
    on_cpu = MODULES[name]().double()
    on_gpu = copy.deepcopy(on_cpu).cuda()
    found = []
    for model, device in ((on_cpu, "cpu"), (on_gpu, "cuda")):
        x, mask = tokens(device)
        x = x.double().requires_grad_()
        value = result(model(x, mask))
        value.square().mean().backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        found.append([one.detach().cpu() for one in (value, x.grad, *grads)])
    assert len(found[0]) == len(found[1])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", MODULES)
def test_a_training_step_never_waits_for_the_gpu(name):
    torch.manual_seed(0)
    model, (x, mask) = MODULES[name]().cuda(), tokens("cuda")
    result(model(x, mask)).square().mean().backward()
    once = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    torch.cuda.set_sync_debug_mode("error")  # raises wherever the host waits
    try:
        result(model(x, mask)).square().mean().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    twice = [p.grad for p in model.parameters() if p.grad is not None]
    assert once  # the step did reach what learns, and the second added as much as the first
    torch.testing.assert_close(twice, [2 * grad for grad in once])


@pytest.mark.parametrize("name", ["bag", "quantizer", "hierarchy", "feed-forward"])
def test_half_precision_under_autocast_and_compiled_whole(name):
    torch.manual_seed(0)
    model, (x, mask) = MODULES[name]().cuda(), tokens("cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        expected = result(model(x, mask))
        found = result(torch.compile(model, fullgraph=True)(x, mask))
    torch.testing.assert_close(found.float(), expected.float(), rtol=2e-2, atol=2e-2)


def test_codes_are_drawn_on_the_gpu_as_often_as_their_share_says():
    z, bank = torch.zeros(20_011, 1, device="cuda"), torch.tensor([[0.0], [1.0]], device="cuda")
    drawn = ddcl.sample_assignments(z, bank, 1.0)
    share = float(torch.softmax(torch.tensor([0.0, -1.0]), 0)[1])
    assert abs(float(drawn.float().mean()) - share) < 4 * (share * (1 - share) / len(z)) ** 0.5


def test_prototypes_go_into_an_encoder_and_out_again_on_the_gpu():
    layer = nn.TransformerEncoderLayer(DIM, nhead=2, dim_feedforward=32, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False).cuda().eval()
    x, mask = tokens("cuda")
    with torch.no_grad():
        before = encoder(x, src_key_padding_mask=~mask)
        for mode in ("serial", "parallel", "norm"):
            ddcl.insert(encoder, mode, num_prototypes=7)
            ddcl.init_banks(encoder, [x], forward=lambda model, x: model(x, src_key_padding_mask=~mask))
            inside = encoder(x, src_key_padding_mask=~mask)
            assert 0 < float((inside - before)[mask].norm() / before[mask].norm()) < 1e-2
            ddcl.remove(encoder)
            assert torch.equal(encoder(x, src_key_padding_mask=~mask)[mask], before[mask])


@pytest.mark.parametrize("move", ["soft-kmeans", "gradient"])
def test_a_bank_finds_its_size_on_the_gpu(move):
    torch.manual_seed(0)
    centers = 10 * torch.randn(8, 16)
    z = (centers[:, None] + torch.randn(8, 64, 16)).flatten(0, 1)[torch.randperm(512)].cuda()
    bank = ddcl.PrototypeBank(2, 16).cuda()
    recipe = ddcl.Recipe(epochs=40, move=move, adapt=ddcl.AdaptiveSize(minimum=2, maximum=64))
    ddcl.Trainer(bank, recipe).fit(z.split(128))
    assert bank.num_prototypes == 8
    assert bank.prototypes.device.type == "cuda"
