"""Rows and prototypes in two dimensions, to look at."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddcl.shapes import Float

MAPPED_ROWS = 2000
"""Rows on a map: more than this is a blot, and takes long."""
_COMPONENTS, _ITERATIONS, _PERPLEXITY = 50, 500, 30.0


class Plane(NamedTuple):
    """The plane through the mean of some rows along which they spread most."""

    mean: Float[Tensor, " m"]
    directions: Float[Tensor, "2 m"]

    def of(self, points: Float[Tensor, "*some m"]) -> Float[Tensor, "*some 2"]:
        """Points as seen in the plane."""
        return (points - self.mean) @ self.directions.mT


@torch.no_grad()
def principal_plane(rows: Float[Tensor, "N m"]) -> Plane:
    """The first two principal directions; the same rows give the same signs.

    Example:
        >>> from ddcl.fitting.layout import principal_plane
        >>> plane = principal_plane(torch.tensor([[0.0, 0.0, 1.0], [4.0, 0.0, 1.0], [2.0, 1.0, 1.0], [2.0, -1.0, 1.0]]))
        >>> plane.of(torch.tensor([[4.0, 0.0, 1.0]])).round().tolist()
        [[2.0, 0.0]]
    """
    mean = rows.mean(0)
    found = torch.linalg.svd(rows - mean, full_matrices=False)[2][:2]
    directions = rows.new_zeros(2, rows.shape[1])  # of one dimension, or one row, there is but one
    directions[: len(found)] = found
    largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))
    return Plane(mean, torch.where(largest < 0, -directions, directions))


def neighbour_map(points: Float[Tensor, "N m"], seed: int) -> Float[Tensor, "N 2"] | None:
    """t-SNE by scikit-learn, started from the principal plane; None where it is not installed or nothing is to be seen.

    Neighbours on it are neighbours in the data; distances across it, and the sizes of groups, mean nothing.
    """
    try:
        from sklearn.decomposition import PCA
        from sklearn.manifold import TSNE
    except ImportError:
        return None
    flat = points.numpy().astype(np.float64)
    if len(flat) < 4 or not np.ptp(flat, axis=0).any():
        return None
    components, seed = min(_COMPONENTS, *flat.shape), seed % 2**32  # random states of scikit-learn are of 32 bits
    flat = PCA(components, random_state=seed).fit_transform(flat)
    perplexity = min(_PERPLEXITY, (len(points) - 1) / 3)
    start = "pca" if components >= 2 else "random"
    method = TSNE(init=start, random_state=seed, max_iter=_ITERATIONS, perplexity=perplexity)
    return torch.from_numpy(method.fit_transform(flat)).float()
