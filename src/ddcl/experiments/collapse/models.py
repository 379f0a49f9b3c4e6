"""Data with known clusters and the encoders in front of the bank."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ddcl.experiments.collapse.cases import Encoder
from ddcl.functional import Readout
from ddcl.nn import Normalisation, PrototypeBank, TokenNorm

INPUTS, WIDTH, CLUSTERS, POINTS = 32, 16, 16, 2048
_PARTS = 4  # the transformer sees an input as so many tokens


def mixture(scale: float, seed: int) -> Tensor:
    """Points of 16 Gaussian clusters in 32 dimensions, (2048, 32), times a scale."""
    source = torch.Generator().manual_seed(1000 + seed)
    centers = 2 * torch.randn(CLUSTERS, INPUTS, generator=source)
    chosen = torch.randint(CLUSTERS, (POINTS,), generator=source)
    return scale * (centers[chosen] + torch.randn(POINTS, INPUTS, generator=source))


class _Transformer(nn.Module):
    """An input cut into four tokens, one block, the mean of its tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(INPUTS // _PARTS, 32)
        self.block = nn.TransformerEncoderLayer(32, nhead=4, dim_feedforward=64, dropout=0.0, batch_first=True)
        self.out = nn.Linear(32, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x.reshape(len(x), _PARTS, -1))
        found: Tensor = self.out(self.block(tokens).mean(1))
        return found


def make_encoder(kind: Encoder) -> tuple[nn.Module, int]:
    """An encoder and the dimension it gives."""
    if kind == "linear":
        return nn.Linear(INPUTS, WIDTH), WIDTH
    if kind == "mlp":
        return nn.Sequential(nn.Linear(INPUTS, 64), nn.GELU(), nn.Linear(64, WIDTH)), WIDTH
    if kind == "transformer":
        return _Transformer(), WIDTH
    return nn.Identity(), INPUTS


class Clusterer(nn.Module):
    """Encoder, normalisation, bank."""

    def __init__(self, kind: Encoder, num_prototypes: int, normalisation: Normalisation) -> None:
        super().__init__()
        self.encoder, dim = make_encoder(kind)
        self.norm = TokenNorm(dim, normalisation)
        self.bank = PrototypeBank(num_prototypes, dim)

    def forward(self, x: Tensor) -> Readout:
        """The readout of inputs (N, 32)."""
        found: Readout = self.bank(self.norm(self.encoder(x)))
        return found
