"""The operation as one writes it without the library: the formula, and attention in its place."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

_ALIGNMENT = 8  # of the head dimension, for the fused attention kernels
# the backward pass of attention is spread over sequences and blocks of prototypes: few prototypes need many sequences
_SEQUENCES_BY_PROTOTYPES, _MOST_SEQUENCES = 2**14, 256


class Terms(NamedTuple):
    """Centroids (N, m), the mean of the loss, the terms of it per token, nearest prototypes."""

    centroid: Tensor
    loss: Tensor
    total: Tensor
    reconstruction: Tensor
    variance: Tensor
    entropy: Tensor
    quantization: Tensor
    indices: Tensor


def plain(z: Tensor, prototypes: Tensor, temperature: float) -> Terms:
    """Every output by its formula: products in the dtype given, as autocast does, all else in float32."""
    products = (z @ prototypes.mT).float()
    squared_norm = prototypes.float().square().sum(-1)
    distances = z.float().square().sum(-1, keepdim=True) - 2 * products + squared_norm
    log_q = torch.log_softmax(-distances / temperature, dim=-1)
    q = log_q.exp()
    centroid = q.to(z.dtype) @ prototypes
    total = (q * distances).sum(-1)
    reconstruction = (z.float() - centroid.float()).square().sum(-1)
    quantization, indices = distances.min(-1)
    return Terms(
        centroid=centroid,
        loss=total.mean(),
        total=total,
        reconstruction=reconstruction,
        variance=total - reconstruction,
        entropy=-(q * log_q).sum(-1),
        quantization=quantization,
        indices=indices,
    )


def attention(z: Tensor, prototypes: Tensor, temperature: float) -> Tensor:
    """mu alone, by PyTorch's fused attention: q = softmax((2 z . p - |p|^2) / T), the second term as further columns.

    Two columns hold |p|^2 / T, rounded and what rounding left: half precision costs no more than in the product.
    """
    rows, dim = z.shape
    bias = -prototypes.float().square().sum(-1, keepdim=True) / temperature
    rounded = bias.to(z.dtype)
    left = (bias - rounded.float()).to(z.dtype)
    spare = -(dim + 2) % _ALIGNMENT
    ones = z.new_ones(rows, 2)
    query = F.pad(torch.cat([z * (2 / temperature), ones], -1), (0, spare))
    key = F.pad(torch.cat([prototypes, rounded, left], -1), (0, spare))
    value = F.pad(prototypes, (0, 2 + spare))  # the fastest kernels want one width for all three
    groups = max(1, min(_MOST_SEQUENCES, _SEQUENCES_BY_PROTOTYPES // len(prototypes)))
    groups = groups if rows % groups == 0 else 1
    key, value = (x.expand(groups, 1, *x.shape) for x in (key, value))
    mixed = F.scaled_dot_product_attention(query.view(groups, 1, rows // groups, -1), key, value, scale=1.0)
    return mixed.reshape(rows, -1)[:, :dim]
