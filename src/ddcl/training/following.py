"""Hanging on to the banks of a model: attach, see what enters, let go; for all that watch or move them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ddcl.nn import PrototypeBank, banks_of
from ddcl.shapes import Int

if TYPE_CHECKING:
    from typing_extensions import Self


@runtime_checkable
class Follower(Protocol):
    """What is kept for one bank."""

    bank: PrototypeBank


F = TypeVar("F", bound=Follower)


def carried_rows(values: Tensor, origin: Int[Tensor, " K"]) -> Tensor:
    """Rows (H, old K, ...) brought to their new places along the second axis, zero where a row is new."""
    known = (origin >= 0).reshape(1, -1, *(1,) * (values.dim() - 2))
    return torch.where(known, values[:, origin.clamp_min(0)], 0.0)


class FollowsBanks(Generic[F]):
    """Keeps a follower for every bank of a model, by the bank's name, from ``attach`` to ``detach``."""

    _without_banks = "there is nothing to follow"

    def __init__(self) -> None:
        self._followers: dict[str, F] = {}
        self._hooks: list[RemovableHandle] = []

    def attach(self, model: nn.Module) -> Self:
        """Follow what enters every bank of the model in training."""
        self.detach()
        banks = banks_of(model)
        if not banks:
            raise ValueError(f"model: it holds no PrototypeBank, so {self._without_banks}")
        for name, bank in banks.items():
            follower = self._follow(bank)
            self._followers[name] = follower
            self._hooks.append(self._hook(bank, follower))
        return self

    def detach(self) -> None:
        """Let the banks go."""
        for hook in self._hooks:
            hook.remove()
        # last in, first out: banks that share a parameter find it as the one before left it
        for follower in reversed(self._followers.values()):
            self._release(follower)
        self._hooks, self._followers = [], {}

    def _follow(self, bank: PrototypeBank) -> F:
        """What is to be kept for a bank."""
        raise NotImplementedError

    def _hook(self, bank: PrototypeBank, follower: F) -> RemovableHandle:
        """Where the follower sees the bank's calls; a hook of tensors only, so that compiled code may contain it."""
        raise NotImplementedError

    def _release(self, follower: F) -> None:
        """Undo what following has changed in the bank."""

    def resized(self, bank: PrototypeBank, origin: Int[Tensor, " K"]) -> None:
        """A bank has other prototypes now: ``origin`` says which row each was before, -1 where it is new."""
        self._resize(self._of(bank), origin)

    def _resize(self, follower: F, origin: Tensor) -> None:
        """Bring what is kept for each prototype to the new rows."""

    def _check_names(self, names: Any) -> None:
        """That a saved state is of the banks that are followed."""
        if set(names) != set(self._followers):
            raise ValueError(f"state: it knows banks {sorted(names)}, expected {sorted(self._followers)}")

    def _of(self, bank: PrototypeBank) -> F:
        for follower in self._followers.values():
            if follower.bank is bank:
                return follower
        raise ValueError(f"bank: it is not attached to this {type(self).__name__}")
