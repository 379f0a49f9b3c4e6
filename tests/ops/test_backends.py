"""Every backend against the reference: values and all gradients, in both modes."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from ddcl import ops
from ddcl.ops import TokenTerms, blocks, eager

BACKENDS = ["eager"]  # the fused kernels compute in float32 at best: test_kernels.py
TERMS = TokenTerms._fields[:-1]  # all but the indices are differentiable
# N, H, K, m: unit; ragged; a bank small enough for V from pairs; several blocks
SHAPES = [(1, 1, 1, 3), (13, 3, 7, 5), (11, 2, 3, 17), (129, 1, 101, 61)]


def tensors(N: int, H: int, K: int, m: int, *, rows: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    z = torch.randn(N, H, m, dtype=dtype)
    prototypes = torch.randn(H, K, m, dtype=dtype)
    temperature = torch.rand(rows, H, dtype=dtype) * m + 0.3
    return [x.requires_grad_() for x in (z, prototypes, temperature)]


def gradients(terms: TokenTerms, weights: dict[str, Tensor], inputs: list[Tensor]) -> list[Tensor]:
    total = sum((getattr(terms, name) * weight).sum() for name, weight in weights.items())
    if not isinstance(total, Tensor) or not total.requires_grad:  # a term that is constant in mode stop
        return [torch.zeros_like(x) for x in inputs]
    found = torch.autograd.grad(total, inputs, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True)]


@pytest.fixture(params=[False, True], ids=["one block", "many blocks"])
def _block_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        monkeypatch.setitem(blocks.BLOCK_NUMBERS, "cpu", 320)


@pytest.mark.usefixtures("_block_size")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("gradient", ops.GRADIENTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("per_token", [False, True])
def test_values_and_gradients_of_every_output_match_the_reference(shape, per_token, masked, gradient, backend):
    inputs = tensors(*shape, rows=shape[0] if per_token else 1)
    mask = torch.rand(shape[0]) > 0.3 if masked else None
    expected = ops.readout(*inputs, mask, gradient, "reference")
    found = ops.readout(*inputs, mask, gradient, backend)
    for name in TokenTerms._fields:
        torch.testing.assert_close(
            getattr(found, name), getattr(expected, name), msg=lambda m, name=name: f"{name}: {m}"
        )
    for names in [TERMS, *((name,) for name in TERMS)]:
        weights = {name: torch.randn_like(getattr(expected, name)) for name in names}
        for label, one, other in zip(
            ("z", "prototypes", "temperature"),
            gradients(found, weights, inputs),
            gradients(expected, weights, inputs),
            strict=True,
        ):
            torch.testing.assert_close(
                one, other, msg=lambda m, names=names, label=label: f"d {names} / d {label}: {m}"
            )


@pytest.mark.parametrize("backend", ["reference", *BACKENDS])
@pytest.mark.parametrize("term", TERMS)
def test_gradients_of_mode_full_pass_gradcheck(term, backend):
    inputs = tensors(5, 2, 3, 4, rows=1)
    assert torch.autograd.gradcheck(lambda *x: getattr(ops.readout(*x, None, "full", backend), term), inputs)


def test_second_derivatives_pass_gradgradcheck_through_the_reference():
    inputs = tensors(3, 1, 3, 2, rows=1)
    for term in TERMS:
        assert torch.autograd.gradgradcheck(
            lambda *x, term=term: getattr(ops.readout(*x, None, "full", "reference"), term), inputs
        )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_second_derivative_of_another_backend_says_where_to_get_it(backend):
    z, prototypes, temperature = tensors(3, 1, 3, 2, rows=1)
    total = ops.readout(z, prototypes, temperature, None, "full", backend).total.sum()
    (grad,) = torch.autograd.grad(total, z, create_graph=True)
    with pytest.raises(RuntimeError, match="backend='reference'"):
        grad.sum().backward()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("gradient", ops.GRADIENTS)
def test_gradients_do_not_depend_on_whether_assignments_were_kept(gradient, backend, monkeypatch):
    from ddcl.ops import registration

    inputs = [*tensors(29, 2, 5, 3, rows=1)[:2], torch.full((1, 2), 0.7, dtype=torch.float64)]
    results = []
    monkeypatch.setitem(blocks.BLOCK_NUMBERS, "cpu", 50)
    for bound in (10**9, 0, 200):  # all of 290, none, the first two of three blocks
        monkeypatch.setattr(registration, "KEPT_NUMBERS", bound)
        terms = ops.readout(*inputs, None, gradient, backend)
        results.append(torch.autograd.grad(terms.total.sum() + terms.centroid.square().sum(), inputs[:2]))
    for result in results[1:]:
        for one, other in zip(results[0], result, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("backend", BACKENDS)
def test_half_precision_errs_no_more_than_a_float32_run_rounded(dtype, backend):
    # style.md: the yardstick is a float32 run rounded to the dtype, in RMS, at most 4 times its error
    N, H, K, m = 129, 1, 100, 60
    z, prototypes, _ = (x.detach().to(dtype) for x in tensors(N, H, K, m, rows=1))
    temperature = torch.full((1, H), 0.5)
    weights = torch.randn(N, H, m).to(dtype)

    def run(z: Tensor, prototypes: Tensor) -> list[Tensor]:
        z, prototypes = z.clone().requires_grad_(), prototypes.clone().requires_grad_()
        terms = ops.readout(z, prototypes, temperature.to(ops.arithmetic_dtype(z.dtype)), None, "full", backend)
        (terms.centroid * weights.to(z.dtype)).sum().backward()
        return [terms.centroid.detach(), z.grad, prototypes.grad]

    exact = run(z.double(), prototypes.double())
    yardstick = [x.to(dtype) for x in run(z.float(), prototypes.float())]
    found = run(z, prototypes)
    for one, ruler, truth in zip(found, yardstick, exact, strict=True):
        assert one.dtype == dtype
        error = (one.double() - truth).square().mean().sqrt()
        ruled = (ruler.double() - truth).square().mean().sqrt()
        assert error <= 4 * ruled


@pytest.mark.parametrize(("N", "K"), [(2048, 512), (20_000, 7)])
def test_the_eager_backend_never_holds_more_of_n_by_k_than_a_block(N, K, monkeypatch):
    monkeypatch.setitem(blocks.BLOCK_NUMBERS, "cpu", 2**13)
    from ddcl.ops import registration

    monkeypatch.setattr(registration, "KEPT_NUMBERS", 0)
    z = torch.randn(N, 1, 3, requires_grad=True)
    prototypes = torch.randn(1, K, 3, requires_grad=True)
    with torch.profiler.profile(profile_memory=True, record_shapes=True, acc_events=True) as profile:
        terms = ops.readout(z, prototypes, torch.ones(1, 1), None, "full", "eager")
        (terms.total.mean() + terms.centroid.sum()).backward()
    largest = max((size for event in profile.events() for size in _sizes(event.input_shapes)), default=0)
    assert 2**12 < largest <= max(2**13, 4 * N)  # blocks, and the four numbers per token the terms are made of


def _sizes(shapes: list[list[int]]) -> list[int]:
    return [int(torch.tensor(shape).prod()) for shape in shapes if shape and all(isinstance(s, int) for s in shape)]


def test_blocks_cover_every_row_once_and_respect_the_bound():
    for rows, width in itertools.product((0, 1, 7, 1000), (1, 64, 10**9)):
        step = blocks.block_rows(rows, width, torch.device("cpu"))
        covered = [i for block in blocks.row_blocks(rows, step) for i in range(rows)[block]]
        assert covered == list(range(rows))
        assert step == 1 or step * width <= blocks.BLOCK_NUMBERS["cpu"]


@pytest.mark.bad_input
def test_asking_for_an_unknown_backend_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"backend: got 'cuda', expected one of 'auto', 'reference', 'eager'"):
        ops.choose("cuda")
    assert ops.choose("auto").reason


def test_nearest_is_exact_for_tiny_distances_far_from_the_origin():
    centers = torch.randn(50, 8) + 1000
    points = centers[torch.randint(50, (200,))] + 1e-3 * torch.randn(200, 8)
    indices, distance = ops.nearest(points, centers)
    exact = (points.double()[:, None] - centers.double()).square().sum(-1)
    torch.testing.assert_close(distance.double(), exact.min(-1).values, rtol=1e-5, atol=0)
    assert torch.equal(indices, exact.argmin(-1))


def test_forward_values_do_not_depend_on_the_upstream_use():
    z, prototypes, temperature = (x.detach() for x in tensors(7, 1, 4, 3, rows=1))
    kept = eager.forward(z, prototypes, temperature, None, keep=7)
    alone = eager.forward(z, prototypes, temperature, None)
    assert all(torch.equal(a, b) for a, b in zip(kept[0], alone[0], strict=True))
    assert alone[1] is None
    torch.testing.assert_close(kept[1].sum(-1), torch.ones(7, 1, dtype=torch.float64))
