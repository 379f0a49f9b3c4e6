"""The assignments of one head, block by block, with the buffers its blocks share."""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

from ddcl.ops.blocks import block_rows, row_blocks
from ddcl.ops.centring import bank_center, worth_centring
from ddcl.ops.eager.products import as_right_factor
from ddcl.ops.types import arithmetic_dtype
from ddcl.shapes import Bool, Float

LOG2_E = math.log2(math.e)

# 1 / T goes into the bank where the two are of comparable size: nowhere near does a product leave the range of a float.
_COMPARABLE = 1e12


class Assigner:
    """One head's bank in the arithmetic's dtype, centred, and the scratch its blocks of tokens share.

    Fresh memory costs more than arithmetic at these sizes (the system hands out zeroed pages), so each block
    is worked out in place. Scores are multiplied by ``scale``: where T is one number that may be looked at, on a CPU,
    that is log2(e) / T, which makes them logarithms of base 2 and saves a pass over every block; elsewhere it is 1.
    """

    def __init__(
        self,
        z: Float[Tensor, "N m"],
        prototypes: Float[Tensor, "K m"],
        temperature: Float[Tensor, " rows"],
        mask: Bool[Tensor, " N"] | None,
        kept: Float[Tensor, "rows_kept K"] | None,
    ) -> None:
        bank = prototypes.to(arithmetic_dtype(z.dtype))
        self.z, self.mask, self.kept, self.temperature = z, mask, kept, temperature
        self.count, self.width = z.shape[0], bank.shape[0]
        self.points = bank  # (K, m)
        self.center: Tensor | None = None
        self.squared_norm = bank.square().sum(-1)  # (K,)
        self.scale = 1.0
        # on a CPU passes over tokens and blocks can be saved; on a GPU looking would mean waiting
        on_cpu = bank.device.type == "cpu"
        sum_of_squares = self.squared_norm.sum().item() if on_cpu else math.nan
        if not on_cpu or worth_centring(bank, sum_of_squares):
            self.center = bank_center(bank).squeeze(0)
            self.points = bank - self.center
            self.squared_norm = self.points.square().sum(-1)
            sum_of_squares = self.squared_norm.sum().item() if on_cpu else math.nan
        if on_cpu and len(temperature) == 1:
            number = temperature.item()
            if number / _COMPARABLE <= sum_of_squares / self.width <= number * _COMPARABLE:
                self.scale = LOG2_E / number
        self._rows = block_rows(self.count, max(bank.shape), z.device)
        self.mixing = as_right_factor(self.points, self._rows)  # (K, m)
        self._scratch: dict[str, Tensor] = {}

    @property
    def folded(self) -> bool:
        """Whether the scores are in units of the temperature already."""
        return self.scale != 1.0

    @cached_property
    def toward(self) -> Tensor:
        """2 scale p, the right factor of the scores, (m, K)."""
        return as_right_factor((2 * self.scale * self.points).mT, self._rows)

    @cached_property
    def bias(self) -> Tensor:
        """What a score has beyond the product of token and prototype, (K,)."""
        return -self.scale * self.squared_norm

    @property
    def slope_scale(self) -> float:
        """What stands for 1 / T in the backward pass: that itself where the scores are folded, else 1."""
        return self.scale / LOG2_E if self.folded else 1.0

    @cached_property
    def pulling(self) -> Tensor:
        """2 slope_scale p, the right factor of what pulls at the assignments, (m, K)."""
        return as_right_factor((2 * self.slope_scale * self.points).mT, self._rows)

    @cached_property
    def per_temperature(self) -> Tensor:
        """1 / T, (1, 1) or (N, 1); finite even for the smallest T, so that 0 / T is 0."""
        largest = torch.finfo(self.points.dtype).max
        return self.temperature.reciprocal().clamp_max_(largest).unsqueeze(-1)

    def blocks(self) -> list[slice]:
        """The rows of each block."""
        return row_blocks(self.count, self._rows)

    def part(self, values: Tensor, rows: slice) -> Tensor:
        """The block's rows of a tensor with a row for each token; without the cost of a view if that is all."""
        return values if self._rows == self.count else values[rows]

    def scratch(self, name: str, rows: slice, width: int) -> Tensor:
        """A buffer (n, width) that every block reuses under this name."""
        if name not in self._scratch:
            self._scratch[name] = torch.empty(self._rows, width, dtype=self.points.dtype, device=self.z.device)
        count = rows.stop - rows.start
        return self._scratch[name] if count == self._rows else self._scratch[name][:count]

    def wide(self, name: str, rows: slice) -> Tensor:
        """Scratch (n, K)."""
        return self.scratch(name, rows, self.width)

    def narrow(self, name: str, rows: slice) -> Tensor:
        """Scratch (n, m)."""
        return self.scratch(name, rows, self.points.shape[1])

    def rows_of(self, values: Tensor, rows: slice) -> Tensor:
        """The block of a tensor that has one row for each token or one for all."""
        return values if values.shape[0] == 1 else self.part(values, rows)

    def kept_part(self, rows: slice) -> Tensor | None:
        """The block's rows of the kept assignments, None if these were not kept."""
        if self.kept is None or rows.stop > self.kept.shape[0]:
            return None
        return self.part(self.kept, rows)

    def tokens(self, rows: slice) -> Tensor:
        """Centred tokens x, zero where masked: masked content goes no further than here."""
        z = self.part(self.z, rows)
        if self.center is not None:
            z = torch.sub(z, self.center, out=self.narrow("x", rows))
        elif z.dtype != self.points.dtype or self.mask is not None:
            z = self.narrow("x", rows).copy_(z)
        return z if self.mask is None else z.masked_fill_(~self.mask[rows, None], 0.0)

    def scores(self, x: Tensor, rows: slice) -> Tensor:
        """scale g = scale (2 x . p - |p|^2), largest for the nearest prototype."""
        return torch.addmm(self.bias, x, self.toward, out=self.wide("scores", rows))

    def room_for_q(self, rows: slice) -> Tensor:
        """Where the block's assignments go, (n, K): to those kept if there is room for them there, else to scratch."""
        kept = self.kept_part(rows)
        return self.wide("q", rows) if kept is None else kept

    def assignments(self, deficit: Tensor, rows: slice, partition: Tensor | None = None) -> Tensor:
        """q from -scale Delta; the partition sum Z goes where it is wanted, (n,)."""
        q = self.room_for_q(rows)
        if self.folded:
            torch.exp2(deficit, out=q)  # two thirds of what e^x costs on a CPU
        else:
            torch.mul(deficit, self.rows_of(self.per_temperature, rows), out=q).exp_()
        partition = torch.sum(q, -1, out=partition)
        return q.mul_(partition.reciprocal().unsqueeze(-1))

    def half_pair_distances(self) -> Tensor:
        """D / 2 with D_jk = |p_j - p_k|^2, so that V = q . (D / 2) q."""
        half_norm = self.squared_norm / 2
        half = torch.addmm(half_norm, self.points, self.toward, alpha=-0.5 / self.scale).add_(half_norm[:, None])
        return half.clamp_min_(0.0).fill_diagonal_(0.0)
