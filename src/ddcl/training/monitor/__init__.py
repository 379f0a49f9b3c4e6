"""Is the bank healthy, and what to do if not."""

from ddcl.training.monitor.conditions import (
    CONDITIONS,
    CollapseError,
    CollapseWarning,
    Condition,
    Trouble,
    repairing,
)
from ddcl.training.monitor.measures import HeadMeasure
from ddcl.training.monitor.monitor import CollapseMonitor, EpochReport

__all__ = [
    "CONDITIONS",
    "CollapseError",
    "CollapseMonitor",
    "CollapseWarning",
    "Condition",
    "EpochReport",
    "HeadMeasure",
    "Trouble",
    "repairing",
]
