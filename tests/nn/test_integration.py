"""The integration modes: after a block, beside it, in the place of its LayerNorm."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ddcl.nn.integration import ParallelPrototypes, PrototypeNorm, SerialPrototypes
from ddcl.nn.losses import quantisation_losses

MODES = [SerialPrototypes, ParallelPrototypes, PrototypeNorm]
SHAPES = [{}, {"num_heads": 3}, {"proto_dim": 4, "num_heads": 2}]


def run(module, x, mask=None, beside=None):
    """Any of the modules on tokens; what stands beside the parallel one is a function of the token alone."""
    if isinstance(module, ParallelPrototypes):
        return module(x, torch.tanh(x) if beside is None else beside, mask)
    return module(x, mask)


def without(module, x):
    """What there would be without the prototypes."""
    if isinstance(module, PrototypeNorm):
        return F.layer_norm(x, x.shape[-1:], module.weight, module.bias, module.eps)
    return torch.tanh(x) if isinstance(module, ParallelPrototypes) else x


def centroids(module, x):
    """The joined soft centroids, written out."""
    z = module.project(x).reshape(*x.shape[:-1], module.num_heads, module.head_dim)
    d = (z.unsqueeze(-2) - module.bank.prototypes).square().sum(-1)
    q = torch.softmax(-d / module.bank.temperature.unsqueeze(-1), -1)
    return torch.einsum("...hk,hkm->...hm", q, module.bank.prototypes).flatten(-2)


@pytest.mark.parametrize("options", SHAPES)
def test_serial_adds_a_scaled_soft_centroid(options):
    module, x = SerialPrototypes(6, 5, temperature=0.7, **options), torch.randn(2, 7, 6)
    nn.init.normal_(module.gamma)
    torch.testing.assert_close(module(x), x + module.gamma * (centroids(module, x) @ module.output.weight.T))


@pytest.mark.parametrize("options", SHAPES)
def test_parallel_adds_a_soft_centroid_through_the_gate_of_each_token(options):
    module, x = ParallelPrototypes(6, 5, temperature=0.7, **options), torch.randn(2, 7, 6)
    nn.init.normal_(module.gate.weight)
    beside = torch.randn(2, 7, 6)
    gate = torch.sigmoid(x @ module.gate.weight.T + module.gate.bias)
    torch.testing.assert_close(module(x, beside), beside + gate * (centroids(module, x) @ module.output.weight.T))
    assert gate.std() > 0
    assert torch.equal(module.gates(x), gate)


@pytest.mark.parametrize("options", SHAPES)
def test_norm_centres_between_the_tokens_mean_and_its_soft_centroid(options):
    module, x = PrototypeNorm(6, 5, temperature=0.7, start=0.3, **options), torch.randn(2, 7, 6)
    nn.init.normal_(module.weight)
    nn.init.normal_(module.bias)
    centre = module.output(centroids(module, x))
    rest = x - 0.7 * x.mean(-1, keepdim=True) - 0.3 * centre
    expected = rest / (rest.square().mean(-1, keepdim=True) + 1e-5).sqrt() * module.weight + module.bias
    torch.testing.assert_close(module(x), expected)


def test_norm_without_a_projection_reads_in_the_space_of_the_tokens():
    assert isinstance(PrototypeNorm(6, 5).output, nn.Identity)
    assert isinstance(PrototypeNorm(6, 5, proto_dim=4).output, nn.Linear)


def test_norm_with_a_closed_gate_is_layer_norm():
    module, x = PrototypeNorm(6, 5), torch.randn(2, 7, 6)
    nn.init.constant_(module.gate, -float("inf"))
    torch.testing.assert_close(module(x), F.layer_norm(x, (6,)))


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_norm_takes_over_the_very_parameters_of_a_layer_norm(affine, bias):
    plain = nn.LayerNorm(6, eps=1e-3, elementwise_affine=affine, bias=bias).eval()
    module = PrototypeNorm.from_layer_norm(plain, 5, num_heads=2)
    assert module.weight is plain.weight
    assert module.bias is plain.bias
    assert module.eps == 1e-3
    assert not module.training
    assert set(plain.state_dict()) <= set(module.state_dict())


@pytest.mark.parametrize("kind", MODES)
@pytest.mark.parametrize("options", SHAPES)
def test_every_mode_starts_as_near_identity(kind, options):
    module, x = kind(6, 5, **options), torch.randn(2, 7, 6)
    for one in (module, module.init_from(x)):
        change = (run(one, x) - without(one, x)).norm() / without(one, x).norm()
        assert 0 < change < 1e-2


@pytest.mark.parametrize("kind", MODES)
def test_start_says_how_near(kind):
    x = torch.randn(2, 7, 6)
    changes = []
    for start in (1e-3, 1e-2):
        torch.manual_seed(0)
        module = kind(6, 5, start=start)
        changes.append((run(module, x) - without(module, x)).norm())
    assert (changes[1] / changes[0]).item() == pytest.approx(10, rel=0.05)


@pytest.mark.parametrize("kind", MODES)
@pytest.mark.parametrize("options", SHAPES)
def test_masked_content_reaches_no_other_token_and_no_gradient(kind, options):
    module = kind(6, 4, start=0.4, **options)
    clean, mask = torch.randn(3, 5, 6), torch.rand(3, 5) > 0.4
    results = []
    for junk in (0.0, float("nan"), 1e30):
        x = clean.clone()
        x[~mask] = junk
        x.requires_grad_()
        module.zero_grad()
        with quantisation_losses(module) as losses:
            y = run(module, x, mask, beside=clean)
        (torch.where(mask.unsqueeze(-1), y, 0.0).square().sum() + y[~mask].sum() + losses.total()).backward()
        gradients = (p.grad.clone() for p in module.parameters())
        results.append([y[mask], losses.total(), x.grad[mask], *gradients])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("kind", MODES)
def test_a_masked_token_gets_what_it_would_get_without_prototypes(kind):
    module = kind(6, 4, start=0.4)
    x, mask = torch.randn(3, 5, 6), torch.rand(3, 5) > 0.4
    y, plain = run(module, x, mask.long()), without(module, x)
    assert torch.equal(y[~mask], plain[~mask])
    assert not torch.isclose(y[mask], plain[mask]).all(-1).any()


@pytest.mark.parametrize("kind", MODES)
def test_every_parameter_learns(kind):
    module = kind(6, 4, proto_dim=4, num_heads=2)
    (run(module, torch.randn(3, 5, 6)) * torch.randn(3, 5, 6)).sum().backward()
    assert all(p.grad.norm() > 0 for p in module.parameters())


@pytest.mark.parametrize("kind", MODES)
def test_state_dict_deepcopy_and_pickle_keep_the_outputs(kind):
    x = torch.randn(2, 3, 6)
    module = kind(6, 4, start=0.4, normalise="standard").init_from(torch.randn(20, 6)).eval()
    other = kind(6, 4, normalise="standard").eval()
    other.load_state_dict(module.state_dict())
    for one in (other, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(run(module, x), run(one, x))


@pytest.mark.parametrize("kind", MODES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_every_float_type_trains(kind, dtype):
    module = kind(6, 4, proto_dim=4, num_heads=2, dtype=dtype)
    y = run(module, torch.randn(2, 3, 6, dtype=dtype), torch.ones(2, 3, dtype=torch.bool))
    assert y.dtype == dtype
    y.float().square().sum().backward()
    assert all(torch.isfinite(p.grad).all() and p.grad.dtype == dtype for p in module.parameters())


@pytest.mark.parametrize("kind", MODES)
def test_device_and_dtype_reach_every_part(kind):
    module = kind(6, 4, proto_dim=4, num_heads=2, device="meta", dtype=torch.bfloat16)
    assert all(p.is_meta and p.dtype == torch.bfloat16 for p in module.parameters())


@pytest.mark.parametrize("kind", MODES)
@pytest.mark.parametrize("entering", [torch.float32, torch.bfloat16])
def test_autocast_keeps_the_dtype_of_the_stream(kind, entering):
    module, x = kind(6, 4, start=0.4, proto_dim=4, num_heads=2), torch.randn(2, 3, 6).to(entering)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = run(module, x, torch.ones(2, 3, dtype=torch.bool))
    assert y.dtype == entering
    torch.testing.assert_close(y.float(), run(module, x.float()), rtol=0.05, atol=0.05)
    y.float().square().sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in module.parameters())


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("kind", MODES)
def test_every_mode_compiles_whole(kind):
    torch._dynamo.reset()
    module = kind(6, 4, proto_dim=4, num_heads=2, start=0.4)
    x, mask = torch.randn(2, 5, 6), torch.rand(2, 5) > 0.3
    results = []
    for fn in (module, torch.compile(module, fullgraph=True, backend="aot_eager")):
        module.zero_grad()
        arguments = (x, torch.tanh(x), mask) if kind is ParallelPrototypes else (x, mask)
        y = fn(*arguments)
        y.square().sum().backward()
        results.append([y, *(p.grad.clone() for p in module.parameters())])
    torch.testing.assert_close(results[0], results[1])
    torch._dynamo.reset()


@pytest.mark.bad_input
@pytest.mark.parametrize("kind", MODES)
def test_bad_settings_are_refused_by_name(kind):
    with pytest.raises(ValueError, match=r"start: got 1\.0, expected a number between 0 and 1"):
        kind(6, 4, start=1.0)
    with pytest.raises(TypeError, match="start: got str"):
        kind(6, 4, start="0.1")
    with pytest.raises(ValueError, match="dim: got 6, expected a multiple of num_heads = 4"):
        kind(6, 4, num_heads=4)


@pytest.mark.bad_input
def test_bad_tokens_are_refused_by_name():
    with pytest.raises(ValueError, match=r"beside: got shape \(2, 6\), expected that of x, \(3, 6\)"):
        ParallelPrototypes(6, 4)(torch.randn(3, 6), torch.randn(2, 6))
    with pytest.raises(ValueError, match=r"norm: got normalized_shape \(2, 3\), expected one axis"):
        PrototypeNorm.from_layer_norm(nn.LayerNorm((2, 3)), 4)
