r"""When a bank merges and which prototype splits next (theory: section 4)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ddcl.functional.batches import Batches, token_batches
from ddcl.functional.checks import check_gradient, check_head_temperature, check_prototypes
from ddcl.functional.readout import assignments
from ddcl.ops import Gradient, squared_distances
from ddcl.ops.blocks import block_rows, row_blocks
from ddcl.shapes import Float

CRITICAL_FACTOR: dict[str, float] = {"full": 4.0, "stop": 2.0}
"""T_c in units of the largest variance of the data, by gradient mode."""


class Covariance(NamedTuple):
    """Moments of tokens in float64; per head where there are heads."""

    num_tokens: int
    mean: Tensor  # (m,) or (H, m)
    matrix: Tensor  # C, (m, m) or (H, m, m), divided by the count

    @property
    def trace(self) -> Tensor:
        """trace C, the mean squared distance from the mean."""
        return self.matrix.diagonal(dim1=-2, dim2=-1).sum(-1)

    @property
    def largest(self) -> Tensor:
        """The largest eigenvalue of C."""
        values: Tensor = torch.linalg.eigvalsh(self.matrix)
        return values[..., -1]


@torch.no_grad()
def covariance(z: Batches, *, mask: Tensor | None = None, num_heads: int | None = None) -> Covariance:
    """Mean and covariance (divided by N) of tokens, in one pass, exact far from the origin.

    Args:
        z: tokens (..., m), or (..., H, m) with ``num_heads``, or an iterable of batches or (batch, mask) pairs.
        mask: for a tensor z, true where a token counts.
        num_heads: H, if the tokens have a head axis; the moments are then per head.

    Example:
        >>> covariance(torch.tensor([[0.0, 0.0], [2.0, 0.0]])).matrix
        tensor([[1., 0.],
                [0., 0.]], dtype=torch.float64)
    """
    sums = MomentSums()
    for tokens in token_batches(z, mask, num_heads=num_heads):
        sums.add(tokens)
    found = sums.result()
    return found if num_heads else Covariance(found.num_tokens, found.mean[0], found.matrix[0])


class MomentSums:
    """Mean and scatter per head, gathered over batches in float64."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: Tensor | None = None
        self.scatter: Tensor | None = None

    @torch.no_grad()
    def add(self, tokens: Float[Tensor, "N H m"]) -> None:
        """Take in a batch."""
        if not len(tokens):
            return
        x = tokens.to(torch.float64).transpose(0, 1)  # (H, n, m)
        batch_mean = x.mean(1)
        x = x - batch_mean.unsqueeze(1)
        batch_scatter = x.mT @ x
        if self.mean is None or self.scatter is None:
            self.count, self.mean, self.scatter = len(tokens), batch_mean, batch_scatter
            return
        # two sets of moments into one (Chan, Golub and LeVeque)
        merged = self.count + len(tokens)
        shift = batch_mean - self.mean
        between = shift.unsqueeze(-1) * shift.unsqueeze(-2) * (self.count * len(tokens) / merged)
        self.scatter = self.scatter + batch_scatter + between
        self.mean = self.mean + shift * (len(tokens) / merged)
        self.count = merged

    def result(self) -> Covariance:
        """Moments per head, (H, m) and (H, m, m)."""
        if self.mean is None or self.scatter is None:
            raise ValueError("z: got no unmasked tokens, expected at least one")
        return Covariance(self.count, self.mean, self.scatter / self.count)


