"""The ledger as a record that says what it was made with."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ddcl.experiments.claims.ledger import Finding
from ddcl.version import __version__


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def record(findings: Iterable[tuple[str, Finding]], *, command: str, seconds: float) -> dict[str, Any]:
    """Versions, device, command and every finding with its family, as plain values."""
    return {
        "command": command,
        "versions": {
            "ddcl": __version__,
            "python": platform.python_version(),
            **{package: _version(package) for package in ("torch", "numpy", "scikit-learn")},
        },
        "device": f"cpu, {platform.machine()}, one thread",
        "seconds": round(seconds, 1),
        "claims": [{"family": family, **finding.as_dict()} for family, finding in findings],
    }
