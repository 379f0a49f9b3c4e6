"""Autocast kept out of the arithmetic: products inside the operation stay in float32."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")


def autocast_enabled(device_type: str) -> bool:
    """Whether autocast is on for a device; the meta device has none to ask for."""
    return device_type != "meta" and torch.is_autocast_enabled(device_type)


def autocast_off(tensor: Tensor) -> AbstractContextManager[object]:
    """A context in which autocast leaves what is done on the tensor's device alone."""
    if not autocast_enabled(tensor.device.type):
        return nullcontext()
    return torch.autocast(tensor.device.type, enabled=False)


def without_autocast(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function, whose first argument is a tensor, with autocast switched off."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        first = args[0]
        if not isinstance(first, Tensor):
            return function(*args, **kwargs)
        with autocast_off(first):
            return function(*args, **kwargs)

    return run
