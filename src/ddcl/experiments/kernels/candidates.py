"""What is measured: the library's backends, the formula, attention, and the mechanisms of other packages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple, cast

import torch
from torch import nn

from ddcl import ops
from ddcl.experiments.kernels.formulas import attention, plain
from ddcl.experiments.kernels.problem import Problem, Tensors
from ddcl.functional import readout
from ddcl.rivals import EMA, STRAIGHT_THROUGH, HardQuantizer, LatentReader, SlotReader
from ddcl.rivals.vector_quantize import Kind

Call = Callable[[Tensors], object]
_VQ, _SLOTS, _PERCEIVER = "vector-quantize-pytorch", "slot-attention", "perceiver-pytorch"
BACKENDS: tuple[str, ...] = tuple(name for name in ops.BACKENDS if name not in ("auto", "reference"))


class Calls(NamedTuple):
    """One candidate at one size: the forward pass, and a training step from inputs to the gradients of all of them."""

    forward: Call
    step: Call


@dataclass(frozen=True)
class Candidate:
    """Something to measure."""

    name: str
    about: str
    """What it computes, where that is not the whole operation; else how it is called."""
    make: Callable[[Problem], Calls]
    wide: tuple[float, float] = (0.0, 0.0)
    """About how many bytes the forward pass and the step hold for each of N x K: what cannot fit is not tried."""
    in_graph: bool = True
    """Whether a CUDA graph may record it. Packages that were not written for it are timed call by call alone."""
    most_prototypes: int | None = None


def _library(backend: str, problem: Problem) -> Calls:
    """``ddcl.readout`` as users call it."""
    one = torch.ones((), device=problem.device)
    call = partial(readout, temperature=problem.temperature, backend=cast(ops.Backend, backend))

    def forward(given: Tensors) -> object:
        with torch.no_grad():
            return call(given.z, given.prototypes)

    def step(given: Tensors) -> object:
        found = call(given.z, given.prototypes)
        outputs = (found.centroid, found.loss.total)
        return torch.autograd.grad(outputs, (given.z, given.prototypes), (given.upstream, one.to(outputs[1].dtype)))

    return Calls(forward, step)


def _operation(backend: str, problem: Problem) -> Calls:
    """``ddcl.ops.readout`` on its canonical shapes: the operation without what the public function adds."""
    N = problem.shape.N
    dtype = ops.arithmetic_dtype(problem.dtype)
    temperature = torch.full((1, 1), problem.temperature, dtype=dtype, device=problem.device)
    per_token = torch.full((), 1 / N, dtype=dtype, device=problem.device).expand(N, 1)

    def call(given: Tensors) -> ops.TokenTerms:
        z, prototypes = given.z.unsqueeze(1), given.prototypes.unsqueeze(0)
        return ops.readout(z, prototypes, temperature, None, "full", cast(ops.Backend, backend), False)

    def forward(given: Tensors) -> object:
        with torch.no_grad():
            return call(given)

    def step(given: Tensors) -> object:
        found = call(given)
        outputs = (found.centroid, found.total)
        return torch.autograd.grad(outputs, (given.z, given.prototypes), (given.upstream.unsqueeze(1), per_token))

    return Calls(forward, step)


def _formula(function: Callable[..., Any], problem: Problem) -> Calls:
    one = torch.ones((), device=problem.device)

    def forward(given: Tensors) -> object:
        with torch.no_grad():
            return function(given.z, given.prototypes, problem.temperature)

    def step(given: Tensors) -> object:
        found = function(given.z, given.prototypes, problem.temperature)
        return torch.autograd.grad((found.centroid, found.loss), (given.z, given.prototypes), (given.upstream, one))

    return Calls(forward, step)


def _compiled(problem: Problem) -> Calls:
    torch._dynamo.reset()  # or the compiler, having seen other sizes, no longer builds this one in
    return _formula(torch.compile(plain, dynamic=False, fullgraph=True), problem)


def _attention(problem: Problem) -> Calls:
    def forward(given: Tensors) -> object:
        with torch.no_grad():
            return attention(given.z, given.prototypes, problem.temperature)

    def step(given: Tensors) -> object:
        found = attention(given.z, given.prototypes, problem.temperature)
        return torch.autograd.grad(found, (given.z, given.prototypes), given.upstream)

    return Calls(forward, step)


def _quantizer(kind: Kind, problem: Problem) -> Calls:
    """A hard quantiser; its codes stay in float32, as the package keeps them."""
    module = HardQuantizer(kind, problem.shape.K, problem.shape.m).to(problem.device).train()
    learned = [parameter for parameter in module.parameters() if parameter.requires_grad]

    def forward(given: Tensors) -> object:
        with torch.no_grad():
            return module(given.z)

    def step(given: Tensors) -> object:
        quantized, _, loss = module(given.z)
        upstream = (given.upstream.to(quantized.dtype), torch.ones_like(loss))
        return torch.autograd.grad((quantized, loss), (given.z, *learned), upstream)

    return Calls(forward, step)


def _pooling(make: Callable[[int, int], nn.Module], problem: Problem) -> Calls:
    """A module that gives K vectors for all tokens together; its gradients are those of tokens and parameters."""
    module = make(problem.shape.K, problem.shape.m).to(device=problem.device, dtype=problem.dtype).train()
    learned = list(module.parameters())
    upstream = torch.randn(problem.shape.K, problem.shape.m, device=problem.device).to(problem.dtype)

    def forward(given: Tensors) -> object:
        with torch.no_grad():
            return module(given.z)

    def step(given: Tensors) -> object:
        return torch.autograd.grad(module(given.z), (given.z, *learned), upstream)

    return Calls(forward, step)


def _from(package: str, what: str) -> str:
    """What it is, with the version that is installed."""
    try:
        return f"{what}, {package} {version(package)}"
    except ModuleNotFoundError:
        return f"{what}, {package}"


def candidates() -> dict[str, Candidate]:
    """All of them, in the order they are measured."""
    found = [
        Candidate("plain", "the formula with autograd, products in the dtype", partial(_formula, plain), (20, 32)),
        # a run is to take minutes, so the largest bank is left to the formula as it is
        Candidate("compiled", "the same by torch.compile, each size afresh", _compiled, (12, 20), most_prototypes=8192),
        Candidate("sdpa", "mu alone, by scaled_dot_product_attention", _attention),
    ]
    for backend in BACKENDS:
        found.append(Candidate(f"readout:{backend}", "ddcl.readout as users call it", partial(_library, backend)))
        found.append(Candidate(f"operation:{backend}", "the operation alone", partial(_operation, backend)))
    rivals: list[tuple[str, str, Callable[[Problem], Calls], tuple[float, float]]] = [
        ("vq-ema", _from(_VQ, "hard codes"), partial(_quantizer, EMA), (16, 26)),
        ("vq-learnable", _from(_VQ, "hard codes by gradient"), partial(_quantizer, STRAIGHT_THROUGH), (16, 26)),
        ("slot-attention", _from(_SLOTS, "K slots, nothing per token"), partial(_pooling, SlotReader), (12, 20)),
        ("perceiver", _from(_PERCEIVER, "K latents, nothing per token"), partial(_pooling, LatentReader), (8, 12)),
    ]
    found += [Candidate(*rival, in_graph=False) for rival in rivals]
    return {one.name: one for one in found}


def usual(device: torch.device, *, quick: bool) -> list[str]:
    """Those measured if none are named: on a CPU without Triton's, in a quick run without the compiler."""
    left_out = {f"{call}:triton" for call in ("readout", "operation")} if device.type == "cpu" else set()
    return [name for name in candidates() if name not in left_out and not (quick and name == "compiled")]
