"""Memory of a GPU: what a call takes at most, what is free, what a failed call left behind."""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch


def peak_bytes(run: Callable[[], object]) -> int:
    """The most that tensors on the GPU take at any moment of ``run()``, beyond those there before."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def free_bytes(device: torch.device) -> int | None:
    """What tensors may still take, None where that is not asked for (CPU)."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None


def release(device: torch.device) -> None:
    """Give back what no tensor on a GPU holds any more: the next candidate finds the memory the last one had."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
