"""Typed results that also unpack like the tuples PyTorch users expect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import torch

Cls = TypeVar("Cls", bound=type)


class TupleLike:
    """Iterates, indexes and measures its length over the fields named in ``_tuple_fields``."""

    _tuple_fields: ClassVar[tuple[str, ...]]

    def __iter__(self) -> Iterator[Any]:
        return iter(tuple(getattr(self, name) for name in self._tuple_fields))

    def __getitem__(self, item: int) -> Any:
        return tuple(self)[item]

    def __len__(self) -> int:
        return len(self._tuple_fields)


def register_output(cls: Cls) -> Cls:
    """Let torch.compile and torch.export carry a dataclass of tensors in and out of a graph."""
    torch.export.register_dataclass(cls, serialized_type_name=f"{cls.__module__}.{cls.__qualname__}")
    return cls
