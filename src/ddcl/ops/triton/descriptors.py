"""Tensors as the GPU's copy engine takes them, where it can: no address arithmetic, no registers on the way."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

try:
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:  # an older Triton
    TensorDescriptor = None

ALIGNED = 16  # bytes, of the first element and of every step but the last


def can_describe(head_dim: int, block_dim: int, *tensors: Tensor | None) -> bool:
    """Whether all of these (N, H, m) or (H, K, m) tensors can be moved by the copy engine in blocks of whole heads."""
    present = [tensor for tensor in tensors if tensor is not None]
    return (
        TensorDescriptor is not None
        and _has_engine(present[0].device)
        and all(_fits(tensor, head_dim, block_dim) for tensor in present)
    )


def describe_tokens(tensor: Tensor | None, rows: int, block_dim: int) -> object:
    """(N, H, m) as N rows of all heads side by side."""
    if tensor is None:
        return None
    N, H, m = tensor.shape
    return TensorDescriptor(tensor, [N, H * m], [tensor.stride(0), 1], [rows, block_dim])


def describe_bank(bank: Tensor, rows: int, block_dim: int) -> object:
    """(H, K, m), contiguous, as H K rows."""
    H, K, m = bank.shape
    return TensorDescriptor(bank, [H * K, m], [m, 1], [rows, block_dim])


def describe_numbers(values: Tensor, count: int) -> object:
    """A contiguous (H, N) or (H, K) tensor of float32 as one row."""
    return TensorDescriptor(values, [values.numel()], [1], [count])


@lru_cache
def _has_engine(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] >= 9


def _fits(tensor: Tensor, head_dim: int, block_dim: int) -> bool:
    size = tensor.element_size()
    first, second, last = tensor.stride()
    heads = tensor.shape[1]
    return (
        size == 2  # float32 needs a pointer as well, to look up the nearest prototype
        and last == 1
        and first > 0
        and first * size % ALIGNED == 0
        and tensor.data_ptr() % ALIGNED == 0
        # heads side by side, and no block that reaches into the next head
        and (heads == 1 or (second == head_dim == block_dim))
    )
