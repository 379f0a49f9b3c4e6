"""Data as users have it, a tensor or batches of it, walked through in one way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Union

import torch
from torch import Tensor

from ddcl.functional.checks import check_float_tensor, check_mask, one_head_hint

Batches = Union[Tensor, Iterable[Union[Tensor, tuple[Tensor, Tensor]]]]
"""A tensor (..., m), or an iterable of such tensors or of pairs (tensor, bool mask); with heads, (..., H, m)."""


def token_batches(
    data: Batches,
    mask: Tensor | None = None,
    *,
    num_heads: int | None = None,
    dim: int | None = None,
    name: str = "z",
) -> Iterator[Tensor]:
    """The unmasked tokens of the data as tensors (n, H, m), all of the same m; H is 1 without ``num_heads``."""
    for batch, batch_mask in masked_batches(data, mask, name=name):
        tokens = _tokens(batch, batch_mask, num_heads, dim, name)
        dim = tokens.shape[-1]
        yield tokens


def masked_batches(
    data: Batches, mask: Tensor | None = None, *, name: str = "z"
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Each batch with its mask or None; the one place that knows what a batch may look like."""
    if isinstance(data, Tensor):
        yield data, mask
        return
    if mask is not None:
        raise TypeError("mask: got a mask beside an iterable of batches, expected pairs (batch, mask) in it")
    if not isinstance(data, Iterable):
        raise TypeError(f"{name}: got {type(data).__name__}, expected a tensor or an iterable of tensors")
    for batch in data:
        if isinstance(batch, Tensor):
            yield batch, None
            continue
        parts = tuple(batch) if isinstance(batch, (tuple, list)) else ()
        if len(parts) not in (1, 2):
            raise TypeError(f"{name}: got a batch that is no tensor and no pair (z, mask)")
        # a loader's (x, label) looks like (z, mask) but for the dtype: labels must never pass for a mask
        if len(parts) == 2 and not (isinstance(parts[1], Tensor) and parts[1].dtype == torch.bool):
            kind = parts[1].dtype if isinstance(parts[1], Tensor) else type(parts[1]).__name__
            raise TypeError(
                f"{name}: got a batch (z, {kind}), expected (z, bool mask); if the second part are labels, pass z alone"
            )
        yield parts[0], parts[1] if len(parts) == 2 else None


def _tokens(z: Tensor, mask: Tensor | None, num_heads: int | None, dim: int | None, name: str) -> Tensor:
    check_float_tensor(name, z)
    tail = 1 if num_heads is None else 2
    wrong_heads = num_heads is not None and (z.dim() < 2 or z.shape[-2] != num_heads)
    if z.dim() < tail or wrong_heads or (dim is not None and z.shape[-1] != dim):
        sizes = [*([] if num_heads is None else [str(num_heads)]), "m" if dim is None else str(dim)]
        hint = one_head_hint(num_heads) if wrong_heads else ""
        raise ValueError(f"{name}: got shape {tuple(z.shape)}, expected (..., {', '.join(sizes)}){hint}")
    if mask is not None:
        check_mask(mask, tuple(z.shape[:-tail]), z.device)
        z = z[mask.to(torch.bool)]
    return z.reshape(-1, num_heads or 1, z.shape[-1])


class ChangedBatches:
    """Batches and masks changed on their way, anew each time they are walked through.

    Args:
        data: a tensor, or an iterable of batches or (batch, mask) pairs that can be walked more than once.
        change: a batch and its mask to what stands in their place.
        mask: for a tensor.
    """

    def __init__(
        self,
        data: Batches,
        change: Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor | None]],
        mask: Tensor | None = None,
    ) -> None:
        self.data, self.change, self.mask = data, change, mask

    def __iter__(self) -> Iterator[Tensor | tuple[Tensor, Tensor]]:
        for batch, mask in masked_batches(self.data, self.mask, name="x"):
            changed, mask = self.change(batch, mask)
            yield changed if mask is None else (changed, mask)
