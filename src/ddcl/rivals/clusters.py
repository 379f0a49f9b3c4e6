"""How well clusters match classes: the three figures the paper reports, and the share of each cluster's main class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ddcl.rivals.accuracy import accuracy

RESTARTS = 10
"""Of the k-means that everything is compared with, as in the paper."""


def kmeans_baseline(rows: Tensor, clusters: int, seed: int, restarts: int = RESTARTS) -> Any:
    """scikit-learn's k-means with some restarts, fitted."""
    from sklearn.cluster import KMeans

    # its random states are of 32 bits
    return KMeans(clusters, n_init=restarts, random_state=seed % 2**32).fit(rows.cpu().numpy())


def cluster_scores(found: Sequence[int] | np.ndarray, labels: Sequence[int] | np.ndarray) -> dict[str, float]:
    """ACC by the Hungarian method, NMI, ARI and purity.

    With more clusters than classes ACC leaves the surplus unmatched, so purity, which lets several clusters share a
    class, says more.
    """
    try:
        from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
    except ImportError as error:
        raise ImportError("scores of clusters need scikit-learn: pip install 'ddcl[text]'") from error
    found, labels = np.asarray(found), np.asarray(labels)
    return {
        "acc": accuracy(found, labels),
        "nmi": float(normalized_mutual_info_score(labels, found)),
        "ari": float(adjusted_rand_score(labels, found)),
        "purity": purity(found, labels),
    }


def purity(found: np.ndarray, labels: np.ndarray) -> float:
    """Share of items in the main class of their cluster."""
    return float(_table(found, labels).max(1).sum() / len(labels))


def recalls(found: Sequence[int] | np.ndarray, labels: Sequence[int] | np.ndarray) -> list[float]:
    """For each class the share of its items in clusters whose main class it is; 0 for a class that is main nowhere.

    Example:
        >>> recalls([0, 0, 0, 1], [0, 0, 1, 0])
        [1.0, 0.0]
    """
    table = _table(np.asarray(found), np.asarray(labels))
    main = table.argmax(1)
    return [float(table[main == label, label].sum() / table[:, label].sum()) for label in range(table.shape[1])]


def _table(found: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """How many items of each class each cluster has, (clusters, classes)."""
    table = np.zeros((int(found.max()) + 1, int(labels.max()) + 1), dtype=np.int64)
    np.add.at(table, (found, labels), 1)
    return table
