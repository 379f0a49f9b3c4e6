"""Everything a run of the study depends on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """One autoencoder with one quantiser."""

    quantiser: str
    """A name of ``quantisers.METHODS``."""
    num_codes: int
    epochs: int = 15
    batch: int = 256
    lr: float = 3e-3
    """Of Adam for encoder and decoder, falling to 0 along a cosine; the same for all but the paper's recipe."""
    warmup: int = 300
    """Steps until that rate is reached, at most a tenth of the run: a quantiser begins before its encoder is one."""
    dim: int = 32
    width: int = 128
    images: int | None = None
    """Train on this many; None: on all."""
    data: str = "cifar10"
