"""The one place where a backend is picked."""

from __future__ import annotations

from torch import Tensor

from ddcl.ops import reference, registration
from ddcl.ops.types import Backend, Gradient, TokenTerms
from ddcl.shapes import Bool, Float


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
    if backend == "reference":
        return reference.readout(z, prototypes, temperature, mask, gradient)
    return registration.readout(z, prototypes, temperature, mask, gradient, check_values, backend)
