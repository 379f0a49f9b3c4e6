"""The collapse battery: which recipes survive which data, encoders and rates."""

from ddcl.experiments.collapse import battery
from ddcl.experiments.collapse.cases import ABOUT, METHODS, Case, grid, quick_grid
from ddcl.experiments.collapse.running import Outcome, run

__all__ = ["ABOUT", "METHODS", "Case", "Outcome", "battery", "grid", "quick_grid", "run"]
