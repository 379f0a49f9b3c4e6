"""What a machine has for the library, and whether the library computes right on it."""

from ddcl.experiments.health.checks import Check, self_test
from ddcl.experiments.health.findings import Findings, examine

__all__ = ["Check", "Findings", "examine", "self_test"]
