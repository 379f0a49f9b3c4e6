"""Data as users have it, a tensor or batches of it, walked through in one way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Union

import torch
from torch import Tensor

from ddcl.functional.checks import check_float_tensor, check_mask, one_head_hint

Batches = Union[Tensor, Iterable[Union[Tensor, tuple[Tensor, Tensor]]]]
"""A tensor (..., m), or an iterable of such tensors or of pairs (tensor, mask); with heads, (..., H, m)."""


def token_batches(
    data: Batches, mask: Tensor | None = None, *, num_heads: int | None = None, name: str = "z"
) -> Iterator[Tensor]:
    """The unmasked tokens of the data as tensors (n, H, m); H is 1 without ``num_heads``."""
    if isinstance(data, Tensor):
        yield _tokens(data, mask, num_heads, name)
        return
    if mask is not None:
        raise TypeError("mask: got a mask beside an iterable of batches, expected pairs (batch, mask) in it")
    if not isinstance(data, Iterable):
        raise TypeError(f"{name}: got {type(data).__name__}, expected a tensor or an iterable of tensors")
    for batch in data:
        if isinstance(batch, (tuple, list)):
            if len(batch) not in (1, 2):
                raise TypeError(f"{name}: got a batch of {len(batch)} parts, expected z or a pair (z, mask)")
            yield _tokens(batch[0], batch[1] if len(batch) == 2 else None, num_heads, name)
        else:
            yield _tokens(batch, None, num_heads, name)


def _tokens(z: Tensor, mask: Tensor | None, num_heads: int | None, name: str) -> Tensor:
    check_float_tensor(name, z)
    wanted = "(..., m)" if num_heads is None else f"(..., {num_heads}, m)"
    tail = 1 if num_heads is None else 2
    if z.dim() < tail or (num_heads is not None and z.shape[-2] != num_heads):
        raise ValueError(f"{name}: got shape {tuple(z.shape)}, expected {wanted}{one_head_hint(num_heads)}")
    if mask is not None:
        check_mask(mask, tuple(z.shape[:-tail]), z.device)
        z = z[mask.to(torch.bool)]
    return z.reshape(-1, num_heads or 1, z.shape[-1])
