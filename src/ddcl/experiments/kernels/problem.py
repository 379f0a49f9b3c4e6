"""The inputs of one size, the same for every candidate."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ddcl.experiments.kernels.shapes import Shape

CACHE_BYTES = 60 * 2**20
"""Of the largest cache between a GPU and its memory (an H200's); inputs that fit are measured in rotation."""


class Tensors(NamedTuple):
    """One set of inputs: tokens (N, m), bank (K, m), and a gradient for mu, (N, m)."""

    z: Tensor
    prototypes: Tensor
    upstream: Tensor


class Problem:
    """Random inputs of one size, in as many sets as it takes to run past the cache."""

    def __init__(self, shape: Shape, dtype: torch.dtype, device: torch.device, *, seed: int = 0) -> None:
        self.shape, self.dtype, self.device = shape, dtype, device
        source = torch.Generator(device).manual_seed(seed)

        def random(rows: int) -> Tensor:
            return torch.randn(rows, shape.m, device=device, generator=source).to(dtype)

        bytes_per_set = (2 * shape.N + shape.K) * shape.m * dtype.itemsize
        count = -(-2 * CACHE_BYTES // bytes_per_set) if device.type == "cuda" and bytes_per_set < CACHE_BYTES else 1
        self.sets = [
            Tensors(random(shape.N).requires_grad_(), random(shape.K).requires_grad_(), random(shape.N))
            for _ in range(min(count, 8))
        ]
        # squared distances are spread by about 2 sqrt(2m) around 2m here: assignments neither one-hot nor uniform
        self.temperature = 2 * shape.m / 8