def critical_temperature(
    z: Batches, *, gradient: Gradient = "full", mask: Tensor | None = None, num_heads: int | None = None
) -> Tensor:
    r"""The temperature below which the merged bank, all prototypes at the mean, is never a resting place.

    .. math::
        T_c = 4\,\lambda_{\max}(\operatorname{cov} z) \text{ in mode full}, \qquad
        T_c = 2\,\lambda_{\max}(\operatorname{cov} z) \text{ in mode stop}

    Above it the merged bank is stable: a bank that comes near falls in. (Not every bank must: a few tokens far from the
    rest can hold a prototype of their own above T_c.) Arguments as in :func:`covariance`; a float64 scalar comes back,
    or one per head.

    Example:
        >>> z = torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
        >>> critical_temperature(z), critical_temperature(z, gradient="stop")
        (tensor(4., dtype=torch.float64), tensor(2., dtype=torch.float64))
    """
    check_gradient(gradient)
    return CRITICAL_FACTOR[gradient] * covariance(z, mask=mask, num_heads=num_heads).largest


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
) -> SplitModes:
    """Margins, directions and masses of :func:`split_margins`, whose arguments it takes."""
    check_gradient(gradient)
    check_prototypes(prototypes)
    num_heads = prototypes.shape[0] if prototypes.dim() == 3 else None
    check_head_temperature(temperature, num_heads)
    banks = (prototypes if num_heads else prototypes[None]).double()
    temperatures = torch.as_tensor(temperature, dtype=torch.float64, device=banks.device)
    temperatures = temperatures.flatten().expand(len(banks))
    sums = [SplitSums(bank, float(t), gradient) for bank, t in zip(banks, temperatures, strict=True)]
    for tokens in token_batches(z, mask, num_heads=num_heads, dim=prototypes.shape[-1]):
        for head, one in enumerate(sums):
            one.add(tokens[:, head].double())
    margins, directions, masses = (torch.stack(parts) for parts in zip(*(one.result() for one in sums), strict=True))
    return SplitModes(margins, directions, masses) if num_heads else SplitModes(margins[0], directions[0], masses[0])


class SplitSums:
    """The sums in A_k for one bank, gathered over batches."""

    def __init__(self, bank: Tensor, temperature: float, gradient: Gradient) -> None:
        self.bank, self.temperature, self.gradient = bank, temperature, gradient
        K, m = bank.shape
        labels = torch.unique(bank, dim=0, return_inverse=True)[1]
        self.members = (labels[:, None] == labels).double()  # which prototypes coincide
        self.mass = bank.new_zeros(K)
        self.identity = bank.new_zeros(K)
        # moments of the weighted tokens about one origin; result() moves them to each prototype
        self.origin = bank.mean(0)
        self.weight = bank.new_zeros(K)
        self.first = bank.new_zeros(K, m)
        self.second = bank.new_zeros(K, m * m)

    def add(self, x: Float[Tensor, "N m"]) -> None:
        """Take in tokens, in the dtype of the bank."""
        T = self.temperature
        K, m = self.bank.shape
        for rows in row_blocks(len(x), block_rows(len(x), max(K, m * m), x.device)):
            block = x[rows]
            distances = squared_distances(block, self.bank)
            q = assignments(block, self.bank, T)
            excess = (distances - (q * distances).sum(-1, keepdim=True)) / T  # g
            q = q @ self.members
            self.mass += q.sum(0)
            identity, outer = (q, q) if self.gradient == "stop" else (q * (1 - excess), q * (1 - excess / 2))
            self.identity += identity.sum(0)
            shifted = block - self.origin
            self.weight += outer.sum(0)
            self.first += outer.mT @ shifted
            self.second += outer.mT @ (shifted.unsqueeze(-1) * shifted.unsqueeze(-2)).flatten(1)

    def result(self) -> tuple[Tensor, Tensor, Tensor]:
        """Margins (K,), directions (K, m) and masses (K,)."""
        eye = torch.eye(self.bank.shape[1], dtype=self.bank.dtype, device=self.bank.device)
        factor = CRITICAL_FACTOR[self.gradient] / self.temperature
        p = self.bank - self.origin
        cross = self.first.unsqueeze(-1) * p.unsqueeze(-2)
        own = self.weight[:, None, None] * p.unsqueeze(-1) * p.unsqueeze(-2)
        outer = self.second.reshape(cross.shape) - cross - cross.mT + own  # sum of (z - p)(z - p)'
        values, vectors = torch.linalg.eigh(self.identity[:, None, None] * eye - factor * outer)
        return values[:, 0], vectors[:, :, 0], self.mass
