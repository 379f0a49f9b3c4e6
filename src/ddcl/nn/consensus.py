"""What many k-means runs agree on: vectors whose distances count disagreements."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ddcl.functional import covariance, kmeans
from ddcl.functional.checks import check_count
from ddcl.ops import autocast_off, nearest
from ddcl.ops.blocks import block_rows, row_blocks
from ddcl.shapes import Float, Int


class ConsensusEncoder(nn.Module):
    r"""Tokens to vectors that are close if most of R k-means runs put them into one cell; it stands before a bank.

    .. math:: \lVert v(x) - v(y) \rVert^2 = \frac{2}{R}\,\#\{r : c_r(x) \neq c_r(y)\}

    where :math:`c_r(x)` is the nearest centre of run r; exact if ``out_dim`` is R (K - 1), otherwise its best
    approximation in ``out_dim`` dimensions (principal components). A run of k-means ends where its start leads it; what
    is the same in most of them belongs to the data. A bank on these vectors differs less from seed to seed.

    Nothing here has a gradient. Fitting takes (R K)^2 numbers, never N x R K.

    Args:
        dim: m of the tokens.
        num_prototypes: K of each run.
        out_dim: of the vectors that come out, at most R (K - 1), beyond which nothing is left.
        num_runs: R.

    Example:
        >>> x = torch.tensor([[0.0], [0.1], [5.0], [5.1]])
        >>> v = ConsensusEncoder(1, 2, 2, num_runs=3).fit(x)(x)
        >>> torch.cdist(v, v).square()[0].round(decimals=4)
        tensor([0., 0., 2., 2.])
    """

    centers: Tensor
    table: Tensor

    def __init__(
        self,
        dim: int,
        num_prototypes: int,
        out_dim: int = 64,
        *,
        num_runs: int = 20,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("dim", dim), ("out_dim", out_dim), ("num_runs", num_runs)):
            check_count(name, value)
        check_count("num_prototypes", num_prototypes, 2)
        if out_dim > num_runs * (num_prototypes - 1):
            raise ValueError(f"out_dim: got {out_dim}, expected at most R (K - 1) = {num_runs * (num_prototypes - 1)}")
        self.dim, self.num_prototypes, self.out_dim, self.num_runs = dim, num_prototypes, out_dim, num_runs
        self.register_buffer("centers", torch.zeros(num_runs, num_prototypes, dim, device=device, dtype=dtype))
        # one row for each centre of each run: a vector is the sum of the rows of its cells
        self.register_buffer("table", torch.zeros(num_runs * num_prototypes, out_dim, device=device, dtype=dtype))

    @torch.no_grad()
    def fit(self, x: Float[Tensor, "N m"], *, generator: torch.Generator | None = None) -> ConsensusEncoder:
        """Run k-means from R starts, and keep what sets the runs apart."""
        runs = [kmeans(x, self.num_prototypes, restarts=1, generator=generator) for _ in range(self.num_runs)]
        self.centers.copy_(torch.stack([run.centers for run in runs]))
        moments = covariance(self._one_hot(self.codes(x)))
        leading = torch.linalg.eigh(moments.matrix).eigenvectors.flip(-1)[:, : self.out_dim]
        # one run, one share of the mean: the rows of any R cells sum to their code about the mean of all
        centred = leading - (moments.mean @ leading) / self.num_runs
        self.table.copy_(centred / self.num_runs**0.5)
        return self

    def codes(self, x: Float[Tensor, "N m"]) -> Int[Tensor, "N R"]:
        """The cell of each token in each run, counted through all runs."""
        x = x.to(self.centers.dtype)
        return torch.stack(
            [nearest(x, run)[0] + number * self.num_prototypes for number, run in enumerate(self.centers)], -1
        )

    @torch.no_grad()
    def forward(self, x: Float[Tensor, "*batch m"]) -> Float[Tensor, "*batch d"]:
        """Tokens (..., m) to (..., out_dim)."""
        with autocast_off(x):
            found = F.embedding_bag(self.codes(x.reshape(-1, self.dim)), self.table, mode="sum")
        return found.to(x.dtype).reshape(*x.shape[:-1], self.out_dim)

    def _one_hot(self, codes: Tensor) -> Iterator[Tensor]:
        """Blocks of rows with a one in each run's part."""
        width = len(self.table)
        for rows in row_blocks(len(codes), block_rows(len(codes), width, codes.device)):
            block = codes[rows]
            yield torch.zeros(len(block), width, device=codes.device).scatter_(1, block, 1.0)

    def extra_repr(self) -> str:
        """Sizes, for ``repr``."""
        return f"{self.dim}, {self.num_prototypes}, {self.out_dim}, num_runs={self.num_runs}"
