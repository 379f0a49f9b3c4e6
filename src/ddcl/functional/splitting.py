"""Which prototype splits next, and along which direction (theory: section 4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ddcl.functional.batches import Batches, token_batches
from ddcl.functional.checks import check_gradient, check_head_temperature, check_prototypes
from ddcl.functional.criticality import CRITICAL_FACTOR
from ddcl.functional.largest_eigenpairs import largest_eigenpairs
from ddcl.functional.readout import assignments
from ddcl.ops import Gradient, squared_distances
from ddcl.ops.blocks import KEPT_NUMBERS, block_rows, row_blocks
from ddcl.shapes import Float

WIDEST_DENSE = 64
"""Largest dimension m at which the matrices A_k are built: that costs N K m^2, products with them N K m each."""


class SplitModes(NamedTuple):
    """For each prototype, whether two copies of it would part, and along which direction."""

    margins: Tensor
    """Smallest eigenvalue of A_k, (K,) or (H, K): negative where the prototype splits."""
    directions: Tensor
    """The unit vector of that eigenvalue, (K, m) or (H, K, m)."""
    mass: Tensor
    """Sum of the prototype's responsibilities over tokens, (K,) or (H, K); ``margins / mass`` is dimensionless."""


def split_margins(
    z: Batches,
    prototypes: Float[Tensor, "K m"] | Float[Tensor, "H K m"],
    temperature: float | Tensor,
    *,
    gradient: Gradient = "full",
    mask: Tensor | None = None,
) -> Tensor:
    r"""The smallest eigenvalue of :math:`A_k` for each prototype: negative where it is about to split.

    .. math::
        \text{full:}\quad A_k = \sum_n q_n (1 - g_n)\,I - \tfrac4T \sum_n q_n (1 - \tfrac{g_n}{2})\, x_n x_n^\top,
        \qquad
        \text{stop:}\quad A_k = \sum_n q_n\,I - \tfrac2T \sum_n q_n\, x_n x_n^\top

    with :math:`x_n = z_n - p_k`, :math:`g_n = (|x_n|^2 - L_n)/T` and :math:`q_n` the joint responsibility of all
    prototypes that coincide with :math:`p_k`. Sums run over tokens, so :math:`2 A_k` is the Hessian of the summed
    loss along the splitting direction.

    Args:
        z: tokens (..., m), or (..., H, m) for a bank (H, K, m), or an iterable of batches or (batch, mask) pairs.
        prototypes: the bank.
        temperature: a number, a scalar tensor or one per head.
        gradient: the mode the bank is trained in.
        mask: for a tensor z, true where a token counts.

    Example:
        >>> z = torch.tensor([[-1.0], [1.0]])  # T_c = 4
        >>> [split_margins(z, torch.zeros(2, 1), T).sign().tolist() for T in (3.9, 4.1)]
        [[-1.0, -1.0], [1.0, 1.0]]
    """
    return split_modes(z, prototypes, temperature, gradient=gradient, mask=mask).margins


@torch.no_grad()
def split_modes(
    z: Batches,
    prototypes: Float[Tensor, "K m"] | Float[Tensor, "H K m"],
    temperature: float | Tensor,
    *,
    gradient: Gradient = "full",
    mask: Tensor | None = None,
    tolerance: float = 1e-8,
) -> SplitModes:
    """Margins, directions and masses of :func:`split_margins`, whose arguments it takes.

    Up to m = 64 the matrices are built in one pass over the batches. Beyond, Lanczos' method needs their products only;
    it keeps the tokens in memory and stops at a residual of ``tolerance`` relative to the largest eigenvalue.
    """
    check_gradient(gradient)
    check_prototypes(prototypes)
    num_heads = prototypes.shape[0] if prototypes.dim() == 3 else None
    check_head_temperature(temperature, num_heads)
    banks = (prototypes if num_heads else prototypes[None]).double()
    temperatures = torch.as_tensor(temperature, dtype=torch.float64, device=banks.device)
    temperatures = temperatures.flatten().expand(len(banks))
    kind = SplitSums if banks.shape[-1] <= WIDEST_DENSE else SplitProducts
    sums = [kind(bank, float(t), gradient) for bank, t in zip(banks, temperatures, strict=True)]
    for tokens in token_batches(z, mask, num_heads=num_heads, dim=prototypes.shape[-1]):
        for head, one in enumerate(sums):
            one.add(tokens[:, head])
    parts = zip(*(one.result(tolerance) for one in sums), strict=True)
    margins, directions, masses = (torch.stack(part) for part in parts)
    return SplitModes(margins, directions, masses) if num_heads else SplitModes(margins[0], directions[0], masses[0])


