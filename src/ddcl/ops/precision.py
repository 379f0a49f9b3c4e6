"""Autocast kept out of the arithmetic: products inside the operation stay in float32."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")


def autocast_enabled(device_type: str) -> bool:
    """Whether autocast is on for a device; the meta device has none to ask for."""
    return device_type != "meta" and torch.is_autocast_enabled(device_type)


def without_autocast(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function, whose first argument is a tensor, with autocast switched off."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        first = args[0]
        if not isinstance(first, Tensor) or not autocast_enabled(first.device.type):
            return function(*args, **kwargs)
        with torch.autocast(first.device.type, enabled=False):
            return function(*args, **kwargs)

    return run
