"""Training: time scales and temperatures."""

from ddcl.training.critical import CriticalSchedule
from ddcl.training.groups import banks_of, param_groups
from ddcl.training.moments import RunningMoments
from ddcl.training.schedules import ExponentialSchedule
from ddcl.training.soft_kmeans import SoftKMeans

__all__ = ["CriticalSchedule", "ExponentialSchedule", "RunningMoments", "SoftKMeans", "banks_of", "param_groups"]
