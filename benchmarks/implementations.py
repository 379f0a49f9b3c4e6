"""The library and what one would write without it, all with the same outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

import ddcl


class Outputs(NamedTuple):
    """Centroids (N, m), nearest prototypes (N,), and the terms of the loss as means over tokens."""

    centroid: Tensor
    indices: Tensor
    total: Tensor
    reconstruction: Tensor
    variance: Tensor
    quantization: Tensor
    entropy: Tensor


Implementation = Callable[[Tensor, Tensor, float], Outputs]


def eager(z: Tensor, prototypes: Tensor, temperature: float) -> Outputs:
    """The library."""
    centroid, loss, indices = ddcl.readout(z, prototypes, temperature, backend="eager")
    return Outputs(centroid, indices, loss.total, loss.reconstruction, loss.variance, loss.quantization, loss.entropy)


def plain(z: Tensor, prototypes: Tensor, temperature: float) -> Outputs:
    """The formula with autograd, as strong as it gets in plain PyTorch: distances from one matrix product."""
    # the fewest N x K temporaries that autograd allows; a row-major factor is faster than alpha=-2 on a transposed one
    doubled = (-2 * prototypes).mT.contiguous()
    distances = torch.addmm(prototypes.square().sum(-1), z, doubled)
    distances = distances.add_(z.square().sum(-1, keepdim=True)).clamp_min_(0.0)
    return _from_distances(distances, z, prototypes, temperature)


def cdist(z: Tensor, prototypes: Tensor, temperature: float) -> Outputs:
    """The form most people would write."""
    return _from_distances(torch.cdist(z, prototypes).square(), z, prototypes, temperature)


def _from_distances(distances: Tensor, z: Tensor, prototypes: Tensor, temperature: float) -> Outputs:
    log_q = torch.log_softmax(distances * (-1 / temperature), dim=-1)
    q = log_q.exp()
    centroid = q @ prototypes
    quantization, indices = distances.min(-1)
    return Outputs(
        centroid=centroid,
        indices=indices,
        total=(q * distances).sum(-1).mean(),
        reconstruction=(z - centroid).square().sum(-1).mean(),
        variance=(q @ prototypes.square().sum(-1) - centroid.square().sum(-1)).mean(),
        quantization=quantization.mean(),
        entropy=-(q * log_q).sum(-1).mean(),
    )


IMPLEMENTATIONS: dict[str, Implementation] = {"eager": eager, "plain": plain, "cdist": cdist}
