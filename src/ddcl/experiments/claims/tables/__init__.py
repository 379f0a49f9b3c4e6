"""The rows of the paper's tables and figures, judged from records of ``ddcl reproduce``; nothing is trained here."""

from ddcl.experiments.claims.tables import ablation, debris, hierarchy, listed, readout, vq
from ddcl.experiments.claims.tables.evidence import records_in

CLAIMS = (
    *listed.CLAIMS,
    *debris.CLAIMS,
    *readout.CLAIMS,
    *vq.CLAIMS,
    *hierarchy.CLAIMS,
    *ablation.CLAIMS,
)
"""Every row, table by table."""

__all__ = ["CLAIMS", "records_in"]
