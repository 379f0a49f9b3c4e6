"""What enters a bank, brought to a size that an encoder cannot shrink."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ddcl.functional.checks import check_choice, check_count

Normalisation = Literal["none", "unit", "layer", "standard"]
NORMALISATIONS: tuple[str, ...] = get_args(Normalisation)


class TokenNorm(nn.Module):
    r"""Normalises tokens before they meet a bank, so that lowering the loss by shrinking them is no way out.

    ``"unit"``: each token to length 1. ``"layer"``: each token to mean 0 and variance 1 over its coordinates.
    ``"standard"``: each coordinate to mean 0 and variance 1 over unmasked tokens, which holds trace C at m whatever the
    encoder does; with running moments in evaluation mode, as batch normalisation has. ``"none"``: unchanged. None of
    them has parameters.

    Args:
        dim: m, the last axis of the tokens.
        kind: one of the above.
        momentum: share of the newest batch in the running moments of ``"standard"``.

    Example:
        >>> z = TokenNorm(3, "unit")(torch.randn(2, 5, 3))
        >>> z.norm(dim=-1).allclose(torch.ones(2, 5))
        True
    """

    mean: Tensor
    variance: Tensor
    tokens: Tensor

    def __init__(
        self,
        dim: int,
        kind: Normalisation = "standard",
        *,
        momentum: float = 0.1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_count("dim", dim)
        check_choice("kind", kind, NORMALISATIONS)
        self.dim, self.kind, self.momentum = dim, kind, momentum
        if kind == "standard":
            self.register_buffer("mean", torch.zeros(dim, device=device, dtype=dtype))
            self.register_buffer("variance", torch.ones(dim, device=device, dtype=dtype))
            self.register_buffer("tokens", torch.zeros((), device=device, dtype=torch.int64))

    def forward(self, z: Tensor, mask: Tensor | None = None) -> Tensor:
        """Tokens (..., m) of the same shape and dtype; a mask z.shape[:-1] keeps padding out of the moments."""
        if self.kind == "unit":
            return F.normalize(z, dim=-1)
        if self.kind == "layer":
            return F.layer_norm(z, (self.dim,))
        if self.kind == "standard":
            return self._standardise(z, mask)
        return z

    def _standardise(self, z: Tensor, mask: Tensor | None) -> Tensor:
        x = z.to(self.mean.dtype)
        mean, variance = self.mean, self.variance
        if self.training:
            mean, variance, count = _moments(x, mask)
            self._follow(mean.detach(), variance.detach(), count)
        tiny = torch.finfo(x.dtype).tiny
        return ((x - mean) * (variance + tiny).rsqrt()).to(z.dtype)

    @torch.no_grad()
    def _follow(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        """The moments of the mixture of past and batch; the first batches count by their tokens, later ones more."""
        self.tokens += count
        share = (count / self.tokens.clamp_min(1)).clamp_min(self.momentum * (count > 0)).to(mean.dtype)
        shift = mean - self.mean
        self.variance.copy_((1 - share) * (self.variance + share * shift.square()) + share * variance)
        self.mean.add_(share * shift)

    @contextmanager
    def recalibrating(self) -> Iterator[None]:
        """Calls inside set the running moments anew, to those of all their tokens together.

        Running moments trail behind an encoder that learns; one pass of the data through the finished encoder makes
        them exact. Nothing to do for the other kinds.
        """
        was_training, momentum = self.training, self.momentum
        if self.kind == "standard":
            self.tokens.zero_()
            self.train()
            self.momentum = 0.0
        try:
            yield
        finally:
            self.train(was_training)
            self.momentum = momentum

    def extra_repr(self) -> str:
        """Sizes and kind, for ``repr``."""
        return f"{self.dim}, {self.kind!r}"


def _moments(x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance of each coordinate over the tokens that count, and how many do."""
    axes = tuple(range(x.dim() - 1))
    if mask is None:
        variance, mean = torch.var_mean(x, axes, correction=0)
        return mean, variance, torch.full((), x.shape[:-1].numel(), device=x.device)
    counted = mask.to(torch.bool).unsqueeze(-1)
    count = counted.sum()
    x = torch.where(counted, x, 0.0)
    mean = x.sum(axes) / count.clamp_min(1)
    return mean, torch.where(counted, (x - mean).square(), 0.0).sum(axes) / count.clamp_min(1), count
