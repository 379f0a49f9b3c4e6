"""One operation, several backends, one dispatcher."""

from ddcl.ops.centring import bank_center
from ddcl.ops.choice import Choice, choose
from ddcl.ops.dispatch import readout
from ddcl.ops.nearest import nearest, squared_distances
from ddcl.ops.precision import autocast_enabled, autocast_off, without_autocast
from ddcl.ops.types import BACKENDS, GRADIENTS, Backend, Gradient, TokenTerms, arithmetic_dtype
from ddcl.ops.values import check_positive

__all__ = [
    "BACKENDS",
    "GRADIENTS",
    "Backend",
    "Choice",
    "Gradient",
    "TokenTerms",
    "arithmetic_dtype",
    "autocast_enabled",
    "autocast_off",
    "bank_center",
    "check_positive",
    "choose",
    "nearest",
    "readout",
    "squared_distances",
    "without_autocast",
]
