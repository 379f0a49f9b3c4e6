"""How many rows are worked on at once, and the bound on what of N x K may be held."""

from __future__ import annotations

import torch

# Numbers in one rows x K block. On a CPU fewer would fit the caches nearer to the cores, but the calls for each block
# cost more than that saves; more would save little time and take memory. On a GPU a block is large enough to fill the
# machine. `python -m benchmarks blocks` measures the choice.
BLOCK_NUMBERS = {"cpu": 2**21, "cuda": 2**25}

# Of the assignments (N x H x K) this many numbers are kept from the forward to the backward pass instead of
# being computed again: 64 MiB in float32.
KEPT_NUMBERS = 2**24


def block_rows(rows: int, row_width: int, device: torch.device) -> int:
    """Rows per block when a row holds ``row_width`` numbers: at least one, at most ``rows``."""
    numbers = BLOCK_NUMBERS.get(device.type, BLOCK_NUMBERS["cuda"])
    return max(1, min(rows, numbers // max(1, row_width)))


def row_blocks(rows: int, step: int) -> list[slice]:
    """Consecutive slices of ``range(rows)`` of ``step`` rows each, the last one shorter."""
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]
