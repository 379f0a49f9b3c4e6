"""How well clusters match classes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


def accuracy(found: Iterable[int], labels: Iterable[int]) -> float:
    """Share of items whose cluster belongs to their class, under the best one-to-one match (the Hungarian method)."""
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise ImportError("clustering accuracy needs scipy: pip install 'ddcl[text]'") from error
    clusters, classes = np.asarray(list(found)), np.asarray(list(labels))
    size = int(max(clusters.max(), classes.max())) + 1
    table = np.zeros((size, size), dtype=np.int64)
    np.add.at(table, (clusters, classes), 1)
    rows, columns = linear_sum_assignment(-table)
    return float(table[rows, columns].sum() / len(classes))
