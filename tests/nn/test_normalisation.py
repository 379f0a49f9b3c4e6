"""Tokens of a size that no encoder can shrink."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import ddcl
from ddcl import DDCLAttention, TokenNorm
from ddcl.nn import NORMALISATIONS

F64 = torch.float64
M = 5


def tokens(*shape: int, dtype: torch.dtype = F64) -> torch.Tensor:
    """Tokens far from the origin with unequal spread."""
    return torch.randn(*shape, M, dtype=dtype) * torch.arange(1, M + 1, dtype=dtype) + 30


def test_unit_gives_every_token_length_one():
    z = tokens(3, 7)
    torch.testing.assert_close(TokenNorm(M, "unit")(z), z / z.norm(dim=-1, keepdim=True))


def test_layer_gives_every_token_mean_zero_and_variance_one():
    found = TokenNorm(M, "layer")(tokens(3, 7))
    torch.testing.assert_close(found.mean(-1), torch.zeros(3, 7, dtype=F64))
    torch.testing.assert_close(found.var(-1, correction=0), torch.ones(3, 7, dtype=F64), rtol=1e-4, atol=0)


def test_none_changes_nothing():
    z = tokens(3, 7)
    assert TokenNorm(M, "none")(z) is z


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_standard_gives_every_coordinate_mean_zero_and_variance_one_whatever_the_scale(scale):
    found = TokenNorm(M, dtype=F64)(scale * tokens(11, 13)).flatten(0, 1)
    torch.testing.assert_close(found.mean(0), torch.zeros(M, dtype=F64))
    torch.testing.assert_close(found.var(0, correction=0), torch.ones(M, dtype=F64))
    assert float(ddcl.covariance(found).trace) == pytest.approx(M)


def test_standard_counts_unmasked_tokens_only():
    z, mask = tokens(11, 13), torch.rand(11, 13) > 0.4
    clean = TokenNorm(M, dtype=F64)
    expected = clean(z[mask])
    z[~mask] = float("nan")
    masked = TokenNorm(M, dtype=F64)
    torch.testing.assert_close(masked(z, mask)[mask], expected)
    torch.testing.assert_close(masked.mean, clean.mean)
    torch.testing.assert_close(masked.variance, clean.variance)


def test_evaluation_uses_the_running_moments_and_does_not_change_them():
    norm = TokenNorm(M, dtype=F64)
    z = tokens(101)
    expected = norm(z)
    norm.eval()
    torch.testing.assert_close(norm(z), expected)  # one batch has been seen, and its moments are the running ones
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    norm(100 * tokens(17))
    for name, value in norm.state_dict().items():
        assert torch.equal(value, before[name])
    torch.testing.assert_close(norm(z[:1]), expected[:1])  # a token's result is its own, whatever else is there


def test_the_first_batches_are_averaged_plainly_and_later_ones_replace_the_past():
    norm = TokenNorm(M, momentum=0.1, dtype=F64)
    batches = [tokens(23) + 10 * k for k in range(4)]
    for batch in batches:
        norm(batch)
    torch.testing.assert_close(norm.mean, torch.stack([batch.mean(0) for batch in batches]).mean(0))
    for _ in range(300):
        norm(batches[0])
    torch.testing.assert_close(norm.mean, batches[0].mean(0))
    torch.testing.assert_close(norm.variance, batches[0].var(0, correction=0))


def test_a_batch_that_is_masked_as_a_whole_changes_nothing():
    norm = TokenNorm(M, dtype=F64)
    z = tokens(23)
    norm(z)
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    found = norm(z, torch.zeros(23, dtype=torch.bool))
    assert torch.isfinite(found).all()
    for name in ("mean", "variance"):
        torch.testing.assert_close(norm.state_dict()[name], before[name])


def test_recalibrated_moments_are_those_of_all_tokens_in_one_go():
    norm = TokenNorm(M, dtype=F64)
    norm(1e3 * tokens(7))  # a past that has nothing to do with the present
    batches = [tokens(31) - 40, tokens(17), tokens(3) + 40]  # of unequal size and place
    norm.eval()
    with norm.recalibrating():
        for batch in batches:
            norm(batch)
    exact = ddcl.covariance(batches)
    torch.testing.assert_close(norm.mean, exact.mean)
    torch.testing.assert_close(norm.variance, exact.matrix.diagonal())


@pytest.mark.parametrize("kind", NORMALISATIONS)
@pytest.mark.parametrize("training", [True, False])
def test_recalibrating_leaves_mode_and_momentum_as_they_were_also_after_an_error(kind, training):
    norm = TokenNorm(M, kind, momentum=0.3).train(training)
    with pytest.raises(RuntimeError, match="of the loader"), norm.recalibrating():
        raise RuntimeError("of the loader")
    assert norm.training is training
    assert norm.momentum == 0.3


def test_recalibrated_moments_forget_what_came_before():
    norm = TokenNorm(M, dtype=F64)
    for _ in range(50):
        norm(1e3 * tokens(7))
    z = tokens(41)
    with norm.recalibrating():
        norm(z)
    torch.testing.assert_close(norm.mean, z.mean(0))
    torch.testing.assert_close(norm.variance, z.var(0, correction=0))


@pytest.mark.parametrize("kind", ["unit", "layer", "standard"])
def test_a_change_of_scale_alone_has_no_gradient(kind):
    # L_q cannot be lowered by shrinking the tokens: along their own scale it is flat
    norm = TokenNorm(M, kind, dtype=F64)
    scale = torch.ones((), dtype=F64, requires_grad=True)
    bank = torch.randn(3, M, dtype=F64)
    loss = ddcl.readout(norm(scale * tokens(29)), bank, 0.7).loss.total
    (along,) = torch.autograd.grad(loss, scale)
    # layer_norm has an epsilon of its own, 1e-5 beside a variance of about ten
    assert abs(float(along)) < 1e-5 * float(loss.detach())


@pytest.mark.parametrize("kind", NORMALISATIONS)
def test_shape_and_dtype_are_kept_and_there_are_no_parameters(kind):
    norm = TokenNorm(M, kind)
    assert list(norm.parameters()) == []
    z = tokens(2, 7, dtype=torch.bfloat16)
    found = norm(z)
    assert found.dtype == torch.bfloat16
    assert found.shape == z.shape


def test_running_moments_go_with_a_checkpoint():
    norm, other = TokenNorm(M, dtype=F64), TokenNorm(M, dtype=F64)
    norm(tokens(31))
    other.load_state_dict(norm.state_dict())
    z = tokens(7)
    assert torch.equal(other.eval()(z), norm.eval()(z))


@pytest.mark.bad_input
def test_bad_settings_are_refused_by_name():
    with pytest.raises(ValueError, match="kind: got 'batch', expected one of 'none', 'unit', 'layer', 'standard'"):
        TokenNorm(M, "batch")
    with pytest.raises(ValueError, match="dim: got 0"):
        TokenNorm(0)
    with pytest.raises(ValueError, match="kind: got 'batch'"):
        DDCLAttention(6, 4, normalise="batch")


@pytest.mark.parametrize("kind", NORMALISATIONS)
@pytest.mark.parametrize(("proto_dim", "num_heads"), [(None, 1), (6, 1), (6, 3)])
def test_the_layers_bank_meets_normalised_tokens(kind, proto_dim, num_heads):
    layer = DDCLAttention(6, 4, proto_dim=proto_dim, num_heads=num_heads, normalise=kind, dtype=F64)
    x, mask = 5 * torch.randn(3, 17, 6, dtype=F64) + 2, torch.rand(3, 17) > 0.3
    met = []
    layer.bank.register_forward_pre_hook(lambda _, args: met.append(args[0]))
    layer(x, mask)
    z = met[0][mask]  # (n, m) or (n, H, m / H)
    projected = layer.project(x)[mask].reshape(z.shape)
    if kind == "none":
        torch.testing.assert_close(z, projected)
    elif kind == "unit":
        torch.testing.assert_close(z.norm(dim=-1), torch.ones(z.shape[:-1], dtype=F64))
        torch.testing.assert_close(z, nn.functional.normalize(projected, dim=-1))
    elif kind == "layer":
        torch.testing.assert_close(z.mean(-1), torch.zeros(z.shape[:-1], dtype=F64))
    else:
        torch.testing.assert_close(z.mean(0), torch.zeros(z.shape[1:], dtype=F64))
        torch.testing.assert_close(z.var(0, correction=0), torch.ones(z.shape[1:], dtype=F64))


@pytest.mark.parametrize("data", ["a tensor", "batches"])
def test_the_layers_bank_is_started_from_normalised_tokens(data):
    layer = DDCLAttention(6, 4, proto_dim=6, num_heads=2, normalise="unit", dtype=F64)
    x = 50 * torch.randn(5, 13, 6, dtype=F64)
    layer.init_from(x if data == "a tensor" else list(x.split(2)))
    assert (layer.bank.prototypes.norm(dim=-1) <= 1 + 1e-12).all()
    assert (layer.bank.temperature <= 0.1 * 4).all()  # of unit-norm tokens T_c is at most 4


def test_a_shrinking_projection_changes_nothing_behind_standardised_tokens():
    x = torch.randn(3, 17, 6, dtype=F64)
    losses = []
    for shrunk in (1.0, 1e-6):
        torch.manual_seed(0)
        layer = DDCLAttention(6, 4, proto_dim=5, normalise="standard", dtype=F64)
        with torch.no_grad():
            layer.project.weight *= shrunk
        losses.append(layer(x).readout.loss.total)
    torch.testing.assert_close(*losses)
