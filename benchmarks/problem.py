"""The sizes a benchmark runs at and the inputs of one size."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from benchmarks.implementations import Implementation

Pass = Literal["forward", "forward+backward"]
PASSES: tuple[Pass, ...] = ("forward", "forward+backward")


class Cell(NamedTuple):
    """One size: N tokens of dimension m, K prototypes."""

    N: int
    m: int
    K: int

    def __str__(self) -> str:
        return f"N={self.N} m={self.m} K={self.K}"


class Problem:
    """Random inputs of one size, the same for every implementation."""

    def __init__(self, cell: Cell, dtype: torch.dtype = torch.float32) -> None:
        self.cell = cell
        source = torch.Generator().manual_seed(0)
        self.z = torch.randn(cell.N, cell.m, dtype=dtype, generator=source).requires_grad_()
        self.prototypes = torch.randn(cell.K, cell.m, dtype=dtype, generator=source).requires_grad_()
        self.weights = torch.randn(cell.N, cell.m, dtype=dtype, generator=source)
        # squared distances are spread by about 2 sqrt(2m) around 2m here: assignments neither one-hot nor uniform
        self.temperature = 2 * cell.m / 8

    def clear_gradients(self) -> None:
        """Forget the gradients of the last repeat, so that none is added to."""
        self.z.grad = self.prototypes.grad = None

    def run(self, kind: Pass, implementation: Implementation) -> None:
        """One pass; gradients, if any, end in ``z.grad`` and ``prototypes.grad``."""
        if kind == "forward":
            with torch.no_grad():
                implementation(self.z, self.prototypes, self.temperature)
            return
        out = implementation(self.z, self.prototypes, self.temperature)
        loss: Tensor = (out.centroid * self.weights).sum() + out.total
        loss.backward()
