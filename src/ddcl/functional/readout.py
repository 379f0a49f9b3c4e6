"""The operation as users call it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ddcl import ops
from ddcl.functional.checks import (
    check_backend,
    check_gradient,
    check_mask,
    check_prototypes,
    check_temperature,
    check_tokens,
)
from ddcl.functional.decomposition import Decomposition
from ddcl.functional.outputs import TupleLike, register_output
from ddcl.ops import Backend, Gradient, arithmetic_dtype, bank_center, without_autocast
from ddcl.shapes import Bool, Float, Int


@register_output
@dataclass(frozen=True, eq=False, repr=False)
class Readout(TupleLike):
    """What ``readout`` gives back; unpacks as ``centroid, loss, indices``."""

    centroid: Tensor
    """Soft centroids mu, with the shape and dtype of the tokens; zero at masked tokens."""
    loss: Decomposition
    """Means over unmasked tokens (and heads): scalars."""
    indices: Tensor
    """Nearest prototype of each token (and head); -1 at masked tokens."""
    per_token: Decomposition
    """The same terms for each token (and head); zero at masked tokens."""
    inputs: Any
    """z, prototypes, temperature and mask as the operation was given them, detached in mode stop."""

    _tuple_fields: ClassVar[tuple[str, ...]] = ("centroid", "loss", "indices")

    @property
    def assignments(self) -> Tensor:
        """The mixture q of each token, (..., K) or (..., H, K).

        Computed at each access from the tokens and prototypes as they are then: read it before the optimiser steps.
        """
        z, prototypes, temperature, mask = self.inputs
        # all of it was checked when the readout was made
        per_token = _broadcast_temperature(temperature, z, prototypes, mask, check_values=False)
        return _assignments(z, prototypes, per_token, mask)

    @property
    def per_head(self) -> Decomposition:
        """Means over unmasked tokens for each head: (H,) for a bank (H, K, m), scalars for a bank (K, m)."""
        _, prototypes, _, mask = self.inputs
        if prototypes.dim() == 2:
            return self.loss
        return self.per_token.mean(mask, keep_heads=True)

    def __repr__(self) -> str:
        shape = tuple(self.centroid.shape)
        return f"Readout(centroid={shape}, indices={tuple(self.indices.shape)}, loss={self.loss})"


def readout(
    z: Float[Tensor, "*batch m"],
    prototypes: Float[Tensor, "K m"] | Float[Tensor, "H K m"],
    temperature: float | Tensor,
    *,
    gradient: Gradient = "full",
    mask: Bool[Tensor, "*tokens"] | Int[Tensor, "*tokens"] | None = None,
    backend: Backend = "auto",
    check_values: bool = True,
) -> Readout:
    r"""Replace each token by its soft centroid in the bank.

    .. math:: \mu(z) = \sum_k q_k(z)\,p_k, \qquad q(z) = \operatorname{softmax}_k(-\lVert z - p_k\rVert^2 / T)

    Args:
        z: tokens (..., m); for several heads (..., H, m). float64, float32, bfloat16 or float16; the
            arithmetic is done in float32 (float64 for float64) and the centroids have the dtype of z.
        prototypes: the bank (K, m), or one bank for each of H heads, (H, K, m).
        temperature: T > 0, in the units of squared distance. A number, or a tensor that broadcasts against
            ``z.shape[:-1]``: a scalar, one per head (H,), or one per token. May require a gradient. torch.compile
            builds a number into the code: pass a tensor there if it changes.
        gradient: ``"full"`` differentiates through the assignments q, ``"stop"`` holds them constant, which
            makes the gradient of the loss that of the free energy.
        mask: true (or nonzero) where a token counts, of shape z.shape[:-1], without the head axis. What stands
            in masked tokens never reaches an output or a gradient, even if it is NaN. If every token is
            masked the losses are 0, with gradient 0.
        backend: ``"auto"``, or one by name: ``"reference"`` (the formulas as written, differentiable to any order,
            N x K x m memory), ``"eager"`` (blocks of tokens, O(N m) memory, differentiable once, any device) or
            ``"triton"`` (fused kernels for NVIDIA GPUs, likewise). :func:`backend_for` tells which ``"auto"`` takes,
            and why.
        check_values: whether to look at a temperature tensor on a GPU, which waits for the GPU. False spares that
            where T is known to be positive; on the CPU, where looking is free, T is checked in any case.

    Example:
        >>> bank = torch.tensor([[0.0, 0.0], [4.0, 0.0]])
        >>> centroid, loss, indices = readout(torch.tensor([[2.0, 1.0]]), bank, temperature=1.0)
        >>> centroid
        tensor([[2., 0.]])
        >>> loss.total, loss.reconstruction, loss.variance
        (tensor(5.), tensor(1.), tensor(4.))
    """
    check_gradient(gradient)
    check_backend(backend)
    check_prototypes(prototypes)
    check_tokens(z, prototypes)
    mask = _token_mask(mask, z, prototypes)
    canonical = _canonical_temperature(temperature, z, prototypes, mask, check_values)

    heads, _, dim = prototypes.shape if prototypes.dim() == 3 else (1, *prototypes.shape)
    terms = ops.readout(
        z.reshape(-1, heads, dim),
        prototypes.reshape(heads, -1, dim),
        canonical,
        None if mask is None else mask.reshape(-1),
        gradient,
        backend,
        check_values and isinstance(temperature, Tensor),
    )
    free_energy = torch.addcmul(terms.total, canonical, terms.entropy, value=-1)
    shape = z.shape[:-1]
    per_token = Decomposition(
        total=terms.total.reshape(shape),
        reconstruction=terms.reconstruction.reshape(shape),
        variance=terms.variance.reshape(shape),
        quantization=terms.quantization.reshape(shape),
        entropy=terms.entropy.reshape(shape),
        free_energy=free_energy.reshape(shape),
    )
    return Readout(
        centroid=terms.centroid.reshape(z.shape),
        loss=per_token.mean(mask),
        indices=terms.indices.reshape(shape),
        per_token=per_token,
        inputs=(*(_held(x, gradient) for x in (z, prototypes, temperature)), mask),
    )


def _held(value: Any, gradient: Gradient) -> Any:
    """What q may be computed from later: in mode stop q is a constant, so its inputs are."""
    return value.detach() if gradient == "stop" and isinstance(value, Tensor) else value


def assignments(
    z: Float[Tensor, "*batch m"],
    prototypes: Float[Tensor, "K m"] | Float[Tensor, "H K m"],
    temperature: float | Tensor,
    *,
    mask: Bool[Tensor, "*tokens"] | Int[Tensor, "*tokens"] | None = None,
) -> Float[Tensor, "*batch K"]:
    r"""The mixture :math:`q(z) = \operatorname{softmax}_k(-|z - p_k|^2 / T)` of each token, whole.

    Arguments as in :func:`readout`. Holds N x K numbers; a masked token has zeros.

    Example:
        >>> bank = torch.tensor([[0.0, 0.0], [4.0, 0.0]])
        >>> assignments(torch.tensor([[2.0, 1.0]]), bank, temperature=1.0)
        tensor([[0.5000, 0.5000]])
    """
    check_prototypes(prototypes)
    check_tokens(z, prototypes)
    mask = _token_mask(mask, z, prototypes)
    per_token = _broadcast_temperature(temperature, z, prototypes, mask)
    return _assignments(z, prototypes, per_token, mask)


@without_autocast
def _assignments(z: Tensor, prototypes: Tensor, temperature: Tensor, mask: Tensor | None) -> Tensor:
    dtype = arithmetic_dtype(z.dtype)
    bank = prototypes.to(dtype)
    center = bank_center(bank)
    points = bank - center
    x = z.to(dtype) - center.squeeze(-2)
    masked = None if mask is None else ~mask[(...,) + (None,) * (prototypes.dim() - 1)]
    if masked is not None:
        x = x.masked_fill(masked, 0.0)
    # the head axis goes along: (..., H, m) with (H, K, m) gives (..., H, K)
    scores = 2 * torch.einsum("...m,...km->...k", x, points) - points.square().sum(-1)
    # differences first, so that the smallest T overflows to q = 0 and not to NaN
    scores = scores - scores.amax(-1, keepdim=True).detach()
    q = torch.softmax(scores / temperature.unsqueeze(-1), dim=-1).to(z.dtype)
    return q if masked is None else q.masked_fill(masked, 0.0)


def _token_mask(mask: Tensor | None, z: Tensor, prototypes: Tensor) -> Tensor | None:
    if mask is None:
        return None
    check_mask(mask, tuple(z.shape[: 1 - prototypes.dim()]), z.device)
    return mask.to(torch.bool)


def _broadcast_temperature(
    temperature: float | Tensor, z: Tensor, prototypes: Tensor, mask: Tensor | None, check_values: bool = True
) -> Tensor:
    """T in the arithmetic's dtype, checked to be positive and to broadcast against the tokens; 1 where masked."""
    dtype = arithmetic_dtype(z.dtype)
    if not isinstance(temperature, Tensor):
        check_temperature(temperature)
        return torch.full((), temperature, dtype=dtype, device=z.device)
    # a single number on the CPU may meet tokens anywhere, as everywhere in PyTorch
    if temperature.numel() == 1:
        temperature = temperature.reshape(())
    elif temperature.device != z.device:
        raise ValueError(f"temperature: is on {temperature.device} but z is on {z.device}; move one of them")
    shape, sizes = tuple(z.shape[:-1]), tuple(temperature.shape)
    fits = len(sizes) <= len(shape) and all(
        size in (1, want) for size, want in zip(sizes[::-1], shape[::-1], strict=False)
    )
    if not fits:
        raise ValueError(f"temperature: got shape {sizes}, expected one that broadcasts against {shape}")
    per_token = any(size > 1 for size in sizes[: len(sizes) - (prototypes.dim() - 2)])
    if per_token and mask is not None:
        keep = mask if prototypes.dim() == 2 else mask.unsqueeze(-1)
        temperature = torch.where(keep, temperature, 1.0)
    check_temperature(temperature, everywhere=check_values)
    return temperature.to(device=z.device, dtype=dtype)


def _canonical_temperature(
    temperature: float | Tensor, z: Tensor, prototypes: Tensor, mask: Tensor | None, check_values: bool
) -> Tensor:
    """(1, H) where T is the same for all tokens, else (N, H)."""
    heads = prototypes.shape[0] if prototypes.dim() == 3 else 1
    if not isinstance(temperature, Tensor):
        check_temperature(temperature)
        return torch.full((1, heads), temperature, dtype=arithmetic_dtype(z.dtype), device=z.device)
    found = _broadcast_temperature(temperature, z, prototypes, mask, check_values)
    own_axes = prototypes.dim() - 2  # 1 when the last axis of T may be the heads, 0 otherwise
    if all(size == 1 for size in found.shape[: found.dim() - own_axes]):
        return found.reshape(1, -1).expand(1, heads)
    return found.expand(z.shape[:-1]).reshape(-1, heads)
