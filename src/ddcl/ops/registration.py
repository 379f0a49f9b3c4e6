"""The eager and the fused backend made differentiable: for plain PyTorch, and as torch operators for the compiler.

Plain calls go through an autograd function, the cheapest way in. While torch.compile or torch.export trace, and
on the meta device, the same functions are the opaque operators ``ddcl::readout`` and ``ddcl::readout_backward``,
which pick their backend when they run. Shapes are the canonical ones of ``ops.types``.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from ddcl.ops import eager
from ddcl.ops.blocks import KEPT_NUMBERS
from ddcl.ops.choice import choose, kernels
from ddcl.ops.types import Backend, Gradient, InputGradients, TokenTerms, Upstream, empty_terms
from ddcl.ops.values import check_positive

_SCHEMA = "Tensor z, Tensor prototypes, Tensor temperature, Tensor? mask, str gradient"
_OWN = "str backend, bool check_values"
_UPSTREAM = len(Upstream._fields)


def readout(
    z: Tensor,
    prototypes: Tensor,
    temperature: Tensor,
    mask: Tensor | None,
    gradient: Gradient,
    check_values: bool = True,
    backend: Backend = "auto",
) -> TokenTerms:
    """The operation, differentiable once and visible to the compiler.

    A temperature that only compiled code will see is checked when that code runs.
    """
    if torch.compiler.is_compiling() or z.is_meta:
        return TokenTerms(*_forward(z, prototypes, temperature, mask, gradient, backend, check_values)[:-1])
    fused = choose(backend, z, prototypes).backend == "triton"
    tracked = torch.is_grad_enabled() and (z.requires_grad or prototypes.requires_grad or temperature.requires_grad)
    if not tracked and torch._C._functorch.peek_interpreter_stack() is None:
        return _run(fused, z, prototypes, temperature, mask)[0]
    function = _Fused if fused else _Eager
    return TokenTerms(*function.apply(z, prototypes, temperature, mask, gradient))


def _run(
    fused: bool, z: Tensor, prototypes: Tensor, temperature: Tensor, mask: Tensor | None
) -> tuple[TokenTerms, Tensor | None]:
    """The outputs, and from the fused kernels what their backward pass wants kept."""
    if fused:
        return cast(tuple[TokenTerms, Tensor | None], kernels().forward(z, prototypes, temperature, mask))
    return eager.forward(z, prototypes, temperature, mask)[0], None


class _Differentiable(torch.autograd.Function):
    """What both backends share: a backward pass that is one call, and that has no derivative of its own."""

    @classmethod
    def differentiate(cls, ctx: Any, upstream: Upstream) -> InputGradients:
        raise NotImplementedError

    @classmethod
    def backward(cls, ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        upstream = Upstream(*grads[:_UPSTREAM])
        if torch.is_grad_enabled():  # create_graph=True
            return (*_OnceOnly.apply(cls, ctx, upstream, *ctx.saved_tensors, *upstream), None, None)
        return (*cls.differentiate(ctx, upstream), None, None)


class _Eager(_Differentiable):
    """The operation in plain PyTorch; q, as far as it may be held, is kept for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, prototypes: Tensor, temperature: Tensor, mask: Tensor | None, gradient: Gradient
    ) -> tuple[Tensor, ...]:
        needs_q = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        rows = min(z.shape[0], KEPT_NUMBERS // (prototypes.shape[0] * prototypes.shape[1]))
        terms, kept = eager.forward(z, prototypes, temperature, mask, rows if needs_q else 0)
        ctx.gradient = gradient
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(terms.indices)
        ctx.save_for_backward(z, prototypes, temperature, mask, kept)
        return tuple(terms)

    @classmethod
    def differentiate(cls, ctx: Any, upstream: Upstream) -> InputGradients:
        z, prototypes, temperature, mask, kept = ctx.saved_tensors
        inputs = (z, prototypes, temperature, mask, ctx.gradient)
        return eager.backward(*inputs, upstream, ctx.needs_input_grad[:3], kept)


class _Fused(_Differentiable):
    """The operation in fused kernels, which compute q again in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, prototypes: Tensor, temperature: Tensor, mask: Tensor | None, gradient: Gradient
    ) -> tuple[Tensor, ...]:
        terms, level = kernels().forward(z, prototypes, temperature, mask)
        ctx.gradient = gradient
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(terms.indices)
        ctx.save_for_backward(
            z, prototypes, temperature, mask, terms.centroid, terms.entropy, terms.indices, level
        )  # fmt: skip
        return tuple(terms)

    @classmethod
    def differentiate(cls, ctx: Any, upstream: Upstream) -> InputGradients:
        *inputs, centroid, entropy, indices, level = ctx.saved_tensors
        found = kernels().backward(
            *inputs, ctx.gradient, upstream, ctx.needs_input_grad[:3], (centroid, entropy, indices), level
        )
        return cast(InputGradients, found)


class _OnceOnly(torch.autograd.Function):
    """The backward pass as a node that explains itself when its own derivative is asked for."""

    @staticmethod
    def forward(
        ctx: Any, function: type[_Differentiable], of: Any, upstream: Upstream, *tracked: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        return tuple(function.differentiate(of, upstream))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        return _refuse_second_derivative(ctx, *grads)


def _refuse_second_derivative(ctx: Any, *grads: Tensor | None) -> Any:
    raise RuntimeError(
        "this backend is differentiable once; for second derivatives (Hessians, Jacobians of gradients) "
        "call readout(..., backend='reference')"
    )


@torch.library.custom_op(
    "ddcl::readout",
    mutates_args=(),
    schema=f"({_SCHEMA}, {_OWN}) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def _forward(
    z: Tensor,
    prototypes: Tensor,
    temperature: Tensor,
    mask: Tensor | None,
    gradient: str,
    backend: str,
    check_values: bool,
) -> tuple[Tensor, ...]:
    check_positive(temperature, everywhere=check_values)
    fused = choose(cast(Backend, backend), z, prototypes).backend == "triton"
    terms, level = _run(fused, z, prototypes, temperature, mask)
    return (*terms, z.new_empty(0) if level is None else level)


@_forward.register_fake
def _(
    z: Tensor,
    prototypes: Tensor,
    temperature: Tensor,
    mask: Tensor | None,
    gradient: str,
    backend: str,
    check_values: bool,
) -> tuple[Tensor, ...]:
    fused = choose(cast(Backend, backend), z, prototypes).backend == "triton"
    level = z.new_empty(0)
    if fused and not kernels().Tiles.choose(z, prototypes).resident:
        level = torch.empty(z.shape[1], z.shape[0], dtype=torch.float32, device=z.device)
    return (*empty_terms(z), level)


@torch.library.custom_op(
    "ddcl::readout_backward",
    mutates_args=(),
    schema=f"({_SCHEMA}, str backend, Tensor?[] upstream, bool[] needed, Tensor[] kept) -> (Tensor, Tensor, Tensor)",
)
def _backward(
    z: Tensor,
    prototypes: Tensor,
    temperature: Tensor,
    mask: Tensor | None,
    gradient: str,
    backend: str,
    upstream: list[Tensor | None],
    needed: list[bool],
    kept: list[Tensor],
) -> tuple[Tensor, ...]:
    inputs = (z, prototypes, temperature, mask, cast(Gradient, gradient), Upstream(*upstream))
    wanted = cast(tuple[bool, bool, bool], tuple(needed))
    if choose(cast(Backend, backend), z, prototypes).backend == "triton":
        *terms, level = kept
        found = kernels().backward(*inputs, wanted, tuple(terms), level if level.numel() else None)
    else:
        found = eager.backward(*inputs, wanted)
    # an operator returns tensors only: an empty one stands for "not needed"
    return tuple(z.new_empty(0) if grad is None else grad for grad in found)


@_backward.register_fake
def _(
    z: Tensor,
    prototypes: Tensor,
    temperature: Tensor,
    mask: Tensor | None,
    gradient: str,
    backend: str,
    upstream: list[Tensor | None],
    needed: list[bool],
    kept: list[Tensor],
) -> tuple[Tensor, ...]:
    inputs = (z, prototypes, temperature)
    return tuple(
        torch.empty_like(x, memory_format=torch.contiguous_format) if flag else z.new_empty(0)
        for x, flag in zip(inputs, needed, strict=True)
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    z, prototypes, temperature, mask, ctx.gradient, ctx.backend, _ = inputs
    terms, level = TokenTerms(*output[:-1]), output[-1]
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(terms.indices, level)
    ctx.save_for_backward(z, prototypes, temperature, mask, terms.centroid, terms.entropy, terms.indices, level)


def _differentiate(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    *inputs, centroid, entropy, indices, level = ctx.saved_tensors
    needed = list(ctx.needs_input_grad[:3])
    kept = [centroid, entropy, indices, level]
    found = _backward(*inputs, ctx.gradient, ctx.backend, list(grads[:_UPSTREAM]), needed, kept)
    wanted = (grad if flag else None for grad, flag in zip(found, needed, strict=True))
    return (*wanted, None, None, None, None)


_forward.register_autograd(_differentiate, setup_context=_save)
_backward.register_autograd(_refuse_second_derivative)
