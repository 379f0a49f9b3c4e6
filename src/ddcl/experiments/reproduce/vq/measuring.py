"""Figures of an autoencoder: of the codes over an epoch of training, of everything on pictures it has not seen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ddcl.experiments.reproduce.vq.autoencoder import prepared
from ddcl.experiments.reproduce.vq.quantisers import Coded
from ddcl.functional import perplexity

if TYPE_CHECKING:
    from ddcl.experiments.reproduce.vq.training import Autoencoder

PAPER_SHARE = 0.01
"""The paper counts a code as used if its mean assignment is above this."""


class EpochCounts:
    """How often each code was taken since the last look; nothing waits for the device in between."""

    def __init__(self, num_codes: int, device: torch.device | str) -> None:
        self.counts = torch.zeros(num_codes, dtype=torch.float64, device=device)
        self.error = torch.zeros((), dtype=torch.float64, device=device)
        self.steps = 0

    @torch.no_grad()
    def add(self, coded: Coded, error: Tensor) -> None:
        """One more batch."""
        indices = coded.indices.reshape(-1)
        self.counts.index_add_(0, indices, torch.ones_like(indices, dtype=torch.float64))
        self.error += error
        self.steps += 1

    def read(self) -> dict[str, float]:
        """The figures, and start again."""
        shares = self.counts / self.counts.sum().clamp_min(1)
        found = {
            "train_mse": float(self.error) / max(self.steps, 1),
            "usage": float((shares > 0).double().mean()),
            "perplexity": float(perplexity(self.counts)),
            "frequent": float((shares > PAPER_SHARE).double().mean()),
        }
        self.counts.zero_()
        self.error.zero_()
        self.steps = 0
        return found


@torch.no_grad()
def evaluate(model: Autoencoder, images: Tensor, device: torch.device | str, *, batch: int = 500) -> dict[str, float]:
    """Hard and soft reconstruction, PSNR, usage and perplexity on pictures uint8 (N, 32, 32, 3)."""
    model.eval()
    codes = model.quantiser.num_codes
    counts = torch.zeros(codes, dtype=torch.float64, device=device)
    mass, gaps, soft_errors = torch.zeros_like(counts), [], []
    errors: list[Tensor] = []
    for part in images.split(batch):
        x = prepared(part.to(device))
        coded = model.quantiser.hard(model.tokens(x))
        errors.append(_errors(model.pictures(coded.value), x))
        counts += torch.bincount(coded.indices.reshape(-1), minlength=codes).double()
        if coded.soft is not None and coded.soft_mass is not None and coded.gap is not None:
            soft_errors.append(_errors(model.pictures(coded.soft), x))
            mass += coded.soft_mass.double() * len(part)
            gaps.append(float(coded.gap) * len(part))
    found = torch.cat(errors)
    result = {
        "mse": float(found.mean()),
        "psnr": float(psnr(found).mean()),
        "usage": float((counts > 0).double().mean()),
        "perplexity": float(perplexity(counts)),
        "relative_perplexity": float(perplexity(counts)) / codes,
        "paper_usage": float((counts / counts.sum() > PAPER_SHARE).double().mean()),
    }
    if soft_errors:
        soft = float(torch.cat(soft_errors).mean())
        result |= {
            "soft_mse": soft,
            "gap": sum(gaps) / len(images),
            "mse_gap": result["mse"] / soft - 1 if soft > 0 else math.nan,
            "paper_usage": float((mass / len(images) > PAPER_SHARE).double().mean()),
        }
    return result


def psnr(errors: Tensor) -> Tensor:
    """Decibels of pictures with values from 0 to 1."""
    return -10 * errors.clamp_min(1e-12).log10()


def _errors(drawn: Tensor, x: Tensor) -> Tensor:
    """Mean squared error of each picture, its values kept to what a pixel can be."""
    return (drawn.clamp(-0.5, 0.5) - x).square().mean((1, 2, 3)).double()
