"""One level of a hierarchy: what it is made of, and the bank that reads its items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ddcl.functional import Readout
from ddcl.functional.checks import check_choice, check_count, check_temperature
from ddcl.nn.entrance import BankEntrance
from ddcl.nn.hierarchy.grouping import Pool
from ddcl.nn.normalisation import NORMALISATIONS, Normalisation
from ddcl.ops import Backend, Gradient


@dataclass(frozen=True)
class Level:
    """The settings of one level.

    Args:
        num_prototypes: K.
        dim: m. None: the dimension of what enters, without a projection; a number: a learned projection to it.
        pool: how the soft centroids of this level are gathered into the items of the next, or at the top into the
            output. ``"mask"``: the mean of all that count in a sequence; a number: means of windows of so many;
            ``"segments"``: means of the segments that ``forward`` is given; None: none, each for itself.
        temperature: T of the bank. None: a tenth of the critical temperature of what enters, once ``init_from`` has
            seen data.
        num_heads: H; m is shared among them.
        normalise: what is done to the items before they meet the bank, see :class:`TokenNorm`.
        weight: of this level's loss in the total.

    Example:
        >>> Level(32, pool="segments")
        Level(num_prototypes=32, dim=None, pool='segments', temperature=None, num_heads=1, normalise='none', weight=1.0)
    """

    num_prototypes: int
    dim: int | None = None
    pool: Pool = "mask"
    temperature: float | None = None
    num_heads: int = 1
    normalise: Normalisation = "none"
    weight: float = 1.0

    def __post_init__(self) -> None:
        check_count("num_prototypes", self.num_prototypes)
        check_count("num_heads", self.num_heads)
        if self.dim is not None:
            check_count("dim", self.dim)
        if isinstance(self.pool, str):
            check_choice("pool", self.pool, ("mask", "segments"))
        elif self.pool is not None:
            check_count("pool", self.pool)
        if self.temperature is not None:
            check_temperature(self.temperature)
        check_choice("normalise", self.normalise, NORMALISATIONS)
        if not 0 <= self.weight < float("inf"):
            raise ValueError(f"weight: got {self.weight}, expected a finite number of at least 0")


class LevelReadout(BankEntrance):
    """The bank of one level and the way of its items into it.

    Args:
        dim: dimension of what enters.
        level: the settings.
        gradient, backend: see :class:`PrototypeBank`.

    Example:
        >>> items, readout = LevelReadout(7, Level(5, dim=3))(torch.randn(2, 11, 7))
        >>> items.shape, readout.centroid.shape
        (torch.Size([2, 11, 3]), torch.Size([2, 11, 3]))
    """

    def __init__(
        self,
        dim: int,
        level: Level,
        *,
        gradient: Gradient = "full",
        backend: Backend = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        super().__init__(
            dim,
            level.num_prototypes,
            proto_dim=level.dim,
            num_heads=level.num_heads,
            normalise=level.normalise,
            temperature=level.temperature,
            gradient=gradient,
            backend=backend,
            **place,
        )
        self.level = level

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Readout]:
        """Items (..., N, dim), zero where masked: what enters the bank, and its readout."""
        items = self.to_heads(x, mask)
        return items, self.bank(items, mask)

    def extra_repr(self) -> str:
        """What the bank does not say, for ``repr``."""
        return f"pool={self.level.pool!r}, weight={self.level.weight:g}"
