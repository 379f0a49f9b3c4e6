"""Rows of an array that may lie on the disk, in shuffled batches that hold little of it in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

BLOCK = 16
"""Rows read together from the disk; a batch is made of blocks from everywhere."""
IN_MEMORY = 2**28
"""Arrays up to this many bytes are shuffled row by row."""


class Rows:
    """Embeddings as float32 tensors, of length 1 if asked for; only what is asked for is read.

    Args:
        array: (N, m), in memory or mapped.
        normalise: to length 1.
    """

    def __init__(self, array: np.ndarray, *, normalise: bool) -> None:
        self.array, self.normalise = array, normalise

    def __len__(self) -> int:
        return len(self.array)

    @property
    def dim(self) -> int:
        """m."""
        return int(self.array.shape[1])

    def at(self, rows: np.ndarray | slice) -> Tensor:
        """Some rows, (n, m)."""
        found = torch.from_numpy(np.array(self.array[rows], dtype=np.float32))
        return F.normalize(found, dim=-1) if self.normalise else found

    def draw(self, size: int, seed: int, chosen: np.ndarray | None = None) -> np.ndarray:
        """Numbers of rows, rising: an even draw without replacement from all or those chosen, the same for a seed."""
        available = len(self) if chosen is None else len(chosen)
        drawn = torch.randperm(available, generator=torch.Generator().manual_seed(seed))[:size].sort().values.numpy()
        return drawn if chosen is None else chosen[drawn]

    def sample(self, size: int, seed: int, chosen: np.ndarray | None = None) -> Tensor:
        """The rows of such a draw."""
        return self.at(self.draw(size, seed, chosen))

    def in_order(self, size: int = 8192) -> Iterator[Tensor]:
        """All rows, in pieces."""
        for start in range(0, len(self), size):
            yield self.at(slice(start, start + size))


class ShuffledBatches:
    """Batches for :class:`ddcl.Trainer`, drawn anew at each walk by torch's own random numbers.

    The trainer's checkpoint holds the state of those, so a resumed run draws the same batches.

    Args:
        rows: where from.
        batch_size: rows in a batch, rounded to whole blocks for large arrays; the last may be smaller.
        rows_per_walk: how many in one walk through the batches.
        chosen: which rows may be drawn; None: all.
    """

    def __init__(
        self,
        rows: Rows,
        batch_size: int,
        rows_per_walk: int,
        *,
        chosen: np.ndarray | None = None,
    ) -> None:
        self.rows, self.chosen = rows, chosen
        self.available = len(rows) if chosen is None else len(chosen)
        self.block = BLOCK if self.available * rows.dim * 4 > IN_MEMORY else 1
        self.per_batch = max(1, batch_size // self.block)
        blocks = -(-self.available // self.block)
        self.per_walk = min(blocks, -(-rows_per_walk // self.block))

    def __len__(self) -> int:
        return -(-self.per_walk // self.per_batch)

    def __iter__(self) -> Iterator[Tensor]:
        order = torch.randperm(-(-self.available // self.block))[: self.per_walk]
        for blocks in order.split(self.per_batch):
            # the disk is read in order
            places = (blocks.sort().values[:, None] * self.block + torch.arange(self.block)).flatten()
            places = places[places < self.available].numpy()
            yield self.rows.at(places if self.chosen is None else self.chosen[places])
