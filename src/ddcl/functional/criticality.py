r"""When a whole bank merges (theory: section 4)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ddcl.functional.batches import Batches, token_batches
from ddcl.functional.checks import check_gradient
from ddcl.ops import Gradient
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
