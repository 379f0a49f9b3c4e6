"""Features made ready as the paper does: standardised, then rotated to their principal components."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Projection(NamedTuple):
    """Principal components of a table."""

    components: Tensor
    """(m, d): orthonormal rows, the widest direction first."""
    explained: float
    """Share of the variance that they keep."""


def standardised(x: Tensor) -> Tensor:
    """Each column with mean 0 and variance 1; a column that never changes becomes 0."""
    centred = x - x.mean(0)
    spread = centred.square().mean(0).sqrt()
    return centred / torch.where(spread > 0, spread, 1.0)


def principal_components(x: Tensor, dim: int) -> Projection:
    """The first ``dim`` principal components of a centred table (N, d).

    Example:
        >>> found = principal_components(torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), 1)
        >>> found.components.abs(), round(found.explained, 2)
        (tensor([[1., 0.]]), 0.9)
    """
    if not 1 <= dim <= x.shape[1]:
        raise ValueError(f"dim: got {dim}, expected 1 to {x.shape[1]}")
    # of the covariance, not of x: d x d, however many rows there are
    values, vectors = torch.linalg.eigh(x.mT.double() @ x.double() / len(x))
    widest = values.flip(0)
    components = vectors.flip(1)[:, :dim].mT
    # eigenvectors have no sign of their own; a record must not depend on the library that found them
    largest = components.abs().argmax(1, keepdim=True)
    components = components * components.gather(1, largest).sign()
    return Projection(components.to(x.dtype), float(widest[:dim].sum() / widest.sum()))
