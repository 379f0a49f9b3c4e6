"""Training: time scales and temperatures."""

from ddcl.training.groups import banks_of, param_groups
from ddcl.training.schedules import ExponentialSchedule

__all__ = ["ExponentialSchedule", "banks_of", "param_groups"]
