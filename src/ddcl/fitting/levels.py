"""A hierarchy: banks on top of the first, each over the soft centroids of the one below."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from torch import Tensor

from ddcl.fitting.banks import TrainedBank, Watch, shares_in, train_bank
from ddcl.fitting.batches import Rows
from ddcl.fitting.errors import BadInputError
from ddcl.fitting.settings import Settings
from ddcl.nn import PrototypeBank
from ddcl.shapes import Float

SHRINKING = 4
"""How many prototypes of a level share one of the next, where sizes are not given."""


def check_levels(levels: Sequence[int]) -> None:
    """Refuse what is neither a number of levels nor the sizes of some."""
    if len(levels) == 1 and levels[0] < 2:
        raise BadInputError(f"--levels: got {levels[0]}, expected at least 2 levels, or their sizes, finest first")
    if min(levels) < 2:
        raise BadInputError(f"--levels: got a level of {min(levels)} prototypes, expected at least 2 in each")
    for finer, coarser in pairwise(levels):
        if coarser >= finer:
            raise BadInputError(f"--levels: got {coarser} above {finer}, expected fewer prototypes at each level")


def levels_above(prototypes: int, number: int) -> tuple[int, ...]:
    """Sizes of so many levels, finest first, each a quarter of the one below and at least 2; fewer where it ends there.

    Example:
        >>> from ddcl.fitting.levels import levels_above
        >>> levels_above(154, 3), levels_above(6, 4)
        ((154, 38, 10), (6, 2))
    """
    sizes = [prototypes]
    while len(sizes) < number and sizes[-1] > 2:
        sizes.append(max(2, round(sizes[-1] / SHRINKING)))
    if len(sizes) < 2:
        raise BadInputError(f"--levels: a bank of {prototypes} prototypes leaves none above it; give its --prototypes")
    return tuple(sizes)


class CentroidRows(Rows):
    """The rows as a level above the first sees them, computed from the rows below when they are asked for.

    Args:
        below: the rows of the level below.
        bank: of the level below.
    """

    def __init__(self, below: Rows, bank: PrototypeBank) -> None:
        super().__init__(below.array, normalise=False)
        self.below, self.bank = below, bank

    def at(self, rows: np.ndarray | slice) -> Tensor:
        """Some rows, (n, m)."""
        return shares_in(self.bank, self.below.at(rows)) @ self.bank.prototypes[0].detach()


def train_upper_levels(
    first: PrototypeBank,
    rows: Rows,
    settings: Settings,
    chosen: np.ndarray | None,
    *,
    watch: Watch,
    say: Callable[[str], None],
) -> list[TrainedBank]:
    """The banks of all levels above the first, trained one after the other as the first was; none without levels."""
    found: list[TrainedBank] = []
    bank = first
    for level, size in enumerate((settings.levels or ())[1:], start=1):
        say(f"level {level}: {size} prototypes over the soft centroids of the {bank.num_prototypes} below")
        rows = CentroidRows(rows, bank)
        found.append(train_bank(rows, replace(settings, prototypes=size), chosen, watch=watch))
        bank = found[-1].bank
    return found


def climb(banks: Sequence[PrototypeBank], z: Float[Tensor, "n m"]) -> Iterator[Float[Tensor, "n K"]]:
    """The share of every prototype in each row, at one level after the other."""
    for bank in banks:
        shares = shares_in(bank, z)
        yield shares
        z = shares @ bank.prototypes[0].detach()


def parents_of(banks: Sequence[PrototypeBank]) -> list[list[int]]:
    """For each level but the last, the prototype of the next that has the largest share in each of its prototypes."""
    found = []
    for bank, above in pairwise(banks):
        parents: list[int] = shares_in(above, bank.prototypes[0].detach()).argmax(-1).tolist()
        found.append(parents)
    return found
