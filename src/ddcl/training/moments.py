"""A running covariance of what enters a bank, cheap enough to keep at every step."""

from __future__ import annotations

import torch
from torch import Tensor

from ddcl.functional import covariance
from ddcl.functional.batches import Batches
from ddcl.nn import PrototypeBank
from ddcl.shapes import Bool, Float

_POWER_STEPS = 2


class RunningMoments(torch.nn.Module):
    r"""Mean, covariance and its largest eigenvalue, per head, as exponential averages over batches.

    Each batch adds at most ``sample`` of its unmasked tokens. The average of the first batches is plain, so that it
    is right from the start, and exponential with ``momentum`` after that. The largest eigenvalue follows by two power
    steps per batch from where the last one ended. All state is on the device and nothing waits for it.

    Args:
        num_heads: H.
        dim: m.
        momentum: weight of the past.
        sample: tokens looked at per batch.

    Example:
        >>> moments = RunningMoments(num_heads=1, dim=2)
        >>> for _ in range(50):
        ...     moments.update(torch.randn(256, 1, 2) * torch.tensor([3.0, 1.0]))
        >>> bool((moments.largest - 9).abs() < 1)
        True
    """

    mean: Tensor
    matrix: Tensor
    direction: Tensor
    largest: Tensor
    batches: Tensor

    def __init__(
        self,
        num_heads: int,
        dim: int,
        *,
        momentum: float = 0.98,
        sample: int = 512,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.momentum, self.sample = momentum, sample
        self.register_buffer("mean", torch.zeros(num_heads, dim, device=device, dtype=dtype))
        self.register_buffer("matrix", torch.zeros(num_heads, dim, dim, device=device, dtype=dtype))
        # a start with a part in every direction, the same on every run
        start = torch.cos(torch.arange(1, dim + 1, device=device, dtype=dtype))
        self.register_buffer("direction", (start / start.norm()).repeat(num_heads, 1))
        self.register_buffer("largest", torch.zeros(num_heads, device=device, dtype=dtype))
        self.register_buffer("batches", torch.zeros((), device=device, dtype=dtype))

    @classmethod
    def of(cls, bank: PrototypeBank, *, momentum: float, sample: int) -> RunningMoments:
        """For what enters a bank: its sizes, its device, the dtype of its temperature."""
        device, dtype = bank.temperature.device, bank.temperature.dtype
        return cls(bank.num_heads, bank.dim, momentum=momentum, sample=sample, device=device, dtype=dtype)

    @property
    def trace(self) -> Float[Tensor, " H"]:
        """trace C for each head."""
        return self.matrix.diagonal(dim1=-2, dim2=-1).sum(-1)

    @torch.no_grad()
    def update(self, z: Float[Tensor, "N H m"], mask: Bool[Tensor, " N"] | None = None) -> None:
        """Take in a batch of tokens; one that is masked as a whole changes nothing."""
        if z.shape[0] > self.sample:
            chosen = torch.randint(z.shape[0], (self.sample,), device=z.device)
            z, mask = z[chosen], None if mask is None else mask[chosen]
        x = z.to(self.mean.dtype)
        weight = torch.ones_like(x[:, :1, :1]) if mask is None else mask[:, None, None].to(x.dtype)
        if mask is not None:
            x = x.masked_fill(~mask[:, None, None], 0.0)
        count = weight.sum()
        batch_mean = x.sum(0) / count.clamp_min(1)
        x = ((x - batch_mean) * weight).transpose(0, 1)  # (H, n, m)
        batch_matrix = x.mT @ x / count.clamp_min(1)

        seen = (count > 0).to(x.dtype)
        self.batches += seen
        share = torch.clamp_min(1 / self.batches.clamp_min(1), 1 - self.momentum) * seen
        shift = batch_mean - self.mean
        # the covariance of the mixture (1 - share) past + share batch
        between = shift.unsqueeze(-1) * shift.unsqueeze(-2)
        self.matrix.copy_((1 - share) * (self.matrix + share * between) + share * batch_matrix)
        self.mean.add_(share * shift)
        self._follow_largest()

    @torch.no_grad()
    def set_from(self, data: Batches, mask: Tensor | None = None) -> None:
        """Start from the exact moments of data (..., m), or (..., H, m) for several heads."""
        heads = len(self.mean)
        found = covariance(data, mask=mask, num_heads=None if heads == 1 else heads)
        self.mean.copy_(found.mean.reshape_as(self.mean))
        self.matrix.copy_(found.matrix.reshape_as(self.matrix))
        values, vectors = torch.linalg.eigh(self.matrix)
        self.largest.copy_(values[:, -1])
        self.direction.copy_(vectors[:, :, -1])
        self.batches.fill_(1 / (1 - self.momentum))

    def _follow_largest(self) -> None:
        direction = self.direction
        for _ in range(_POWER_STEPS):
            image = (self.matrix @ direction.unsqueeze(-1)).squeeze(-1)
            length = image.norm(dim=-1, keepdim=True)
            # data without spread has no direction: keep the one there is
            direction = torch.where(length > 0, image / length.clamp_min(torch.finfo(image.dtype).tiny), direction)
        self.direction.copy_(direction)
        self.largest.copy_(length.squeeze(-1))
