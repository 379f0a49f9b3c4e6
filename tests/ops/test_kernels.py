"""The fused kernels against the reference: compiled where there is a GPU, elsewhere in Triton's interpreter."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from ddcl import ops
from ddcl.ops import TokenTerms

pytest.importorskip("triton", reason="the fused kernels need the package triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TERMS = TokenTerms._fields[:-1]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
# N, H, K, m. Banks that stay on the chip: one of everything; ragged, with heads; two blocks of tokens, full and padded.
# Banks that are streamed: ragged with heads; several blocks of everything; wide; no padding anywhere.
RESIDENT = [(1, 1, 1, 1), (13, 3, 7, 5), (70, 2, 40, 17), (129, 1, 64, 64)]
STREAMED = [(11, 2, 67, 9), (129, 1, 301, 61), (17, 1, 5, 300), (64, 1, 128, 32)]

pytestmark = [
    # scores of rows past the end of the bank overflow on purpose; numpy, which interprets, says so
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:underflow encountered:RuntimeWarning"),
]


class Case(NamedTuple):
    z: Tensor
    prototypes: Tensor
    temperature: Tensor
    mask: Tensor | None
    weights: dict[str, Tensor]


def case(shape, dtype, *, names=TERMS, per_token=False, masked=False, scale=1.0, offset=0.0) -> Case:
    N, H, K, m = shape
    z = (torch.randn(N, H, m) * scale + offset).to(dtype)
    prototypes = (torch.randn(H, K, m) * scale + offset).to(dtype)
    # squared distances differ by about sqrt(m): mixtures neither one-hot nor uniform
    temperature = (torch.rand(N if per_token else 1, H) + 0.5) * scale**2 * m**0.5
    mask = torch.rand(N) > 0.3 if masked else None
    weights = {name: torch.randn(N, H, m).to(dtype) if name == "centroid" else torch.randn(N, H) for name in names}
    return Case(z, prototypes, temperature, mask, weights)


def run(given: Case, backend: str, gradient: str, dtype: torch.dtype, device: str = "cpu") -> dict[str, Tensor]:
    """Every output and every gradient by name, in float64."""
    z, prototypes = (x.detach().to(device, dtype, copy=True).requires_grad_() for x in given[:2])
    temperature = given.temperature.to(device, ops.arithmetic_dtype(dtype), copy=True).requires_grad_()
    mask = None if given.mask is None else given.mask.to(device)
    terms = ops.readout(z, prototypes, temperature, mask, gradient, backend)
    loss = sum(
        (getattr(terms, name) * w.to(device, getattr(terms, name).dtype)).sum() for name, w in given.weights.items()
    )
    found = {name: term.detach() for name, term in terms._asdict().items()}
    inputs = {"d_z": z, "d_prototypes": prototypes, "d_temperature": temperature}
    grads = [None] * 3
    if isinstance(loss, Tensor) and loss.requires_grad:
        grads = torch.autograd.grad(loss, list(inputs.values()), allow_unused=True)
    for (name, x), grad in zip(inputs.items(), grads, strict=True):
        found[name] = torch.zeros_like(x) if grad is None else grad
    return {name: value.detach().cpu().double() for name, value in found.items()}


def rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


def assert_as_exact_as_float32_rounded(given: Case, gradient: str, dtype: torch.dtype) -> None:
    """At most 4 times the error of a float32 run rounded to the dtype, in RMS, for every output and gradient."""
    N, H, m = given.z.shape
    exact = run(given, "reference", gradient, torch.float64)
    ruler = run(given, "eager", gradient, torch.float32)
    found = run(given, "triton", gradient, dtype, DEVICE)
    # V and min d are differences of numbers as large as L and |z|^2, and a T for all tokens collects a sum over them
    size = rms(exact["total"]) + rms(given.z.double()) ** 2 * m
    least = dict.fromkeys(TERMS[1:], 1e-6 * size)
    if given.temperature.shape[0] == 1:
        each = run(given._replace(temperature=given.temperature.expand(N, H)), "reference", gradient, torch.float64)
        least["d_temperature"] = max(4 * torch.finfo(dtype).eps, 4e-6) * rms(each["d_temperature"]) * N**0.5
    for name, truth in exact.items():
        if name == "indices":
            assert (found[name] != truth).double().mean() <= 0.01, name  # ties to rounding
            continue
        error = rms(found[name] - truth)
        allowed = 4 * rms(ruler[name].to(dtype).double() - truth) + least.get(name, 1e-6 * rms(truth))
        assert error <= allowed, f"{name}: {error:.2e}, allowed {allowed:.2e}"


@pytest.mark.parametrize("gradient", ops.GRADIENTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", RESIDENT + STREAMED, ids=str)
def test_outputs_and_gradients_of_all_terms_together(shape, dtype, gradient):
    assert_as_exact_as_float32_rounded(case(shape, dtype), gradient, dtype)


@pytest.mark.parametrize("gradient", ops.GRADIENTS)
@pytest.mark.parametrize("names", [(name,) for name in TERMS] + [("centroid", "total")], ids=" ".join)
@pytest.mark.parametrize("shape", [RESIDENT[1], STREAMED[0]], ids=str)
def test_gradients_of_each_term_alone(shape, names, gradient):
    assert_as_exact_as_float32_rounded(case(shape, torch.bfloat16, names=names), gradient, torch.bfloat16)
    assert_as_exact_as_float32_rounded(case(shape, torch.float32, names=names), gradient, torch.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [RESIDENT[2], STREAMED[1]], ids=str)
@pytest.mark.parametrize("per_token", [False, True])
def test_masks_and_a_temperature_for_each_token(shape, per_token, dtype):
    assert_as_exact_as_float32_rounded(case(shape, dtype, per_token=per_token, masked=True), "full", dtype)


@pytest.mark.parametrize("shape", [RESIDENT[1], STREAMED[0]], ids=str)
def test_masked_content_never_matters_even_if_it_is_nan(shape):
    given = case(shape, torch.float32, masked=True)
    spoilt = given._replace(z=given.z.masked_fill(~given.mask[:, None, None], float("nan")))
    one, other = (run(x, "triton", "full", torch.float32, DEVICE) for x in (given, spoilt))
    for name in one:
        assert torch.equal(one[name], other[name]), name
    masked = ~given.mask
    assert (one["indices"][masked] == -1).all()
    assert all((one[name][masked] == 0).all() for name in (*TERMS, "d_z"))


@pytest.mark.parametrize("shape", RESIDENT + STREAMED, ids=str)
def test_every_number_is_written(shape, monkeypatch):
    given = case(shape, torch.bfloat16, masked=True)
    clean = run(given, "triton", "full", torch.bfloat16, DEVICE)

    def poisoned(make):
        def fill(*args, **kwargs):
            made = make(*args, **kwargs)
            return made.fill_(float("nan") if made.is_floating_point() else -(10**6))

        return fill

    for name in ("empty", "empty_like"):
        monkeypatch.setattr(torch, name, poisoned(getattr(torch, name)))
    for name, value in run(given, "triton", "full", torch.bfloat16, DEVICE).items():
        assert torch.equal(value, clean[name]), name


@pytest.mark.parametrize("gradient", ops.GRADIENTS)
@pytest.mark.parametrize("shape", [RESIDENT[2], STREAMED[0]], ids=str)
def test_small_gradients_survive_float16(shape, gradient):
    # the mean over a large batch scales gradients by 1 / N: weights of 1e-9 are nothing in float16
    given = case(shape, torch.float16, names=("reconstruction", "total"))
    small = given._replace(weights={name: w * 2.0**-20 for name, w in given.weights.items()})
    one, other = (run(x, "triton", gradient, torch.float16, DEVICE) for x in (given, small))
    # d_z is rounded to float16 at the end, where 2^-20 has few digits left; the bank's gradient sums over tokens first
    torch.testing.assert_close(other["d_z"] * 2**20, one["d_z"], rtol=0, atol=2.0**-25 * 2**20)
    torch.testing.assert_close(other["d_prototypes"] * 2**20, one["d_prototypes"], rtol=0, atol=2.0**-25 * 2**20)


@pytest.mark.parametrize("shape", [RESIDENT[2], STREAMED[1]], ids=str)
@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_extreme_temperatures_stay_finite_and_right(shape, factor):
    given = case(shape, torch.float32, names=("centroid", "total"))
    given = given._replace(temperature=given.temperature * factor)
    exact = run(given, "reference", "stop", torch.float64)
    found = run(given, "triton", "stop", torch.float32, DEVICE)
    for name in (*TERMS, "d_z", "d_prototypes"):
        assert rms(found[name] - exact[name]) <= 1e-4 * rms(exact["total"]) + 1e-5 * rms(exact[name]), name
    assert (found["total"] - found["reconstruction"] - found["variance"]).abs().max() <= 1e-5 * found["total"].max()


@pytest.mark.parametrize("shape", [RESIDENT[2], STREAMED[0]], ids=str)
def test_a_bank_far_from_the_origin_keeps_its_digits(shape):
    given = case(shape, torch.float32, names=("centroid", "total"), offset=1000.0)
    exact = run(given, "reference", "full", torch.float64)
    found = run(given, "triton", "full", torch.float32, DEVICE)
    for name in (*TERMS[1:], "d_z", "d_prototypes"):
        assert rms(found[name] - exact[name]) <= 1e-3 * rms(exact["total"]), name


def test_tokens_in_half_precision_meet_a_bank_in_float32():
    # what autocast does: nothing of the bank is rounded
    N, H, K, m = RESIDENT[2]
    z = torch.randn(N, H, m, device=DEVICE).bfloat16().requires_grad_()
    bank = torch.randn(H, K, m, device=DEVICE).requires_grad_()
    T = torch.full((1, H), 3.0, device=DEVICE)
    mixed = ops.readout(z, bank, T, None, "full", "triton")
    whole = ops.readout(z.float(), bank, T, None, "full", "triton")
    assert mixed.centroid.dtype == torch.bfloat16
    torch.testing.assert_close(mixed.total, whole.total)
    grads = [torch.autograd.grad(out.total.sum() + out.centroid.float().sum(), (z, bank)) for out in (mixed, whole)]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-2)


def test_other_strides_give_the_same_numbers():
    N, H, K, m = STREAMED[0]
    z = torch.randn(m, N, 2 * H, device=DEVICE).permute(1, 2, 0)[:, ::2]
    bank = torch.randn(K, m, H, device=DEVICE).permute(2, 0, 1)
    assert not z.is_contiguous()
    T = torch.full((1, H), 3.0, device=DEVICE)
    results = []
    for x, p in ((z, bank), (z.contiguous(), bank.contiguous())):
        x, p = x.detach().requires_grad_(), p.detach().requires_grad_()
        terms = ops.readout(x, p, T, None, "full", "triton")
        # the gradient of a sum arrives with no strides at all
        results.append([*terms, *torch.autograd.grad(terms.centroid.sum() + terms.total.mean(), (x, p))])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("needed", [(True, False, False), (False, True, False), (False, False, True)], ids=str)
@pytest.mark.parametrize("shape", [RESIDENT[1], STREAMED[0]], ids=str)
def test_only_what_is_asked_for_is_computed(shape, needed):
    given = case(shape, torch.float32)
    inputs = [x.to(DEVICE) for x in given[:3]]
    whole = run(given, "triton", "full", torch.float32, DEVICE)
    for x, flag in zip(inputs, needed, strict=True):
        x.requires_grad_(flag)
    terms = ops.readout(*inputs, None, "full", "triton")
    sum((getattr(terms, name) * w.to(DEVICE)).sum() for name, w in given.weights.items()).backward()
    for name, x, flag in zip(("d_z", "d_prototypes", "d_temperature"), inputs, needed, strict=True):
        assert (x.grad is not None) == flag
        if flag:
            torch.testing.assert_close(x.grad.cpu().double(), whole[name], rtol=1e-5, atol=1e-6)


def test_no_tokens_no_gradient_no_complaint():
    z = torch.randn(0, 1, 4, device=DEVICE, requires_grad=True)
    bank = torch.randn(1, 3, 4, device=DEVICE, requires_grad=True)
    terms = ops.readout(z, bank, torch.ones(1, 1, device=DEVICE), None, "full", "triton")
    (terms.total.sum() + terms.centroid.sum()).backward()
    assert z.grad.shape == z.shape
    assert (bank.grad == 0).all()


def test_a_second_derivative_says_where_to_get_it():
    z, bank = torch.randn(5, 1, 3, device=DEVICE, requires_grad=True), torch.randn(1, 4, 3, device=DEVICE)
    total = ops.readout(z, bank, torch.ones(1, 1, device=DEVICE), None, "full", "triton").total.sum()
    (grad,) = torch.autograd.grad(total, z, create_graph=True)
    with pytest.raises(RuntimeError, match="backend='reference'"):
        grad.sum().backward()


def test_the_dispatcher_says_why():
    z, bank = torch.randn(5, 1, 3, device=DEVICE), torch.randn(1, 4, 3, device=DEVICE)
    assert ops.choose("eager", z, bank) == ("eager", "asked for by name")
    assert ops.choose("triton", z, bank) == ("triton", "asked for by name")
    assert ops.choose("auto", z, bank).backend == ("triton" if DEVICE == "cuda" else "eager")
    assert "float64" in ops.choose("auto", z.double(), bank.double()).reason or DEVICE == "cpu"
    with pytest.raises(RuntimeError, match="float64"):
        ops.choose("triton", z.double(), bank.double())
    with pytest.raises(RuntimeError, match="at most 1024 dimensions, and tokens have 1025"):
        ops.choose("triton", torch.randn(2, 1, 1025, device=DEVICE), torch.randn(1, 2, 1025, device=DEVICE))
    with pytest.raises(ValueError, match="backend: got 'cuda'"):
        ops.choose("cuda")


def test_without_triton_there_is_another_backend(monkeypatch):
    from ddcl.ops import choice

    z, bank = torch.randn(5, 1, 3), torch.randn(1, 4, 3)
    choice._no_kernels.cache_clear()
    monkeypatch.setattr(choice.importlib.util, "find_spec", lambda _: None)
    try:
        assert ops.choose("auto").reason == "the package triton is not installed"
        with pytest.raises(RuntimeError, match="the package triton is not installed"):
            ops.choose("triton", z, bank)
        assert ops.readout(z, bank, torch.ones(1, 1), None, "full", "auto").total.shape == (5, 1)
    finally:
        choice._no_kernels.cache_clear()
