"""Batches of a tensor in a new order at every walk."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


class Shuffled:
    """Cuts a tensor into batches, shuffled anew at every walk from one seed.

    Example:
        >>> batches = Shuffled(torch.arange(7), batch=3, seed=0)
        >>> len(batches), sorted(torch.cat(list(batches)).tolist())
        (3, [0, 1, 2, 3, 4, 5, 6])
    """

    def __init__(self, x: Tensor, *, batch: int, seed: int) -> None:
        self.x, self.batch = x, batch
        self.random = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return -(-len(self.x) // self.batch)

    def __iter__(self) -> Iterator[Tensor]:
        order = torch.randperm(len(self.x), generator=self.random).to(self.x.device)
        return iter(self.x[order].split(self.batch))
