"""The operation: identity, closed forms, invariances, masks, dtypes."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import ddcl
from ddcl import readout

BACKENDS = ["reference", "eager"]


def regime(name: str, dtype: torch.dtype) -> tuple[Tensor, Tensor, float]:
    """Tokens, bank and temperature of a named kind."""
    z, bank = torch.randn(211, 13, dtype=dtype), torch.randn(17, 13, dtype=dtype)
    if name == "tiny T":
        return z, bank, 1e-6
    if name == "huge T":
        return z, bank, 1e6
    if name == "all far away":
        offset = 1000 * torch.nn.functional.normalize(torch.randn(13, dtype=dtype), dim=0)
        return z + offset, bank + offset, 1.0
    if name == "tokens far from the bank":
        return 1000 * torch.nn.functional.normalize(z, dim=-1), bank, 1.0
    if name == "duplicates":
        return z, bank[:4].repeat(5, 1), 1.0
    if name == "tight clusters":
        return bank[torch.randint(17, (211,))] + 1e-3 * z, bank, 1e-5
    if name == "a prototype far out":  # centring on the mean would cost everyone else their digits
        return z, torch.cat([bank, torch.full((1, 13), 1e4, dtype=dtype)]), 1.0
    if name == "small bank":  # V is computed from pairs here
        return z, bank[:5], 3.0
    return z, bank, 1.0


REGIMES = [
    "random",
    "tiny T",
    "huge T",
    "all far away",
    "tokens far from the bank",
    "duplicates",
    "tight clusters",
    "a prototype far out",
    "small bank",
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)], ids=["64", "32"])
@pytest.mark.parametrize("kind", REGIMES)
def test_total_is_reconstruction_plus_variance(kind, dtype, tolerance, backend):
    out = readout(*regime(kind, dtype), backend=backend)
    for terms in (out.loss, out.per_token):
        error = (terms.total - terms.reconstruction - terms.variance).abs() / terms.total
        assert error.max() < tolerance


@pytest.mark.parametrize("kind", REGIMES)
def test_every_term_is_right_in_float32_not_only_their_sum(kind):
    # the identity could hold between wrong numbers: here each is held against the definition in float64
    z, bank, T = regime(kind, torch.float32)
    found = readout(z, bank, T, backend="eager")
    exact = readout(z.double(), bank.double(), T, backend="reference")
    # what rounding the inputs' own products costs: the logits are good to eps |x| |p| / T
    center = ddcl.ops.bank_center(bank.double())
    x, p = z.double() - center, bank.double() - center
    near = exact.assignments.amax(0) > 1e-12  # what no token takes part in costs none a digit
    noise = 4e-7 * x.norm(dim=-1).max() * p[near].norm(dim=-1).max()
    for name in ("total", "reconstruction", "variance", "quantization", "free_energy"):
        a, b = getattr(found.per_token, name), getattr(exact.per_token, name)
        assert ((a.double() - b).abs() <= 2e-6 * (exact.per_token.total + b.abs()) + noise).all(), name
    worst = (found.per_token.entropy.double() - exact.per_token.entropy).abs().max()
    assert worst <= min(math.log(len(bank)), 1e-5 + noise / T)


def test_small_losses_keep_their_digits_in_float32():
    # tokens within 1e-3 of well separated prototypes: the expanded square would lose four digits
    z, bank, T = regime("tight clusters", torch.float32)
    for size in (17, 5):  # V as a difference, V from pairs
        found, exact = readout(z, bank[:size], T), readout(z.double(), bank[:size].double(), T, backend="reference")
        close = exact.per_token.quantization < 1e-4
        assert close.any()
        for name in ("total", "quantization", "reconstruction"):
            a, b = getattr(found.per_token, name)[close].double(), getattr(exact.per_token, name)[close]
            torch.testing.assert_close(a, b, rtol=2e-3, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
class TestClosedForms:
    def test_one_prototype_takes_everything(self, backend):
        z, bank = torch.randn(7, 3, dtype=torch.float64), torch.randn(1, 3, dtype=torch.float64)
        out = readout(z, bank, 0.7, backend=backend)
        assert torch.equal(out.centroid, bank.expand(7, 3))
        torch.testing.assert_close(out.per_token.total, (z - bank).square().sum(-1))
        assert out.loss.entropy == 0
        assert out.loss.variance == 0

    def test_infinite_temperature_mixes_evenly(self, backend):
        z, bank = torch.randn(7, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
        out = readout(z, bank, 1e12, backend=backend)
        torch.testing.assert_close(out.centroid, bank.mean(0).expand(7, 3), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(out.loss.entropy, torch.tensor(math.log(5), dtype=torch.float64))
        torch.testing.assert_close(out.assignments, torch.full((7, 5), 0.2, dtype=torch.float64))

    @pytest.mark.parametrize("T", [1e-12, 1e-30, 1e-38])
    def test_zero_temperature_picks_the_nearest(self, T, backend):
        z, bank = torch.randn(7, 3), torch.randn(5, 3)
        out = readout(z, bank, T, backend=backend)
        torch.testing.assert_close(out.centroid, bank[out.indices])
        torch.testing.assert_close(out.loss.total, out.loss.quantization)
        assert out.loss.entropy.abs() < 1e-6
        assert torch.equal(out.indices, torch.cdist(z.double(), bank.double()).argmin(-1))

    @pytest.mark.parametrize("T", [1e-12, 1e-20, 1e-30, 1e-38])
    @pytest.mark.parametrize("shape", [(5, 3), (3, 9)], ids=["V from norms", "V from pairs"])
    def test_gradients_at_zero_temperature_are_those_of_the_nearest(self, shape, T, backend):
        z, bank = torch.randn(7, shape[1], requires_grad=True), torch.randn(shape, requires_grad=True)
        temperature = torch.tensor(T, requires_grad=True)
        out = readout(z, bank, temperature, backend=backend)
        weights = torch.randn(7, shape[1])
        terms = out.per_token.total + out.per_token.reconstruction + out.per_token.variance
        if T > 1e-36:  # H / T, the entropy's slope, leaves the range of float32 beyond
            terms = terms + out.per_token.entropy
        d_z, d_bank, d_T = torch.autograd.grad((out.centroid * weights).sum() + terms.sum(), (z, bank, temperature))
        difference = (z - bank[out.indices]).detach()
        torch.testing.assert_close(d_z, 4 * difference)  # L and R
        expected = torch.zeros_like(bank).index_add_(0, out.indices, weights - 4 * difference)
        torch.testing.assert_close(d_bank, expected)
        assert d_T == 0

    def test_a_token_midway_between_two_prototypes_mixes_them_equally(self, backend):
        bank = torch.tensor([[-3.0, 0.0], [3.0, 0.0]], dtype=torch.float64)
        out = readout(torch.tensor([[0.0, 2.0]], dtype=torch.float64), bank, 0.1, backend=backend)
        torch.testing.assert_close(out.centroid, torch.zeros(1, 2, dtype=torch.float64))
        # the paper's side remark |z - mu|^2 >= min d fails here: 4 < 13
        expected = torch.tensor([4.0, 9.0, 13.0], dtype=torch.float64)
        found = torch.stack([out.loss.reconstruction, out.loss.variance, out.loss.quantization])
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(out.loss.entropy, torch.tensor(math.log(2), dtype=torch.float64))

    def test_two_prototypes_on_a_line_give_the_hyperbolic_tangent(self, backend):
        # p = +-a, so q+ - q- = tanh(2 a z / T), and for two Gaussians at +-a the bank at their means follows it
        a, T = 1.5, 0.8
        z = torch.cat([torch.randn(200, 1, dtype=torch.float64) * 0.3 + s * a for s in (-1, 1)])
        bank = torch.tensor([[-a], [a]], dtype=torch.float64)
        out = readout(z, bank, T, backend=backend)
        tanh = torch.tanh(2 * a * z / T)
        torch.testing.assert_close(out.centroid, a * tanh)
        torch.testing.assert_close(out.per_token.variance, a**2 * (1 - tanh.squeeze(-1) ** 2))
        free_energy = z.squeeze(-1) ** 2 + a**2 - T * torch.log(2 * torch.cosh(2 * a * z.squeeze(-1) / T))
        torch.testing.assert_close(out.per_token.free_energy, free_energy)


small = st.integers(1, 6)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(N=small, K=small, m=small, log_T=st.floats(-3, 3), seed=st.integers(0, 10**6), backend=st.sampled_from(BACKENDS))
def test_invariances(N, K, m, log_T, seed, backend):
    torch.manual_seed(seed)
    z, bank = torch.randn(N, m, dtype=torch.float64), torch.randn(K, m, dtype=torch.float64)
    T = math.exp(log_T)
    out = readout(z, bank, T, backend=backend)

    def same(a: ddcl.Readout, scale: float = 1.0) -> None:
        for name in ("total", "reconstruction", "variance", "quantization", "free_energy"):
            torch.testing.assert_close(
                getattr(a.per_token, name), scale * getattr(out.per_token, name), rtol=1e-7, atol=1e-9
            )
        torch.testing.assert_close(a.per_token.entropy, out.per_token.entropy, rtol=1e-7, atol=1e-9)

    order = torch.randperm(K)
    permuted = readout(z, bank[order], T, backend=backend)
    same(permuted)
    torch.testing.assert_close(permuted.centroid, out.centroid)
    assert torch.equal(order[permuted.indices], out.indices)

    shift = 10 * torch.randn(m, dtype=torch.float64)
    moved = readout(z + shift, bank + shift, T, backend=backend)
    same(moved)
    torch.testing.assert_close(moved.centroid, out.centroid + shift)

    rotation = torch.linalg.qr(torch.randn(m, m, dtype=torch.float64))[0]
    turned = readout(z @ rotation, bank @ rotation, T, backend=backend)
    same(turned)
    torch.testing.assert_close(turned.centroid, out.centroid @ rotation)

    s = math.exp(float(torch.randn(())))
    same(readout(s * z, s * bank, s**2 * T, backend=backend), scale=s**2)

    assert (out.per_token.variance >= 0).all()
    assert (out.per_token.total >= out.per_token.quantization - 1e-12).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("gradient", ["full", "stop"])
@pytest.mark.parametrize("heads", [None, 3])
def test_masked_content_never_changes_anything_bit_for_bit(heads, gradient, backend):
    shape = (4, 7, 5) if heads is None else (4, 7, heads, 5)
    bank = torch.randn(6, 5) if heads is None else torch.randn(heads, 6, 5)
    clean, mask = torch.randn(shape), torch.rand(4, 7) > 0.4
    results = []
    for junk in (0.0, 1e30, float("nan"), float("inf")):
        z = clean.clone()
        z[~mask] = junk
        z, p = z.requires_grad_(), bank.clone().requires_grad_()
        T = torch.tensor(1.3, requires_grad=True)
        out = readout(z, p, T, mask=mask, gradient=gradient, backend=backend)
        (sum(out.loss) + out.centroid.square().sum() + sum(term.sum() for term in out.per_token)).backward()
        results.append([out.centroid, out.indices, out.assignments, *out.loss, *out.per_token, z.grad, p.grad, T.grad])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
    out, grad = results[0], results[0][-3]
    assert (out[0][~mask] == 0).all()
    assert (out[1][~mask] == -1).all()
    assert (grad[~mask] == 0).all()
    assert all(torch.isfinite(x).all() for x in out if x.is_floating_point())


@pytest.mark.parametrize("backend", BACKENDS)
def test_masked_losses_are_means_over_the_tokens_that_count(backend):
    z, bank, mask = torch.randn(5, 9, 3), torch.randn(4, 3), torch.rand(5, 9) > 0.5
    masked, alone = readout(z, bank, 1.0, mask=mask, backend=backend), readout(z[mask], bank, 1.0, backend=backend)
    torch.testing.assert_close(tuple(masked.loss), tuple(alone.loss))
    torch.testing.assert_close(masked.centroid[mask], alone.centroid)


@pytest.mark.parametrize("backend", BACKENDS)
def test_everything_masked_gives_zero_loss_and_zero_gradient(backend):
    z, bank = torch.randn(2, 3, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)
    out = readout(z, bank, 1.0, mask=torch.zeros(2, 3, dtype=torch.bool), backend=backend)
    assert all(term == 0 for term in out.loss)
    out.loss.total.backward()
    assert (z.grad == 0).all()
    assert (bank.grad == 0).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("gradient", ["full", "stop"])
def test_an_empty_batch_gives_empty_outputs_and_zero_loss(gradient, backend):
    z, bank = torch.randn(0, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)
    out = readout(z, bank, 1.0, gradient=gradient, backend=backend)
    assert out.centroid.shape == (0, 4)
    assert out.indices.shape == (0,)
    assert out.assignments.shape == (0, 5)
    (out.loss.total + out.centroid.sum()).backward()
    assert (bank.grad == 0).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_heads_are_independent_readouts(backend):
    z, banks = torch.randn(2, 3, 5, 7), torch.randn(5, 11, 7)
    T = torch.tensor([0.5, 1.0, 2.0, 3.0, 5.0])
    together = readout(z, banks, T, backend=backend)
    alone = [readout(z[..., h, :], banks[h], float(T[h]), backend=backend) for h in range(5)]
    for h, one in enumerate(alone):
        torch.testing.assert_close(together.centroid[..., h, :], one.centroid)
        torch.testing.assert_close(together.assignments[..., h, :], one.assignments)
        assert torch.equal(together.indices[..., h], one.indices)
        torch.testing.assert_close(together.per_head.total[h], one.loss.total)
    torch.testing.assert_close(together.loss.total, torch.stack([one.loss.total for one in alone]).mean())


@pytest.mark.parametrize("backend", BACKENDS)
def test_temperature_may_be_a_number_a_scalar_per_head_or_per_token(backend):
    z, bank = torch.randn(3, 4, 5), torch.randn(6, 5)
    number = readout(z, bank, 0.9, backend=backend)
    for T in (
        torch.tensor(0.9),
        torch.tensor([0.9]),
        torch.full((4,), 0.9),
        torch.full((3, 1), 0.9),
        torch.full((3, 4), 0.9),
    ):
        torch.testing.assert_close(readout(z, bank, T, backend=backend).centroid, number.centroid)
    T = torch.rand(3, 4) + 0.1
    mixed = readout(z, bank, T, backend=backend)
    one = readout(z[1, 2], bank, float(T[1, 2]), backend=backend)
    torch.testing.assert_close(mixed.centroid[1, 2], one.centroid)
    torch.testing.assert_close(mixed.assignments[1, 2], one.assignments)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_dtype_in_is_dtype_out_with_losses_in_the_arithmetics_dtype(dtype, backend):
    z, bank = torch.randn(3, 5).to(dtype).requires_grad_(), torch.randn(4, 5).to(dtype).requires_grad_()
    out = readout(z, bank, 0.5, backend=backend)
    assert out.centroid.dtype == out.assignments.dtype == dtype
    assert out.loss.total.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    (out.loss.total + out.centroid.float().sum()).backward()
    assert z.grad.dtype == bank.grad.dtype == dtype


@pytest.mark.parametrize("backend", BACKENDS)
def test_assignments_are_computed_on_demand_and_follow_the_gradient_mode(backend):
    z, bank = torch.randn(6, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    full = readout(z, bank, 1.0, backend=backend)
    torch.testing.assert_close(full.assignments @ bank, full.centroid)
    assert full.assignments.requires_grad
    assert not readout(z, bank, 1.0, gradient="stop", backend=backend).assignments.requires_grad


def test_non_contiguous_input_gives_the_same_numbers():
    base, bank = torch.randn(5, 8, 6), torch.randn(7, 5).T.contiguous().T
    z = base.transpose(1, 2)[..., :5]
    assert not z.is_contiguous()
    torch.testing.assert_close(readout(z, bank, 1.0).centroid, readout(z.contiguous(), bank.contiguous(), 1.0).centroid)


def test_the_gradient_of_the_loss_in_mode_stop_is_that_of_the_free_energy():
    z, bank = torch.randn(9, 3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    (stop,) = torch.autograd.grad(readout(z, bank, 0.8, gradient="stop").loss.total, bank)
    (free,) = torch.autograd.grad(readout(z, bank, 0.8, gradient="full").loss.free_energy, bank)
    torch.testing.assert_close(stop, free)


def test_far_prototypes_are_pushed_away_in_mode_full_only():
    # theory, section 3: w_k < 0 where d_k > L + T
    z = torch.zeros(1, 1, dtype=torch.float64)
    for gradient, sign in (("full", -1), ("stop", 1)):
        bank = torch.tensor([[0.1], [3.0]], dtype=torch.float64, requires_grad=True)
        readout(z, bank, 1.0, gradient=gradient).loss.total.backward()
        assert bank.grad[1].sign() == sign  # descent moves against the gradient


def test_results_unpack_like_tuples_and_show_themselves():
    out = readout(torch.randn(3, 2), torch.randn(4, 2), 1.0)
    centroid, loss, _ = out
    assert centroid is out.centroid
    assert out[1] is loss
    assert len(out) == 3
    total, reconstruction, *_ = loss
    assert (total, reconstruction) == (loss.total, loss.reconstruction)
    torch.testing.assert_close(loss.paper_gap, loss.total - loss.quantization)
    assert set(loss.as_dict()) == {"total", "reconstruction", "variance", "quantization", "entropy", "free_energy"}
    assert "centroid=(3, 2)" in repr(out)


def test_an_integer_mask_as_tokenizers_give_it_is_taken_as_it_is():
    z, bank = torch.randn(2, 3, 4), torch.randn(5, 4)
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    assert torch.equal(readout(z, bank, 1.0, mask=mask).centroid, readout(z, bank, 1.0, mask=mask.bool()).centroid)


def test_the_temperature_of_a_masked_token_reaches_nothing_either():
    z, bank = torch.randn(4, 3), torch.randn(5, 3)
    mask = torch.tensor([True, True, False, True])
    results = []
    for junk in (7.0, float("nan"), -1.0, 1e-30):
        T = torch.tensor([1.0, 2.0, junk, 1.0], requires_grad=True)
        out = readout(z, bank, T, mask=mask)
        (out.loss.total + out.assignments.square().sum()).backward()
        results.append([out.centroid, *out.loss, out.assignments, T.grad])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
    assert results[0][-1][2] == 0
    with pytest.raises(ValueError, match="temperature: got nan"):
        readout(z, bank, torch.tensor([1.0, float("nan"), 1.0, 1.0]), mask=mask)


@pytest.mark.parametrize("K", [5, 2])  # with and without V from pairs
@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast_changes_no_digit_of_what_is_computed_inside(backend, K):
    z, bank = torch.randn(9, 7), torch.randn(K, 7)
    results = []
    for enabled in (False, True):
        x, p = z.clone().requires_grad_(), bank.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            out = readout(x, p, 1.0, backend=backend)
            (sum(out.loss) + out.centroid.sum()).backward()
            q = out.assignments
        results.append([out.centroid, q, *out.loss, x.grad, p.grad])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_means_over_any_mask_are_right_even_if_the_readout_had_another():
    out = readout(torch.randn(7, 3), torch.randn(5, 3), 1.0)
    mask = torch.arange(7) < 2
    torch.testing.assert_close(out.per_token.mean(mask).total, out.per_token.total[:2].mean())


def test_the_identity_holds_even_for_a_bank_too_wide_for_float32_to_resolve():
    # two tight groups 2000 apart: the terms are only as good as the logits, their sum is exact
    z = torch.cat([torch.randn(500, 1) * 0.3 + s for s in (-1000, 1000)])
    bank = torch.cat([torch.randn(5, 1) * 0.3 + s for s in (-1000, 1000)])
    terms = readout(z, bank, 0.1).per_token
    assert ((terms.total - terms.reconstruction - terms.variance).abs() <= 1e-6 * terms.total).all()


def test_a_single_number_in_any_shape_is_a_temperature_for_everything():
    z, bank = torch.randn(3), torch.randn(4, 3)
    torch.testing.assert_close(readout(z, bank, torch.ones(1)).centroid, readout(z, bank, 1.0).centroid)


def test_results_are_compared_by_identity():
    out = readout(torch.randn(3, 2), torch.randn(4, 2), 1.0)
    assert out == out
    assert out != readout(torch.randn(3, 2), torch.randn(4, 2), 1.0)
