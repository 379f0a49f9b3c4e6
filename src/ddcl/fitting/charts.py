"""What a run is drawn from: a map of its rows, which prototypes merge at which temperature, k-means to compare with.

``ddcl fit`` writes all three into the run folder at its end. For a run without them they are made when asked for.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ddcl.fitting.batches import Rows
from ddcl.fitting.comparing import comparison_of
from ddcl.fitting.folder import MAP, PHASES, RunFolder
from ddcl.fitting.heating import MOST_HEATED, heat, heated_rows
from ddcl.fitting.layout import MAPPED_ROWS, Plane, neighbour_map, principal_plane


def write_charts(folder: RunFolder, rows: Rows) -> None:
    """All files, from rows at hand."""
    map_of(folder, rows)
    phases_of(folder, rows)
    comparison_of(folder, rows)


def map_of(folder: RunFolder, rows: Rows | None = None) -> dict[str, Any]:
    """What map.json holds (docs/fit.md); made and written if it is not there.

    Args:
        folder: of a finished run.
        rows: its embeddings; None takes them from where the run has left them.
    """
    if (found := folder.read_json(MAP)) is None:
        found = _map(folder, rows or folder.rows())
        folder.write_json(MAP, found)
    return found


def phases_of(folder: RunFolder, rows: Rows | None = None) -> dict[str, Any] | None:
    """What phases.json holds (docs/fit.md), made and written if it is not there; None for a bank too large to heat.

    Arguments as in :func:`map_of`.
    """
    if folder.settings.prototypes > MOST_HEATED:
        return None
    if (found := folder.read_json(PHASES)) is None:
        found = _phases(folder, rows or folder.rows())
        folder.write_json(PHASES, found)
    return found


def _map(folder: RunFolder, rows: Rows) -> dict[str, Any]:
    seed, prototypes = folder.settings.seed, _prototypes(folder)
    numbers = rows.draw(MAPPED_ROWS, seed)
    z = rows.at(numbers)
    plane = principal_plane(z)
    neighbours = neighbour_map(torch.cat([z, prototypes]), seed)
    return {
        "rows": numbers.tolist(),
        # in full: far from the origin a rounded mean would move everything
        "plane": {"mean": plane.mean.tolist(), "directions": plane.directions.tolist()},
        "pca": {"rows": _plain(plane.of(z)), "prototypes": _plain(plane.of(prototypes))},
        "tsne": None
        if neighbours is None
        else {"rows": _plain(neighbours[: len(z)]), "prototypes": _plain(neighbours[len(z) :])},
        "seed": seed,
    }


def _phases(folder: RunFolder, rows: Rows) -> dict[str, Any]:
    prototypes, reading = _prototypes(folder), folder.config["result"]["reading"]
    sample = rows.sample(heated_rows(len(prototypes)), folder.settings.seed)
    found = heat(sample, prototypes, reading=reading["temperature"], critical=reading["critical"])
    there = map_of(folder, rows)["plane"]
    plane = Plane(torch.tensor(there["mean"]), torch.tensor(there["directions"]))
    return {
        "critical": found.critical,
        "reading": reading["temperature"],
        "temperatures": found.temperatures.tolist(),
        "distinct": found.distinct.tolist(),
        "groups": found.groups.tolist(),
        "positions": _plain(plane.of(found.positions)),
        "rows": found.rows,
        "seed": folder.settings.seed,
    }


def _prototypes(folder: RunFolder) -> Tensor:
    return folder.read_model()["bank.prototypes"][0].float()


def _plain(values: Tensor) -> Any:
    """Nested lists of numbers with five digits, which no eye can tell from more."""
    text = [float(f"{value:.5g}") for value in values.flatten().tolist()]
    return _nested(text, list(values.shape))


def _nested(flat: list[float], shape: list[int]) -> Any:
    if len(shape) == 1:
        return flat
    size = len(flat) // shape[0] if shape[0] else 0
    return [_nested(flat[place * size : (place + 1) * size], shape[1:]) for place in range(shape[0])]
