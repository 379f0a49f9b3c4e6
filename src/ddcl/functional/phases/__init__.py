"""Which prototype splits at which temperature."""

from ddcl.functional.phases.cooling import Merge, Split
from ddcl.functional.phases.diagram import PhaseDiagram, cooling_grid, effective_prototypes, phase_diagram

__all__ = ["Merge", "PhaseDiagram", "Split", "cooling_grid", "effective_prototypes", "phase_diagram"]
