"""The assignments of one head, block by block, with the buffers its blocks share."""

from __future__ import annotations

import torch
from torch import Tensor

from ddcl.ops.blocks import block_rows, row_blocks
from ddcl.ops.centring import bank_center, worth_centring
from ddcl.ops.types import arithmetic_dtype
from ddcl.shapes import Bool, Float


class Assigner:
    """One head's bank in the arithmetic's dtype, centred, and the scratch its blocks of tokens share.

    Fresh memory costs more than arithmetic at these sizes (the system hands out zeroed pages), so each block
    is worked out in place.
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
        self.z, self.mask, self.kept = z, mask, kept
        self.count, self.width = z.shape[0], bank.shape[0]
        self.points = bank  # (K, m)
        self.center: Tensor | None = None
        self.squared_norm = bank.square().sum(-1)  # (K,)
        # on a CPU two passes over the tokens can be saved; on a GPU looking would mean waiting
        if bank.device.type != "cpu" or worth_centring(bank, self.squared_norm):
            self.center = bank_center(bank).squeeze(0)
            self.points = bank - self.center
            self.squared_norm = self.points.square().sum(-1)
        self.doubled = (2 * self.points).mT.contiguous()  # (m, K): products run fastest row-major
        # 1 / T stays finite even for the smallest T, so that 0 / T is 0
        self.per_temperature = temperature.reciprocal().clamp_max_(torch.finfo(bank.dtype).max).unsqueeze(-1)
        self._rows = block_rows(self.count, max(bank.shape), z.device)
        self._scratch: dict[str, Tensor] = {}

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
        """g = 2 x . p - |p|^2, largest for the nearest prototype."""
        return torch.mm(x, self.doubled, out=self.wide("scores", rows)).sub_(self.squared_norm)

    def assignments(self, scores: Tensor, best: Tensor, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        """-Delta (in place of the scores), q and the partition sum Z, (n, 1)."""
        deficit = scores.sub_(best)
        kept = self.kept_part(rows)
        q = self.wide("q", rows) if kept is None else kept
        torch.mul(deficit, self.rows_of(self.per_temperature, rows), out=q).exp_()
        partition = q.sum(-1, keepdim=True)
        return deficit, q.mul_(partition.reciprocal()), partition

    def half_pair_distances(self) -> Tensor:
        """D / 2 with D_jk = |p_j - p_k|^2, so that V = q . (D / 2) q."""
        half_norm = self.squared_norm / 2
        half = torch.addmm(half_norm, self.points, self.doubled, alpha=-0.5).add_(half_norm[:, None])
        return half.clamp_min_(0.0).fill_diagonal_(0.0)
