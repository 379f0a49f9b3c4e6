"""What passes through a quantiser, in bits, over many batches."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from ddcl.functional import perplexity, usage
from ddcl.nn.bottleneck import PrototypeBottleneck
from ddcl.nn.quantizer import PrototypeQuantizer
from ddcl.nn.residual import ResidualQuantizer
from ddcl.shapes import Float, Int


class RateMeter:
    """Counts codes over batches and says how many bits per token they are worth, exactly, over all of them.

    Args:
        quantizer: whose codes are counted.

    Example:
        >>> meter = RateMeter(PrototypeQuantizer(4, 16))
        >>> for batch in ([0, 1], [2, 3]):
        ...     meter.update(torch.tensor(batch))
        >>> meter.rate, meter.nominal, meter.tokens
        (tensor(2.), 4.0, 4)
    """

    counts: Tensor
    """(stages x heads, K), of the largest K there was."""

    def __init__(self, quantizer: PrototypeQuantizer | ResidualQuantizer | PrototypeBottleneck) -> None:
        self._quantizer = quantizer.quantizer if isinstance(quantizer, PrototypeBottleneck) else quantizer
        self._axes = (self._quantizer.num_heads > 1) + isinstance(self._quantizer, ResidualQuantizer)
        self.reset()

    @property
    def _codebooks(self) -> list[int]:
        """K of each codebook as it is now: a bank may find its own size."""
        inner = self._quantizer
        stages = [inner] if isinstance(inner, PrototypeQuantizer) else list(inner.stages)
        return [stage.num_prototypes for _ in range(inner.num_heads) for stage in stages]

    def reset(self) -> None:
        """Forget what was counted."""
        self.counts = torch.zeros(len(self._codebooks), max(self._codebooks), dtype=torch.int64)

    def update(self, indices: Int[Tensor, "*tokens"]) -> None:
        """Count the codes of a batch, as the quantiser gives them; -1 is left out."""
        sizes = self._codebooks
        books = len(sizes)
        if indices.dim() < self._axes or math.prod(indices.shape[indices.dim() - self._axes :]) != books:
            raise ValueError(f"indices: got shape {tuple(indices.shape)}, expected {books} codes per token")
        found = usage(indices.reshape(-1, books), max(sizes), num_heads=books).counts
        for book, size in enumerate(sizes):
            if bool(found[book, size:].any()):
                raise ValueError(f"indices: got codes of {size} and more for a codebook of {size}")
        width = max(found.shape[1], self.counts.shape[1])
        found, counts = (F.pad(one, (0, width - one.shape[1])) for one in (found, self.counts.to(found.device)))
        self.counts = counts + found

    @property
    def rate(self) -> Float[Tensor, ""]:
        """Bits per token, summed over heads and stages."""
        return perplexity(self.counts.double()).clamp_min(1.0).log2().sum().float()

    @property
    def perplexity(self) -> Float[Tensor, " codebooks"]:
        """How many codes equal use would need, for each codebook."""
        return perplexity(self.counts)

    @property
    def nominal(self) -> float:
        """Bits per token that the sizes allow: the sum of log2 K."""
        return math.fsum(map(math.log2, self._codebooks))

    @property
    def tokens(self) -> int:
        """Tokens counted."""
        return int(self.counts[0].sum())
