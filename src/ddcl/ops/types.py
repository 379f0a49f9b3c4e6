"""What every backend takes and gives back."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

Gradient = Literal["full", "stop"]
"""``full`` differentiates the assignments q too; ``stop`` holds them constant (theory: section 3)."""

Backend = Literal["auto", "reference", "eager", "triton"]

GRADIENTS: tuple[str, ...] = get_args(Gradient)
BACKENDS: tuple[str, ...] = get_args(Backend)


class TokenTerms(NamedTuple):
    """The operation's result, one entry per token and head; a masked token has zeros and index -1.

    ``centroid`` has the dtype of the tokens, the loss terms the dtype of the arithmetic.
    """

    centroid: Tensor  # (N, H, m)  mu = sum_k q_k p_k
    total: Tensor  # (N, H)  L = sum_k q_k |z - p_k|^2
    reconstruction: Tensor  # (N, H)  R = |z - mu|^2
    variance: Tensor  # (N, H)  V = sum_k q_k |p_k - mu|^2
    quantization: Tensor  # (N, H)  min_k |z - p_k|^2
    entropy: Tensor  # (N, H)  -sum_k q_k ln q_k
    indices: Tensor  # (N, H)  argmin_k |z - p_k|^2


class Upstream(NamedTuple):
    """Gradients that arrive from above, None where an output was not used."""

    centroid: Tensor | None
    total: Tensor | None
    reconstruction: Tensor | None
    variance: Tensor | None
    quantization: Tensor | None
    entropy: Tensor | None


class InputGradients(NamedTuple):
    """Gradients handed down, None where an input needs none."""

    z: Tensor | None
    prototypes: Tensor | None
    temperature: Tensor | None


def arithmetic_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype the arithmetic is done in: float64 for float64, float32 for everything else."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def empty_terms(z: Tensor) -> TokenTerms:
    """Uninitialised outputs for tokens ``z``."""
    like = torch.empty(z.shape[:2], dtype=arithmetic_dtype(z.dtype), device=z.device)
    return TokenTerms(
        centroid=torch.empty_like(z, memory_format=torch.contiguous_format),
        total=like,
        reconstruction=torch.empty_like(like),
        variance=torch.empty_like(like),
        quantization=torch.empty_like(like),
        entropy=torch.empty_like(like),
        indices=torch.empty_like(like, dtype=torch.int64),
    )
