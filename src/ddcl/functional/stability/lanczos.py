"""Extreme eigenvalues and linear systems of symmetric matrices that are known only by their products."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ddcl.functional.checks import check_count
from ddcl.shapes import Float

Product = Callable[[Tensor], Tensor]
"""x -> A x for a symmetric matrix A and vectors x of length n."""


class Extremes(NamedTuple):
    """The two ends of a spectrum."""

    smallest: float
    largest: float
    smallest_vector: Tensor
    """(n,), of length one."""
    largest_vector: Tensor
    residual: float
    """Largest ``|A x - value x|`` of the two: an eigenvalue lies within it of each value."""
    products: int
    """How many products with A it took."""


def dense_extremes(matrix: Float[Tensor, "n n"]) -> Extremes:
    """The ends of the spectrum of a symmetric matrix that is at hand.

    Example:
        >>> dense_extremes(torch.tensor([[2.0, 1.0], [1.0, 2.0]])).largest
        3.0
    """
    values, vectors = torch.linalg.eigh(matrix)
    ends = vectors[:, [0, -1]]
    residual = float((matrix @ ends - ends * values[[0, -1]]).norm(dim=0).max())
    return Extremes(float(values[0]), float(values[-1]), ends[:, 0], ends[:, 1], residual, 0)


@torch.no_grad()
def lanczos_extremes(
    product: Product,
    start: Float[Tensor, " n"],
    *,
    steps: int = 200,
    tolerance: float = 1e-8,
) -> Extremes:
    r"""Smallest and largest eigenvalue of a symmetric matrix from its products, by Lanczos' method.

    After j products :math:`A Q_j = Q_j T_j + \beta_j q_{j+1} e_j^\top`; an eigenpair :math:`(\theta, s)` of the small
    tridiagonal :math:`T_j` gives the Ritz pair :math:`(\theta, Q_j s)` with residual :math:`\beta_j |s_j|`. The values
    approach the ends from inside, so a negative ``smallest`` proves a negative eigenvalue, while a positive one says
    only that none was found: a start that is orthogonal to an eigenvector never sees it. Start from random numbers.

    Every new direction is made orthogonal to all before it, twice: without that, rounding brings found directions back
    as copies. The basis of ``steps`` vectors is what it holds in memory.

    Args:
        product: x -> A x.
        start: the first direction, any length but zero; its dtype is the dtype of the arithmetic.
        steps: at most this many products.
        tolerance: the residual to stop at, relative to the largest eigenvalue in absolute value.

    Example:
        >>> diagonal = torch.tensor([-1.0, 2.0, 7.0])
        >>> ends = lanczos_extremes(lambda x: diagonal * x, torch.ones(3))
        >>> round(ends.smallest, 5), round(ends.largest, 5), ends.products
        (-1.0, 7.0, 3)
    """
    check_count("steps", steps)
    n = len(start)
    length = float(start.norm())
    if not 0 < length < float("inf"):
        raise ValueError(f"start: got a vector of length {length}, expected a finite one that is not zero")
    basis = start.new_empty(min(steps, n), n)
    basis[0] = start / length
    alpha: list[float] = []
    beta: list[float] = []
    size = 0.0  # of the largest entry of T_j, to tell rounding from a new direction
    for j in range(len(basis)):
        w = product(basis[j])
        alpha.append(float(basis[j] @ w))
        known = basis[: j + 1]
        for _ in range(2):
            w = w - known.mT @ (known @ w)
        beta.append(float(w.norm()))
        size = max(size, abs(alpha[-1]), *beta[:-1], 0.0)
        # nothing new is left: the directions found span a space that A maps into itself
        exhausted = j + 1 == n or beta[-1] <= n * torch.finfo(start.dtype).eps * size
        last = exhausted or j + 1 == len(basis)
        if last or j % 5 == 4:
            values, vectors = _tridiagonal(alpha, beta)
            ends = vectors[:, [0, -1]]
            residuals = ends[-1].abs() * (0.0 if exhausted else beta[-1])
            if last or float(residuals.max()) <= tolerance * float(values.abs().max()):
                break
        basis[j + 1] = w / beta[-1]
    ritz = known.mT @ ends.to(start)
    ritz = ritz / ritz.norm(dim=0)
    return Extremes(float(values[0]), float(values[-1]), ritz[:, 0], ritz[:, 1], float(residuals.max()), j + 1)


def _tridiagonal(alpha: list[float], beta: list[float]) -> tuple[Tensor, Tensor]:
    off = torch.tensor(beta[:-1], dtype=torch.float64)
    matrix = torch.diag(torch.tensor(alpha, dtype=torch.float64)) + torch.diag(off, 1) + torch.diag(off, -1)
    values, vectors = torch.linalg.eigh(matrix)
    return values, vectors


class Solution(NamedTuple):
    """What conjugate gradients found."""

    x: Tensor
    residual: float
    """``|A x - b| / |b|``, computed anew at the end."""
    products: int


@torch.no_grad()
def conjugate_gradients(
    product: Product, b: Float[Tensor, " n"], *, steps: int = 1000, tolerance: float = 1e-10
) -> Solution:
    """Solve A x = b for a positive definite A from its products.

    Args:
        product: x -> A x.
        b: the right-hand side.
        steps: at most this many products.
        tolerance: the relative residual to stop at.

    Example:
        >>> conjugate_gradients(lambda x: 2 * x, torch.tensor([2.0, 4.0])).x
        tensor([1., 2.])
    """
    check_count("steps", steps)
    x = torch.zeros_like(b)
    scale = float(b.norm())
    if scale == 0:
        return Solution(x, 0.0, 0)
    r = b.clone()
    direction, squared, used = r, float(r @ r), 0
    while used < steps and squared > (tolerance * scale) ** 2:
        moved = product(direction)
        used += 1
        curvature = float(direction @ moved)
        if curvature <= 0:  # rounding, or A is not positive definite: what was found is the best there is
            break
        x = x + (squared / curvature) * direction
        r = r - (squared / curvature) * moved
        before, squared = squared, float(r @ r)
        direction = r + (squared / before) * direction
    return Solution(x, float((product(x) - b).norm()) / scale, used + 1)
