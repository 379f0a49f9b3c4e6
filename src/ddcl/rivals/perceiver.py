"""The cross-attention of a Perceiver, of the package perceiver-pytorch, on one set of tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LatentReader(nn.Module):
    """K learned latents that attend to the tokens of one set, with one head of the tokens' dimension.

    The layer norms around the attention belong to it; the feed-forward part that follows in a Perceiver does not.
    """

    def __init__(self, num_latents: int, dim: int) -> None:
        super().__init__()
        try:
            from perceiver_pytorch import PerceiverBlock
        except ImportError as error:
            raise ImportError(
                "perceiver attention needs the package perceiver-pytorch: pip install 'ddcl[rivals]'"
            ) from error
        self.latents = nn.Parameter(torch.randn(num_latents, dim))
        self.attend = PerceiverBlock(dim=dim, context_dim=dim, cross_dim_head=dim, self_per_cross_attn=0).cross_attn

    def forward(self, z: Tensor) -> Tensor:
        """Latents (K, m) after one look at tokens (N, m)."""
        latents: Tensor = self.attend(self.latents.unsqueeze(0), context=z.unsqueeze(0))
        return latents.squeeze(0)
