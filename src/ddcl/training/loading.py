"""Batches as a loader gives them: how many there are, and where they go."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


def count_batches(batches: Iterable[Any]) -> int:
    """Batches in an epoch; those of a loader that cannot tell are counted."""
    try:
        return len(batches)  # type: ignore[arg-type]
    except TypeError:
        return sum(1 for _ in batches)


def to_device(batch: Any, device: torch.device) -> Any:
    """A batch on a device: tensors, and lists, tuples and dicts of them to any depth; anything else as it is."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):  # a named tuple takes its fields one by one
        return type(batch)(*(to_device(value, device) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(to_device(value, device) for value in batch)
    return batch