class _Weights:
    """How much each token counts in the A_k of one bank."""

    def __init__(self, bank: Float[Tensor, "K m"], temperature: float, gradient: Gradient) -> None:
        self.bank, self.temperature, self.gradient = bank, temperature, gradient
        labels = torch.unique(bank, dim=0, return_inverse=True)[1]
        self.members = (labels[:, None] == labels).double()  # which prototypes coincide

    def of(self, tokens: Float[Tensor, "n m"]) -> tuple[Tensor, Tensor, Tensor]:
        """Responsibilities, and the weights of the identity and of the outer products in A_k; each (n, K)."""
        T = self.temperature
        distances = squared_distances(tokens, self.bank)
        q = assignments(tokens, self.bank, T)
        excess = (distances - (q * distances).sum(-1, keepdim=True)) / T  # g
        q = q @ self.members
        return (q, q, q) if self.gradient == "stop" else (q, q * (1 - excess), q * (1 - excess / 2))


class SplitSums:
    """A_k for one bank as matrices, gathered over batches in one pass."""

    def __init__(self, bank: Float[Tensor, "K m"], temperature: float, gradient: Gradient) -> None:
        self.weights = _Weights(bank, temperature, gradient)
        self.bank, self.factor = bank, CRITICAL_FACTOR[gradient] / temperature
        K, m = bank.shape
        self.mass = bank.new_zeros(K)
        self.identity = bank.new_zeros(K)
        # moments of the weighted tokens about one origin; result() moves them to each prototype
        self.origin = bank.mean(0)
        self.weight = bank.new_zeros(K)
        self.first = bank.new_zeros(K, m)
        self.second = bank.new_zeros(K, m * m)

    def add(self, tokens: Float[Tensor, "N m"]) -> None:
        """Take in tokens."""
        K, m = self.bank.shape
        for rows in row_blocks(len(tokens), block_rows(len(tokens), max(K, m * m), tokens.device)):
            block = tokens[rows].to(self.bank.dtype)
            q, identity, outer = self.weights.of(block)
            self.mass += q.sum(0)
            self.identity += identity.sum(0)
            shifted = block - self.origin
            self.weight += outer.sum(0)
            self.first += outer.mT @ shifted
            self.second += outer.mT @ (shifted.unsqueeze(-1) * shifted.unsqueeze(-2)).flatten(1)

    def result(self, tolerance: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ARG002
        """Margins (K,), directions (K, m) and masses (K,), whatever the tolerance."""
        eye = torch.eye(self.bank.shape[1], dtype=self.bank.dtype, device=self.bank.device)
        p = self.bank - self.origin
        cross = self.first.unsqueeze(-1) * p.unsqueeze(-2)
        own = self.weight[:, None, None] * p.unsqueeze(-1) * p.unsqueeze(-2)
        outer = self.second.reshape(cross.shape) - cross - cross.mT + own  # sum of (z - p)(z - p)'
        values, vectors = torch.linalg.eigh(self.identity[:, None, None] * eye - self.factor * outer)
        return values[:, 0], vectors[:, :, 0], self.mass


class _Cells:
    """Tokens about their prototypes, cell by cell, without those that weigh nothing there."""

    def __init__(self, bank: Tensor, tokens: Tensor, weights: Tensor, heavy: Tensor) -> None:
        cells, rows = heavy.mT.nonzero(as_tuple=True)
        sizes = torch.bincount(cells, minlength=len(bank)).tolist()
        self.tokens = (tokens[rows] - bank[cells]).split(sizes)
        self.weights = weights[rows, cells].split(sizes)

    def spread(self, vectors: Float[Tensor, "K m"]) -> Float[Tensor, "K m"]:
        """As :meth:`SplitProducts._spread`."""
        cells = zip(self.tokens, self.weights, vectors, strict=True)
        return torch.stack([(weights * (x @ vector)) @ x for x, weights, vector in cells])


class SplitProducts:
    """A_k for one bank by its products with vectors, for dimensions at which K matrices cost too much."""

    def __init__(self, bank: Float[Tensor, "K m"], temperature: float, gradient: Gradient) -> None:
        self.weights = _Weights(bank, temperature, gradient)
        self.bank, self.factor = bank, CRITICAL_FACTOR[gradient] / temperature
        self.tokens: list[Tensor] = []
        self.origin = bank.mean(0)
        self._kept: dict[tuple[int, int], Tensor] = {}

    def add(self, tokens: Float[Tensor, "N m"]) -> None:
        """Keep tokens."""
        self.tokens.append(tokens)

    def result(self, tolerance: float) -> tuple[Tensor, Tensor, Tensor]:
        """Margins (K,), directions (K, m) and masses (K,), the directions to a tolerance."""
        mass, identity = self.bank.new_zeros(len(self.bank)), self.bank.new_zeros(len(self.bank))
        for place, block in self._blocks():
            q, ones, outer = self.weights.of(block)
            mass += q.sum(0)
            identity += ones.sum(0)
            if (len(self._kept) + 1) * outer.numel() <= KEPT_NUMBERS:
                self._kept[place] = outer  # every product needs them again
        # the same start for every cell and on every run
        random = torch.Generator().manual_seed(0)
        start = torch.randn(1, self.bank.shape[1], generator=random, dtype=self.bank.dtype).to(self.bank.device)
        cells = self._cells()
        product = self._spread if cells is None else cells.spread
        found = largest_eigenpairs(product, start.expand_as(self.bank), tolerance=tolerance)
        return identity - self.factor * found.values, found.vectors, mass

    def _cells(self) -> _Cells | None:
        """Each cell with its own tokens, if the bank is so cold that most tokens weigh nothing in most cells."""
        blocks = list(self._blocks())
        if len(self._kept) < len(blocks) or not blocks:
            return None
        weights = torch.cat([self._kept[place] for place, _ in blocks])
        # what is left out of a cell is below 1e-12 of the heaviest token in it
        heavy = weights.abs() > 1e-12 * weights.abs().amax(0)
        pairs = int(heavy.sum())
        if pairs > weights.numel() // 4 or pairs * self.bank.shape[1] > KEPT_NUMBERS:
            return None
        return _Cells(self.bank, torch.cat([block for _, block in blocks]), weights, heavy)

    def _spread(self, vectors: Float[Tensor, "K m"]) -> Float[Tensor, "K m"]:
        """sum_n w_nk x_n x_n' v_k with x_n = z_n - p_k, for all k."""
        p = self.bank - self.origin
        along_own = (p * vectors).sum(-1)
        total = torch.zeros_like(self.bank)
        for place, block in self._blocks():
            outer = self._kept[place] if place in self._kept else self.weights.of(block)[2]
            shifted = block - self.origin
            pull = outer * (shifted @ vectors.mT - along_own)
            total += pull.mT @ shifted - pull.sum(0)[:, None] * p
        return total

    def _blocks(self) -> Iterator[tuple[tuple[int, int], Tensor]]:
        for batch, tokens in enumerate(self.tokens):
            for rows in row_blocks(len(tokens), block_rows(len(tokens), max(self.bank.shape), tokens.device)):
                yield (batch, rows.start), tokens[rows].to(self.bank.dtype)
