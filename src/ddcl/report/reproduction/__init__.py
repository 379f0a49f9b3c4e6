"""Pictures of the reproductions, one module per study: they read records, and never train."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from ddcl.experiments.reproduce import STUDIES
from ddcl.experiments.reproduce.record import read
from ddcl.experiments.reproduce.running import record_file


def draw(name: str, folder: Path, into: Path | None = None) -> list[Path]:
    """Draw all pictures of a study from its record in a folder, into the same or another one; their paths."""
    if name not in STUDIES:
        raise ValueError(f"study: got {name!r}, expected one of {', '.join(STUDIES)}")
    finished = read(record_file(folder, name))
    module = import_module(f"ddcl.report.reproduction.{name}")
    paths: list[Path] = module.draw(finished, folder / f"{name}-arrays", into or folder)
    return paths
