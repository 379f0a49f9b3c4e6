"""Hard quantisers of the package vector-quantize-pytorch, in the shape the experiments need."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

Kind = Literal["straight-through", "ema"]
STRAIGHT_THROUGH: Kind = "straight-through"
EMA: Kind = "ema"


class HardQuantizer(nn.Module):
    """Tokens to their nearest code; codes move by gradient (straight-through VQ) or by running means (EMA VQ).

    Settings are the package's own defaults; codes of the straight-through kind are learned by the commitment loss with
    its gradient let through to both sides, as in the VQ-VAE.
    """

    def __init__(self, kind: Kind, num_prototypes: int, dim: int) -> None:
        super().__init__()
        if kind not in (STRAIGHT_THROUGH, EMA):
            raise ValueError(f"kind: got {kind!r}, expected {STRAIGHT_THROUGH!r} or {EMA!r}")
        try:
            from vector_quantize_pytorch import VectorQuantize
        except ImportError as error:
            raise ImportError(
                "the rivals need the package vector-quantize-pytorch: pip install 'ddcl[rivals]'"
            ) from error
        options: dict[str, Any] = {}
        if kind == STRAIGHT_THROUGH:
            options = {"learnable_codebook": True, "ema_update": False}
        self.quantize = VectorQuantize(dim=dim, codebook_size=num_prototypes, **options)

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Quantised tokens, indices and loss of tokens (N, m)."""
        quantized, indices, loss = self.quantize(z.unsqueeze(0))
        return quantized.squeeze(0), indices.squeeze(0), loss.sum()

    @property
    @torch.no_grad()
    def codes(self) -> Tensor:
        """The codebook, (K, m)."""
        codes: Tensor = self.quantize.codebook
        return codes.detach()
