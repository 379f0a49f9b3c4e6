"""The largest eigenvalue of each of many symmetric matrices that are known only by their products."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ddcl.functional.checks import check_count
from ddcl.shapes import Float


class Eigenpairs(NamedTuple):
    """One pair for each matrix."""

    values: Tensor  # (K,)
    vectors: Tensor  # (K, m), of length one
    products: int


@torch.no_grad()
def largest_eigenpairs(
    product: Callable[[Tensor], Tensor], start: Float[Tensor, "K m"], *, steps: int = 64, tolerance: float = 1e-6
) -> Eigenpairs:
    r"""Lanczos' method for K matrices at once: :math:`x_k \mapsto A_k x_k` takes all rows in one call.

    The value found approaches the largest eigenvalue from below and is off by the square of the residual. Where a
    matrix has nothing new to say (its rank is used up), it waits for the others.

    Args:
        product: rows (K, m) to rows (K, m).
        start: the first directions, none of them zero; random numbers, so that nothing is orthogonal to them.
        steps: at most this many products; as many vectors of K m numbers are held.
        tolerance: the residual to stop at, relative to the largest eigenvalue in absolute value.

    Example:
        >>> diagonals = torch.tensor([[-1.0, 2.0, 7.0], [3.0, 0.0, 0.0]])
        >>> found = largest_eigenpairs(lambda x: diagonals * x, torch.ones(2, 3))
        >>> found.values.round(decimals=4)
        tensor([7., 3.])
    """
    check_count("steps", steps)
    K, m = start.shape
    steps = min(steps, m)
    eps = m * torch.finfo(start.dtype).eps
    basis = start.new_zeros(steps, K, m)
    basis[0] = start / start.norm(dim=-1, keepdim=True)
    alpha, beta = start.new_zeros(K, steps), start.new_zeros(K, steps)
    living = torch.ones(K, dtype=torch.bool, device=start.device)
    for j in range(steps):
        w = product(basis[j])
        # a matrix that has nothing new repeats its first entry, which lies within its spectrum and changes no end of it
        alpha[:, j] = torch.where(living, (basis[j] * w).sum(-1), alpha[:, 0])
        known = basis[: j + 1]
        for _ in range(2):  # twice: once leaves rounding that brings found directions back
            w = w - torch.einsum("jk,jkm->km", torch.einsum("jkm,km->jk", known, w), known)
        length = w.norm(dim=-1)
        living &= length > eps * torch.maximum(alpha.abs().amax(-1), beta.amax(-1))
        beta[:, j] = torch.where(living, length, 0.0)
        last = j + 1 == steps
        if last or j % 4 == 3:
            values, vectors = _tridiagonal(alpha[:, : j + 1], beta[:, :j])
            residual = beta[:, j] * vectors[:, -1, -1].abs()
            if last or bool((residual <= tolerance * values.abs().amax(-1)).all()):
                break
        basis[j + 1] = torch.where(living, w.mT / length.clamp_min(torch.finfo(w.dtype).tiny), 0.0).mT
    ritz = torch.einsum("kj,jkm->km", vectors[:, :, -1], known)
    lengths = ritz.norm(dim=-1, keepdim=True)
    # a matrix of nothing but zeros has no direction of its own
    return Eigenpairs(values[:, -1], torch.where(lengths > 0, ritz / lengths.clamp_min(eps), basis[0]), j + 1)


def _tridiagonal(diagonal: Float[Tensor, "K j"], off: Float[Tensor, "K i"]) -> tuple[Tensor, Tensor]:
    matrix = torch.diag_embed(diagonal)
    if off.shape[-1]:
        matrix = matrix + torch.diag_embed(off, 1) + torch.diag_embed(off, -1)
    values, vectors = torch.linalg.eigh(matrix)
    return values, vectors
