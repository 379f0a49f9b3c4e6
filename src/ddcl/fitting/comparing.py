"""The trained bank beside k-means on the same embeddings, at the same number of prototypes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from torch import Tensor

from ddcl.fitting.batches import Rows
from ddcl.fitting.folder import ASSIGNMENTS, COMPARISON, RunFolder
from ddcl.ops import squared_distances
from ddcl.rivals.clusters import RESTARTS, cluster_scores, kmeans_baseline

LEARNED_ROWS = 10_240
"""The most rows k-means learns from; beyond, it would take longer than everything else."""
FEW_RESTARTS = 3
"""Where there are more rows than that: a fit of a million must not wait for what it is compared with."""
_PIECE = 4096


def comparison_of(folder: RunFolder, rows: Rows | None = None) -> dict[str, Any] | None:
    """What comparison.json holds (docs/fit.md), made and written if it is not there; None without scikit-learn.

    Args:
        folder: of a finished run.
        rows: its embeddings; None takes them from where the run has left them.
    """
    if (found := folder.read_json(COMPARISON)) is None:
        try:
            found = _compare(folder, rows or folder.rows())
        except ImportError:
            return None
        folder.write_json(COMPARISON, found)
    return found


def _compare(folder: RunFolder, rows: Rows) -> dict[str, Any]:
    """Both are measured on the same rows: those held out, which neither has seen, or else a draw from all."""
    settings = folder.settings
    labels, held = _labels(folder)
    everything = np.arange(len(rows))
    learnable = everything if held is None else np.setdiff1d(everything, held)
    learned = rows.draw(max(LEARNED_ROWS, settings.prototypes), settings.seed, learnable)
    restarts = RESTARTS if len(learned) == len(learnable) else FEW_RESTARTS
    measured = held
    if measured is None or not len(measured):
        measured = rows.draw(LEARNED_ROWS, settings.seed + 1, learnable)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fewer distinct rows than clusters: the figures stand for themselves
        rival = kmeans_baseline(rows.at(learned), settings.prototypes, settings.seed, restarts)
    banks = {"bank": folder.read_model()["bank.prototypes"][0].float()}
    banks["kmeans"] = banks["bank"].new_tensor(rival.cluster_centers_)
    figures = {name: _figures(bank, rows, measured, labels) for name, bank in banks.items()}
    return {
        **figures,
        "learned_rows": len(learned),
        "learnable_rows": len(learnable),
        "measured_rows": len(measured),
        "held_out": measured is held,
        "restarts": restarts,
        "seed": settings.seed,
    }


def _labels(folder: RunFolder) -> tuple[list[str | None] | None, np.ndarray | None]:
    """The label of each row, and the numbers of those held out."""
    if folder.settings.classes is None:
        return None, None
    table = folder.read_table(ASSIGNMENTS)
    return table["label"].to_pylist(), np.flatnonzero(table["held_out"].to_numpy())


def _figures(
    bank: Tensor, rows: Rows, measured: np.ndarray, labels: list[str | None] | None
) -> dict[str, float | int | None]:
    nearest, apart = [], 0.0
    for start in range(0, len(measured), _PIECE):
        closest = squared_distances(rows.at(measured[start : start + _PIECE]), bank).min(-1)
        nearest.append(closest.indices.numpy())
        apart += float(closest.values.double().sum())
    scores: dict[str, float] = {}
    if labels is not None:
        known = [(place, labels[row]) for place, row in enumerate(measured.tolist()) if labels[row] is not None]
        numbers = {label: number for number, label in enumerate(dict.fromkeys(label for _, label in known))}
        found = np.concatenate(nearest)[[place for place, _ in known]]
        scores = cluster_scores(found, [numbers[label] for _, label in known]) if known else {}
    names = ("acc", "nmi", "purity")
    return {"distortion": apart / len(measured), **{name: scores.get(name) for name in names}}
