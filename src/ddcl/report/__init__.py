"""Pictures and tables of what was computed elsewhere; nothing here trains. Needs the extra ``ddcl[report]``."""

from ddcl.report.phase_diagram import draw_phase_diagram
from ddcl.report.roofline import draw_roofline

__all__ = ["draw_phase_diagram", "draw_roofline"]
