"""The autoencoder of the VQ-VAE: 32x32 pictures to 8x8 tokens and back."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class Residual(nn.Module):
    """x + a small convolution of it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.wide = nn.Conv2d(channels, channels // 2, 3, padding=1)
        self.narrow = nn.Conv2d(channels // 2, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels, h, w), as it goes in."""
        changed: Tensor = self.narrow(F.relu(self.wide(F.relu(x))))
        return x + changed


def encoder(dim: int, width: int) -> nn.Sequential:
    """Pictures (B, 3, 32, 32) to maps (B, dim, 8, 8)."""
    return nn.Sequential(
        nn.Conv2d(3, width // 2, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(width // 2, width, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1),
        Residual(width),
        Residual(width),
        nn.ReLU(),
        nn.Conv2d(width, dim, 1),
    )


def decoder(dim: int, width: int) -> nn.Sequential:
    """Maps (B, dim, 8, 8) to pictures (B, 3, 32, 32)."""
    return nn.Sequential(
        nn.Conv2d(dim, width, 3, padding=1),
        Residual(width),
        Residual(width),
        nn.ReLU(),
        nn.ConvTranspose2d(width, width // 2, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(width // 2, 3, 4, stride=2, padding=1),
    )


def prepared(images: Tensor) -> Tensor:
    """Pictures uint8 (B, 32, 32, 3) as the encoder takes them, between -1/2 and 1/2."""
    # channels stay last in memory, as convolutions of half precision like them
    return images.permute(0, 3, 1, 2).float() / 255 - 0.5
