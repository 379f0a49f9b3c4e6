"""What a hierarchy of banks gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ddcl.functional import Decomposition, Readout
from ddcl.functional.outputs import TupleLike, register_output


@register_output
@dataclass(frozen=True, eq=False)
class LevelOutput(TupleLike):
    """What happened at one level; unpacks as ``items, mask, readout``."""

    items: Tensor
    """What entered the bank: (..., N, m), or (..., N, H, m / H) for several heads."""
    mask: Tensor | None
    """(..., N), true where an item counts; None where all do."""
    readout: Readout
    """The readout of the items, with the losses of this level alone."""
    members: Tensor
    """(..., T), the item of this level that each token is in, -1 for none."""

    _tuple_fields: ClassVar[tuple[str, ...]] = ("items", "mask", "readout")


@register_output
@dataclass(frozen=True, eq=False)
class HierarchyOutput(TupleLike):
    """What ``HierarchicalReadout`` gives back; unpacks as ``vector, loss, levels``."""

    vector: Tensor
    """The top level's soft centroids, pooled: (..., m), or (..., G, m) where the top level leaves G of them."""
    loss: Decomposition
    """The weighted sum of the losses of the levels; ``total == reconstruction + variance`` here too."""
    levels: tuple[LevelOutput, ...]
    """From the tokens up."""
    mask: Tensor | None
    """(...) or (..., G), true where a vector has any token under it; None where all have."""

    _tuple_fields: ClassVar[tuple[str, ...]] = ("vector", "loss", "levels")

    @property
    def paths(self) -> Tensor:
        """The nearest prototype of each token at every level, (..., T, L); -1 where masked or in no group.

        At the first level that of the token itself, further up that of the item it is in. A level with H heads has H
        columns. Computed at each access.
        """
        return torch.cat([_of_tokens(level) for level in self.levels], dim=-1)


def _of_tokens(level: LevelOutput) -> Tensor:
    """Indices of a level's items, handed down to the tokens in them, (..., T, H)."""
    members, indices = level.members, level.readout.indices
    if indices.dim() == members.dim():
        indices = indices.unsqueeze(-1)  # of one head
    # a row of -1 in front, for tokens that are in no item
    indices = torch.cat([torch.full_like(indices[..., :1, :], -1), indices], dim=-2)
    where = (members + 1).unsqueeze(-1).expand(*members.shape, indices.shape[-1])
    return indices.gather(-2, where)
