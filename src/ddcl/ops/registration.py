"""The eager backend made differentiable: for plain PyTorch, and as torch operators for the compiler.

Plain calls go through an autograd function, the cheapest way in. While torch.compile or torch.export trace, and
on the meta device, the same two functions are the opaque operators ``ddcl::readout`` and
``ddcl::readout_backward``. Shapes are the canonical ones of ``ops.types``.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from ddcl.ops import eager
from ddcl.ops.blocks import KEPT_NUMBERS
from ddcl.ops.types import Gradient, TokenTerms
from ddcl.ops.values import check_positive

_SCHEMA = "Tensor z, Tensor prototypes, Tensor temperature, Tensor? mask, str gradient"
_CHECKED_SCHEMA = f"{_SCHEMA}, bool check_values"


def readout(
    z: Tensor,
    prototypes: Tensor,
    temperature: Tensor,
    mask: Tensor | None,
    gradient: Gradient,
    check_values: bool = True,
) -> TokenTerms:
    """The eager backend, differentiable once and visible to the compiler.

    A temperature that only compiled code will see is checked when that code runs.
    """
    if torch.compiler.is_compiling() or z.is_meta:
        return TokenTerms(*_forward(z, prototypes, temperature, mask, gradient, check_values))
    tracked = torch.is_grad_enabled() and (z.requires_grad or prototypes.requires_grad or temperature.requires_grad)
    if not tracked and torch._C._functorch.peek_interpreter_stack() is None:
        return eager.forward(z, prototypes, temperature, mask)[0]
    return TokenTerms(*_Eager.apply(z, prototypes, temperature, mask, gradient))


class _Eager(torch.autograd.Function):
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

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        *inputs, kept = ctx.saved_tensors
        upstream = eager.Upstream(*grads[: len(eager.Upstream._fields)])
        arguments = (*inputs, ctx.gradient, upstream, ctx.needs_input_grad[:3], kept)
        if torch.is_grad_enabled():  # create_graph=True
            return (*_OnceOnly.apply(arguments, *inputs, *upstream), None, None)
        return (*eager.backward(*arguments), None, None)


class _OnceOnly(torch.autograd.Function):
    """The backward pass as a node that explains itself when its own derivative is asked for."""

    @staticmethod
    def forward(ctx: Any, arguments: Any, *tracked: Tensor | None) -> tuple[Tensor | None, ...]:
        return tuple(eager.backward(*arguments))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        return _refuse_second_derivative(ctx, *grads)


def _refuse_second_derivative(ctx: Any, *grads: Tensor | None) -> Any:
    raise RuntimeError(
        "backend 'eager' is differentiable once; for second derivatives (Hessians, Jacobians of gradients) "
        "call readout(..., backend='reference')"
    )


@torch.library.custom_op(
    "ddcl::readout",
    mutates_args=(),
    schema=f"({_CHECKED_SCHEMA}) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def _forward(
    z: Tensor, prototypes: Tensor, temperature: Tensor, mask: Tensor | None, gradient: str, check_values: bool
) -> tuple[Tensor, ...]:
    check_positive(temperature, everywhere=check_values)
    return tuple(eager.forward(z, prototypes, temperature, mask)[0])


@_forward.register_fake
def _(
    z: Tensor, prototypes: Tensor, temperature: Tensor, mask: Tensor | None, gradient: str, check_values: bool
) -> tuple[Tensor, ...]:
    return tuple(eager.empty_terms(z))


@torch.library.custom_op(
    "ddcl::readout_backward",
    mutates_args=(),
    schema=f"({_SCHEMA}, Tensor?[] upstream, bool[] needed) -> (Tensor, Tensor, Tensor)",
)
def _backward(
    z: Tensor,
    prototypes: Tensor,
    temperature: Tensor,
    mask: Tensor | None,
    gradient: str,
    upstream: list[Tensor | None],
    needed: list[bool],
) -> tuple[Tensor, ...]:
    found = eager.backward(
        z,
        prototypes,
        temperature,
        mask,
        cast(Gradient, gradient),
        eager.Upstream(*upstream),
        cast(tuple[bool, bool, bool], tuple(needed)),
    )
    # an operator returns tensors only: an empty one stands for "not needed"
    return tuple(z.new_empty(0) if grad is None else grad for grad in found)


@_backward.register_fake
def _(
    z: Tensor,
    prototypes: Tensor,
    temperature: Tensor,
    mask: Tensor | None,
    gradient: str,
    upstream: list[Tensor | None],
    needed: list[bool],
) -> tuple[Tensor, ...]:
    return tuple(
        torch.empty_like(like, memory_format=torch.contiguous_format) if wanted else z.new_empty(0)
        for like, wanted in zip((z, prototypes, temperature), needed, strict=True)
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    z, prototypes, temperature, mask, ctx.gradient, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[-1])
    ctx.save_for_backward(z, prototypes, temperature, mask)


def _differentiate(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    z, prototypes, temperature, mask = ctx.saved_tensors
    needed = list(ctx.needs_input_grad[:3])
    upstream = list(grads[: len(eager.Upstream._fields)])
    found = _backward(z, prototypes, temperature, mask, ctx.gradient, upstream, needed)
    wanted = (grad if flag else None for grad, flag in zip(found, needed, strict=True))
    return (*wanted, None, None, None)


_forward.register_autograd(_differentiate, setup_context=_save)
_backward.register_autograd(_refuse_second_derivative)
