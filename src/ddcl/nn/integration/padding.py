"""The padding mask of a model's call, carried to modules that stand deep inside it."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn


class Padding:
    """Which tokens of the last call count; listens to the module that is given the mask.

    The mask is kept until the next call, since gradient checkpointing runs blocks again during the backward pass.

    Args:
        owner: the module whose call holds the mask.
        argument: its name there: ``src_key_padding_mask`` (true or -inf at padding) or ``attention_mask`` (0 there).
        batch_first: whether tokens are (B, T, dim) and not (T, B, dim).
    """

    def __init__(self, owner: nn.Module, argument: str, *, batch_first: bool = True) -> None:
        self.argument, self.batch_first = argument, batch_first
        self.position = list(inspect.signature(owner.forward).parameters).index(argument)
        self.counts: Tensor | None = None

    def listen(self, _owner: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A forward pre-hook of the owner."""
        given = args[self.position] if len(args) > self.position else kwargs.get(self.argument)
        self.counts = None if given is None else self._counting(given)

    def mask_for(self, tokens: Tensor) -> Tensor | None:
        """True where one of these tokens counts; of a longer mask, with a past in it, the last entries."""
        if self.counts is None:
            return None
        mask = self.counts if self.batch_first else self.counts.movedim(-1, 0)
        axis = mask.dim() - 1 if self.batch_first else 0
        length = tokens.shape[axis]
        if mask.shape[axis] < length:
            raise ValueError(
                f"{self.argument}: got {mask.shape[axis]} entries for {length} tokens that the model makes of them: of "
                "those added the inserted prototypes cannot tell whether they count"
            )
        return mask if mask.shape[axis] == length else mask.narrow(axis, mask.shape[axis] - length, length)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "counts": None}  # a call's mask is no part of the model that is copied or saved

    def _counting(self, given: Tensor) -> Tensor:
        if given.dim() > 2:
            raise ValueError(
                f"{self.argument}: got shape {tuple(given.shape)}, expected (B, T): of any other the inserted "
                "prototypes cannot tell which tokens are padding"
            )
        if self.argument == "attention_mask":
            return given != 0
        # floats are added to scores: padding has -inf, or as good as that
        return ~given if given.dtype == torch.bool else given > torch.finfo(given.dtype).min / 2
