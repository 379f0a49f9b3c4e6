"""Checks of what users pass in; every message names the argument, what was given and what is accepted."""

from __future__ import annotations

import numbers
from typing import Any

import torch
from torch import Tensor

from ddcl.ops import BACKENDS, GRADIENTS, autocast_enabled, check_positive

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def check_float_tensor(name: str, value: Any) -> None:
    """A tensor of one of the four float types."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: got {type(value).__name__}, expected a torch.Tensor")
    if value.dtype not in FLOATS:
        raise TypeError(f"{name}: got dtype {value.dtype}, expected float64, float32, bfloat16 or float16")


def check_choice(name: str, value: Any, accepted: tuple[str, ...]) -> None:
    """One of a few words."""
    if value not in accepted:
        raise ValueError(f"{name}: got {value!r}, expected one of {', '.join(map(repr, accepted))}")


def check_gradient(gradient: Any) -> None:
    """A gradient mode."""
    check_choice("gradient", gradient, GRADIENTS)


def check_backend(backend: Any) -> None:
    """A backend or ``auto``."""
    check_choice("backend", backend, BACKENDS)


def check_prototypes(prototypes: Any) -> None:
    """A bank (K, m) or banks (H, K, m), not empty."""
    check_float_tensor("prototypes", prototypes)
    shape = tuple(prototypes.shape)
    if prototypes.dim() not in (2, 3):
        raise ValueError(f"prototypes: got shape {shape}, expected (K, m) or, for several heads, (H, K, m)")
    if 0 in shape:
        raise ValueError(f"prototypes: got shape {shape}, expected K >= 1 prototypes of dimension m >= 1")


def check_tokens(z: Any, prototypes: Tensor) -> None:
    """z is (..., m) for a bank (K, m) and (..., H, m) for a bank (H, K, m)."""
    check_float_tensor("z", z)
    *heads, _, dim = prototypes.shape
    expected = (*heads, dim)
    if z.dim() < len(expected) or tuple(z.shape[-len(expected) :]) != expected:
        wanted = "(..., H, m)" if heads else "(..., m)"
        sizes = ", ".join(map(str, expected))
        raise ValueError(
            f"z: got shape {tuple(z.shape)}, expected {wanted} = (..., {sizes}) "
            f"to match prototypes of shape {tuple(prototypes.shape)}{one_head_hint(len(heads) and heads[0])}"
        )
    if z.device != prototypes.device:
        raise ValueError(f"z: is on {z.device} but prototypes are on {prototypes.device}; move one of them")
    if z.dtype != prototypes.dtype and not autocast_enabled(z.device.type):
        raise TypeError(
            f"z: got dtype {z.dtype} but prototypes have {prototypes.dtype}; "
            "convert one of them (under torch.autocast the two may differ)"
        )


def one_head_hint(num_heads: int | None) -> str:
    """What to do when a bank of one head, (1, K, m), meets tokens without a head axis."""
    return "; for a bank of one head pass prototypes[0]" if num_heads == 1 else ""


def check_mask(mask: Any, shape: tuple[int, ...], device: torch.device) -> None:
    """One boolean or integer per token, on the device of the tokens."""
    if not isinstance(mask, Tensor):
        raise TypeError(f"mask: got {type(mask).__name__}, expected a torch.Tensor or None")
    if mask.dtype.is_floating_point or mask.dtype.is_complex:
        raise TypeError(f"mask: got dtype {mask.dtype}, expected bool (or integers), true where a token counts")
    if tuple(mask.shape) != shape:
        raise ValueError(f"mask: got shape {tuple(mask.shape)}, expected {shape}, one entry per token")
    free_to_look = mask.dtype != torch.bool and mask.device.type == "cpu" and not torch.compiler.is_compiling()
    if free_to_look and not bool(((mask == 0) | (mask == 1)).all()):
        raise ValueError(f"mask: got integers from {int(mask.min())} to {int(mask.max())}, expected 0 and 1 only")
    if mask.device != device:
        raise ValueError(f"mask: is on {mask.device} but z is on {device}; move one of them")


def check_temperature(temperature: Any, *, everywhere: bool = False) -> None:
    """A number or float tensor, positive and finite; a tensor off the CPU is looked at only if ``everywhere``."""
    if isinstance(temperature, bool) or not isinstance(temperature, (numbers.Real, Tensor)):
        raise TypeError(f"temperature: got {type(temperature).__name__}, expected a number or a tensor")
    if isinstance(temperature, Tensor):
        if not temperature.dtype.is_floating_point:
            raise TypeError(f"temperature: got dtype {temperature.dtype}, expected a floating point tensor")
        check_positive(temperature, everywhere=everywhere)
    elif not 0 < float(temperature) < float("inf"):
        # the compiler may hold the number as a symbol, which has no text
        given = "" if torch.compiler.is_compiling() else f"got {temperature}, "
        raise ValueError("temperature: " + given + "expected a positive finite number")


def check_count(name: str, value: Any, minimum: int = 1) -> None:
    """An integer that is large enough."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: got {value!r}, expected an integer of at least {minimum}")
    if value < minimum:
        raise ValueError(f"{name}: got {value}, expected an integer of at least {minimum}")


def check_head_temperature(temperature: Any, num_heads: int | None) -> None:
    """A number, a scalar tensor or one per head: what is the same for all tokens."""
    check_temperature(temperature)
    shape = tuple(temperature.shape) if isinstance(temperature, Tensor) else ()
    if shape not in ((), (1,), (num_heads or 1,)):
        accepted = "a scalar" if num_heads is None else f"a scalar or one for each of {num_heads} heads"
        raise ValueError(f"temperature: got shape {shape}, expected {accepted}")


def check_finite(name: str, value: Tensor) -> None:
    """No NaN and no infinity anywhere."""
    if not bool(torch.isfinite(value).all()):
        bad = int((~torch.isfinite(value)).sum())
        raise ValueError(f"{name}: {bad} of {value.numel()} values are NaN or infinite, expected finite numbers")
