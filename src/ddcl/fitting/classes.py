"""Which class each row is of, and which rows are held out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

UNLABELLED = -100
"""The class number of rows without a label."""


class Classes(NamedTuple):
    """What a head learns from."""

    numbers: Tensor
    """(N,), the class of each row, :data:`UNLABELLED` where it has none."""
    held_out: np.ndarray
    """Rows whose labels the head never sees."""

    @property
    def learned(self) -> np.ndarray:
        """Labelled rows that are not held out."""
        return np.setdiff1d(np.flatnonzero(self.numbers.numpy() != UNLABELLED), self.held_out)

    @property
    def seen(self) -> np.ndarray:
        """All rows that are not held out."""
        return np.setdiff1d(np.arange(len(self.numbers)), self.held_out)


def split_classes(labels: list[str | None], classes: tuple[str, ...], share: float, seed: int) -> Classes:
    """Class numbers, and a share of the labelled rows to hold out; every class keeps a row to learn from."""
    place = {name: number for number, name in enumerate(classes)}
    numbers = torch.tensor([UNLABELLED if label is None else place[label] for label in labels])
    left = torch.bincount(numbers[numbers >= 0], minlength=len(classes)).tolist()
    wanted = round(share * sum(left))
    held: list[int] = []
    for row in torch.randperm(len(numbers), generator=torch.Generator().manual_seed(seed)).tolist():
        number = int(numbers[row])
        if len(held) < wanted and number >= 0 and left[number] > 1:
            left[number] -= 1
            held.append(row)
    return Classes(numbers, np.sort(np.array(held, dtype=np.int64)))
