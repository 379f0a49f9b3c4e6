"""Before anything is timed: every backend against the definition, on small ragged sizes and on those to be measured.

The yardstick is a float32 run rounded to the dtype: a backend may err by at most four times as much, in RMS, in every
output and gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from typing import NamedTuple, cast

import torch
from torch import Tensor

from ddcl import ops
from ddcl.experiments.kernels.memory import release
from ddcl.experiments.kernels.shapes import Shape

FACTOR = 4.0
GRADIENTS: tuple[ops.Gradient, ...] = ("full", "stop")
RAGGED = (Shape(63, 5, 7), Shape(129, 61, 101), Shape(515, 64, 33), Shape(67, 130, 1030))
_TERMS = ops.TokenTerms._fields[:-1]
_REFERENCE_NUMBERS = 2**22  # rows x K x m that the definition holds at once
_FEW_ROWS = 64


class Outputs(NamedTuple):
    """All outputs and gradients of a run by name, and the indices."""

    values: dict[str, Tensor]
    indices: Tensor


class Given(NamedTuple):
    """Inputs in the dtype to be checked, canonical shapes, and a gradient for some of the outputs."""

    z: Tensor
    prototypes: Tensor
    temperature: float
    upstream: dict[str, Tensor]


def check_ragged(backends: Iterable[str], dtype: torch.dtype, device: torch.device) -> Iterator[str]:
    """What is wrong at small sizes, in both modes, with a gradient for every output."""
    for number, shape in enumerate(RAGGED):
        given = _random(shape, dtype, device, _TERMS, seed=number)
        for gradient in GRADIENTS:
            exact = _in_chunks(given, gradient)
            yield from _compare(backends, given, gradient, exact, f"{shape} {gradient}")


def check_measured(backends: Iterable[str], shape: Shape, dtype: torch.dtype, device: torch.device) -> Iterator[str]:
    """What is wrong at a size to be measured, everywhere in it.

    The definition is out of reach there: blocks in float64 stand for it, after being held against it in a few rows.
    """
    given = _random(shape, dtype, device, ("centroid", "total"), seed=len(RAGGED))
    exact = _run("eager", given, "full", torch.float64)
    rows = torch.linspace(0, shape.N - 1, min(_FEW_ROWS, shape.N), device=device).long()
    upstream = {name: x[rows] for name, x in given.upstream.items()}
    defined = _in_chunks(Given(given.z[rows], given.prototypes, given.temperature, upstream), "full")
    for name, values in defined.values.items():
        if name != "grad prototypes" and not torch.allclose(exact.values[name][rows], values, rtol=1e-8, atol=1e-8):
            yield f"{shape}: blocks in float64 differ from the definition in {name}"
    yield from _compare(backends, given, "full", exact, str(shape))
    del given, exact
    release(device)


def _random(shape: Shape, dtype: torch.dtype, device: torch.device, terms: Iterable[str], seed: int) -> Given:
    source = torch.Generator(device).manual_seed(seed)

    def random(*size: int) -> Tensor:
        return torch.randn(*size, device=device, generator=source)

    N, m, K = shape
    upstream = {name: random(N, 1, m).to(dtype) if name == "centroid" else random(N, 1) for name in terms}
    return Given(random(N, 1, m).to(dtype), random(1, K, m).to(dtype), 2 * m / 8, upstream)


def _run(backend: str, given: Given, gradient: ops.Gradient, dtype: torch.dtype) -> Outputs:
    """Outputs and gradients with the inputs taken to ``dtype`` first."""
    z, prototypes = (x.to(dtype).requires_grad_() for x in (given.z.detach(), given.prototypes.detach()))
    temperature = torch.full((1, 1), given.temperature, dtype=ops.arithmetic_dtype(dtype), device=z.device)
    terms = ops.readout(z, prototypes, temperature, None, gradient, cast(ops.Backend, backend))
    chosen = [getattr(terms, name) for name in given.upstream]
    weights = [weight.to(output.dtype) for weight, output in zip(given.upstream.values(), chosen, strict=True)]
    pairs = [(output, weight) for output, weight in zip(chosen, weights, strict=True) if output.requires_grad]
    outputs, upstream = zip(*pairs, strict=True)
    grad_z, grad_prototypes = torch.autograd.grad(outputs, (z, prototypes), upstream)
    values = {name: getattr(terms, name).detach() for name in _TERMS}
    return Outputs({**values, "grad z": grad_z, "grad prototypes": grad_prototypes}, terms.indices)


def _in_chunks(given: Given, gradient: ops.Gradient) -> Outputs:
    """The definition in float64, a few rows at a time; the gradient of the bank is the sum over them."""
    K, m = given.prototypes.shape[1:]
    step = max(1, _REFERENCE_NUMBERS // (K * m))
    parts = []
    for start in range(0, len(given.z), step):
        rows = slice(start, start + step)
        upstream = {name: x[rows] for name, x in given.upstream.items()}
        part = Given(given.z[rows], given.prototypes, given.temperature, upstream)
        parts.append(_run("reference", part, gradient, torch.float64))
    values = {
        name: reduce(torch.add, (part.values[name] for part in parts))
        if name == "grad prototypes"
        else torch.cat([part.values[name] for part in parts])
        for name in parts[0].values
    }
    return Outputs(values, torch.cat([part.indices for part in parts]))


def _compare(
    backends: Iterable[str], given: Given, gradient: ops.Gradient, exact: Outputs, where: str
) -> Iterator[str]:
    dtype = given.z.dtype
    ruler = _run("eager", given, gradient, torch.float32)
    allowed = {name: FACTOR * _rms(ruler.values[name].to(dtype), exact.values[name]) for name in exact.values}
    for backend in backends:
        try:
            found = _run(backend, given, gradient, dtype)
        except Exception as error:
            yield f"{backend} {where}: {type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
            continue
        for name, values in found.values.items():
            error_found = _rms(values, exact.values[name])
            if not error_found <= allowed[name]:  # NaN is red too
                yield f"{backend} {where}: {name} errs by {error_found:.3g} in RMS, allowed {allowed[name]:.3g}"
        chosen = given.prototypes[0].double()[found.indices.clamp_min(0)]
        farther = (given.z.double() - chosen).square().sum(-1)
        excess = _rms(farther, exact.values["quantization"])
        if bool((found.indices < 0).any()) or not excess <= allowed["quantization"]:
            yield f"{backend} {where}: indices are not the nearest, by {excess:.3g} in RMS"


def _rms(values: Tensor, exact: Tensor) -> float:
    return float((values.double() - exact).square().mean().sqrt())
