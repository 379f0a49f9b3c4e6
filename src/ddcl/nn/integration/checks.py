"""Checks that the integration modes share."""

from __future__ import annotations

from typing import Any


def check_share(name: str, value: Any) -> None:
    """A number between 0 and 1: how much of a module's part there is."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name}: got {type(value).__name__}, expected a number between 0 and 1")
    if not 0 < value < 1:
        raise ValueError(f"{name}: got {value}, expected a number between 0 and 1, both excluded")
