"""The ledger as a record that says what it was made with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ddcl.experiments.claims.ledger import Finding
from ddcl.experiments.environment import environment


def record(findings: Iterable[tuple[str, Finding]], *, command: str, seconds: float) -> dict[str, Any]:
    """Versions, device, command and every finding with its family, as plain values."""
    return {
        **environment(command),
        "seconds": round(seconds, 1),
        "claims": [{"family": family, **finding.as_dict()} for family, finding in findings],
    }
