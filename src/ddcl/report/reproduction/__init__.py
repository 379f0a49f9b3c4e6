"""Pictures of the reproductions, one module per study: they read records, and never train."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from ddcl.experiments.reproduce import STUDIES
from ddcl.experiments.reproduce.record import read
from ddcl.experiments.reproduce.running import record_file
from ddcl.experiments.reproduce.study import Done


def draw(name: str, folder: Path, into: Path | None = None, finished: Sequence[Done] | None = None) -> list[Path]:
    """Draw all pictures of a study, into the folder of its record or another one; their paths.

    Args:
        name: of the study.
        folder: where its record is.
        into: where the pictures go; None: beside the record.
        finished: the runs to draw; None: all of the record.
    """
    if name not in STUDIES:
        raise ValueError(f"study: got {name!r}, expected one of {', '.join(STUDIES)}")
    runs = read(record_file(folder, name)) if finished is None else finished
    module = import_module(f"ddcl.report.reproduction.{name}")
    paths: list[Path] = module.draw(runs, folder / f"{name}-arrays", into or folder)
    return paths
