"""The ledger of what the theory says: each claim a small experiment, its verdict computed from the numbers."""

from ddcl.experiments.claims import (
    collapse,
    decomposition,
    dynamics,
    forces,
    hierarchy,
    linearisation,
    lyapunov,
    quantisation,
    tables,
)
from ddcl.experiments.claims.ledger import Claim, Finding, Ledger, Outcome, Verdict

LEDGER = Ledger(
    {
        "decomposition": decomposition.CLAIMS,
        "forces": forces.CLAIMS,
        "collapse": collapse.CLAIMS,
        "lyapunov": lyapunov.CLAIMS,
        "dynamics": (*dynamics.CLAIMS, *linearisation.CLAIMS),
        "hierarchy": hierarchy.CLAIMS,
        "quantisation": quantisation.CLAIMS,
        "tables": tables.CLAIMS,
    }
)
"""All claims."""

__all__ = ["LEDGER", "Claim", "Finding", "Ledger", "Outcome", "Verdict"]
