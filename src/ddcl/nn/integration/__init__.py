"""Prototypes inside a network: after, beside or in the place of its parts, and in or out of one that is there."""

from ddcl.nn.integration.insertion import INTEGRATION_MODES, Insertion, IntegrationMode, insert, remove
from ddcl.nn.integration.parallel import ParallelPrototypes
from ddcl.nn.integration.prototype_norm import PrototypeNorm
from ddcl.nn.integration.reading import TokenReader
from ddcl.nn.integration.serial import SerialPrototypes

__all__ = [
    "INTEGRATION_MODES",
    "Insertion",
    "IntegrationMode",
    "ParallelPrototypes",
    "PrototypeNorm",
    "SerialPrototypes",
    "TokenReader",
    "insert",
    "remove",
]
