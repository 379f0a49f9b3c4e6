"""The one place where a backend is picked."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ddcl.ops import reference, registration
from ddcl.ops.types import BACKENDS, Backend, Gradient, TokenTerms
from ddcl.shapes import Bool, Float


class Choice(NamedTuple):
    """A backend and why it was taken."""

    backend: str
    reason: str


def choose(backend: Backend = "auto") -> Choice:
    """The backend that ``readout`` takes, and why."""
    if backend not in BACKENDS:
        raise ValueError(f"backend: got {backend!r}, expected one of {', '.join(map(repr, BACKENDS))}")
    if backend != "auto":
        return Choice(backend, "asked for by name")
    return Choice("eager", "exact, O(N m) memory, runs on every device")


def readout(
    z: Float[Tensor, "N H m"],
    prototypes: Float[Tensor, "H K m"],
    temperature: Float[Tensor, "rows H"],
    mask: Bool[Tensor, " N"] | None,
    gradient: Gradient,
    backend: Backend,
    check_values: bool = True,
) -> TokenTerms:
    """Run the operation on canonical shapes; ``rows`` is 1 or N."""
    if choose(backend).backend == "reference":
        return reference.readout(z, prototypes, temperature, mask, gradient)
    return registration.readout(z, prototypes, temperature, mask, gradient, check_values)
