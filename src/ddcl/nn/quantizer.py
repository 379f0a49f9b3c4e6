"""Vectors to codes: the bank as a drop-in vector quantiser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from ddcl.functional import Batches, Readout, perplexity
from ddcl.functional.batches import ChangedBatches
from ddcl.functional.checks import check_choice, check_count, check_float_tensor, check_mask
from ddcl.functional.outputs import TupleLike, register_output
from ddcl.functional.sampling import sample_assignments
from ddcl.nn.bank import PrototypeBank
from ddcl.ops import Backend, Gradient, autocast_enabled
from ddcl.shapes import Bool, Float, Int

if TYPE_CHECKING:
    from typing_extensions import Self

QuantizerMode = Literal["hard", "soft", "sample"]
QUANTIZER_MODES: tuple[str, ...] = get_args(QuantizerMode)
QuantizerBackward = Literal["boltzmann", "identity"]
QUANTIZER_BACKWARDS: tuple[str, ...] = get_args(QuantizerBackward)


@register_output
@dataclass(frozen=True, eq=False, repr=False)
class QuantizerOutput(TupleLike):
    """What ``PrototypeQuantizer`` gives back; unpacks as ``quantized, indices, loss``."""

    quantized: Tensor
    """Of the input's shape and dtype, zero at masked tokens."""
    indices: Tensor
    """The code of each token, of the token shape, with several heads followed by the heads; -1 at masked tokens."""
    loss: Tensor
    """A scalar to add to the task's loss: the weighted L_q per coordinate."""
    readout: Readout
    """What the bank gave: soft centroids and all terms, per token too."""

    _tuple_fields: ClassVar[tuple[str, ...]] = ("quantized", "indices", "loss")

    @property
    @torch.no_grad()
    def gap(self) -> Tensor:
        r"""Mean :math:`|\mu - p_{nearest}|^2` over the trace of the tokens' covariance, both of unmasked tokens.

        Computed at each access from the prototypes as they are then: read it before the optimiser steps.
        """
        z, prototypes, _, mask = self.readout.inputs
        heads, K, dim = prototypes.shape if prototypes.dim() == 3 else (1, *prototypes.shape)
        precise = self.readout.loss.total.dtype
        tokens, soft = (x.detach().reshape(-1, heads, dim).to(precise) for x in (z, self.readout.centroid))
        hard = _take(prototypes.detach().reshape(heads, K, dim), self.readout.indices.reshape(-1, heads)).to(precise)
        gap = (soft - hard).square().sum()  # both are zero at masked tokens
        counted = tokens.new_ones(len(tokens), 1, 1) if mask is None else mask.reshape(-1, 1, 1).to(precise)
        mean = (counted * tokens).sum(0) / counted.sum().clamp_min(1)
        spread = (counted * (tokens - mean).square()).sum()
        return torch.where(gap > 0, gap / spread, 0.0)

    @property
    @torch.no_grad()
    def perplexity(self) -> Tensor:
        """exp of the entropy of this batch's code counts; a scalar, or (H,) for several heads."""
        _, prototypes, _, _ = self.readout.inputs
        K, heads = prototypes.shape[-2], prototypes.shape[0] if prototypes.dim() == 3 else 1
        codes = self.indices.reshape(-1, heads) + 1  # column 0 collects the masked ones
        counts = torch.zeros(K + 1, heads, dtype=torch.int64, device=codes.device)
        counts = counts.scatter_add(0, codes, torch.ones_like(codes))[1:].mT
        return perplexity(counts if prototypes.dim() == 3 else counts[0])

    @property
    def rate(self) -> Tensor:
        """Bits per token that this batch's codes are worth: the entropy of their counts, summed over heads."""
        return self.perplexity.clamp_min(1.0).log2().sum()

    def __repr__(self) -> str:
        return f"QuantizerOutput(quantized={tuple(self.quantized.shape)}, indices={tuple(self.indices.shape)})"


class PrototypeQuantizer(nn.Module):
    r"""Replaces each vector by one of K learned codes.

    .. math::
        \text{forward:}\ p_{k(z)},\ k(z) = \operatorname{argmin}_k |z - p_k|^2 \qquad
        \text{backward:}\ \partial \mu(z),\ \mu = \sum_k q_k\,p_k

    The call and the order of what it returns are those of ``vector_quantize_pytorch.VectorQuantize``, which it
    replaces in one line. What is new is the gradient: the value is a hard code, the derivative that of the soft
    centroid, so the encoder and all prototypes near a token learn from the task. As T falls the two become one.

    Args:
        dim: channels of the input.
        num_prototypes: K, for each head.
        num_heads: H. The channels are split into H parts with K codes each: K^H product codes.
        mode: the value. ``"hard"``: the nearest prototype. ``"soft"``: the soft centroid. ``"sample"``: a prototype
            drawn from q in training, the nearest in evaluation.
        backward: the derivative. ``"boltzmann"``: that of the soft centroid, to tokens and prototypes; what reaches the
            tokens fades as T falls. ``"identity"``: straight-through, the task's gradient goes to the tokens as it is
            and the prototypes learn from ``loss`` alone, or by :class:`ddcl.SoftKMeans`.
        commitment: weight of ``loss``, which is L_q per coordinate: as T falls it becomes ``mse_loss(quantized, x)``
            with the gradient let through to both sides.
        init_on_first_batch: whether a bank that nobody has started takes its prototypes and its temperature from the
            first batch it is trained on, if that has K tokens: a bank at the origin, at a temperature far above the
            critical one, would only shrink the encoder. None: yes, unless a temperature is given. Compiled code
            cannot: call :meth:`init_from` before.
        channel_last: true: x is (..., dim). False: (B, dim, ...), maps of any number of spatial dimensions.
        temperature, gradient, backend: see :class:`PrototypeBank`. In gradient mode ``"stop"`` the Boltzmann backward
            reaches the prototypes only.

    Example:
        >>> quantizer = PrototypeQuantizer(dim=6, num_prototypes=16, channel_last=False)
        >>> quantized, indices, loss = quantizer(torch.randn(2, 6, 5, 7))
        >>> quantized.shape, indices.shape
        (torch.Size([2, 6, 5, 7]), torch.Size([2, 5, 7]))
        >>> torch.equal(quantizer.codes(indices), quantized)
        True
    """

    def __init__(
        self,
        dim: int,
        num_prototypes: int,
        *,
        num_heads: int = 1,
        mode: QuantizerMode = "hard",
        backward: QuantizerBackward = "boltzmann",
        commitment: float = 1.0,
        init_on_first_batch: bool | None = None,
        channel_last: bool = True,
        temperature: float | Tensor | None = None,
        gradient: Gradient = "full",
        backend: Backend = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_count("dim", dim)
        check_count("num_heads", num_heads)
        check_choice("mode", mode, QUANTIZER_MODES)
        check_choice("backward", backward, QUANTIZER_BACKWARDS)
        if dim % num_heads:
            raise ValueError(f"dim: got {dim}, expected a multiple of num_heads = {num_heads}")
        if not 0 <= commitment < float("inf"):
            raise ValueError(f"commitment: got {commitment}, expected a finite number of at least 0")
        self.dim, self.num_heads = dim, num_heads
        self.mode, self.backward, self.commitment, self.channel_last = mode, backward, commitment, channel_last
        self._waits_for_data = temperature is None if init_on_first_batch is None else init_on_first_batch
        self.bank = PrototypeBank(
            num_prototypes,
            dim // num_heads,
            num_heads=num_heads,
            temperature=temperature,
            gradient=gradient,
            backend=backend,
            device=device,
            dtype=dtype,
        )

    @property
    def num_prototypes(self) -> int:
        """K of each head, which the bank may change if it finds its own size."""
        return self.bank.num_prototypes

    def forward(
        self,
        x: Float[Tensor, "*shape"],
        mask: Bool[Tensor, "*tokens"] | Int[Tensor, "*tokens"] | None = None,
    ) -> QuantizerOutput:
        """x (..., dim), or (B, dim, ...) if not ``channel_last``; a mask of x's shape without the channels."""
        tokens, mask = self._tokens(x, mask)
        z = self._heads(tokens)
        if self._waits_for_data and self.training and not (torch.compiler.is_compiling() or z.is_meta):
            self._start(z, mask)
        found = self.bank(z, mask)
        indices = self._codes_of(found, mask)
        carrier = found.centroid if self.backward == "boltzmann" else z
        if self.mode == "soft":
            value = found.centroid
        else:
            prototypes = found.inputs[1]
            value = _take(prototypes if self.num_heads > 1 else prototypes[None], indices.reshape(-1, self.num_heads))
            value = value.reshape(z.shape).to(z.dtype)
        if value is not carrier:
            # this way round the value is exact: what is added is zero, and has the derivative
            value = value.detach() + (carrier - carrier.detach())
        quantized = value.reshape(tokens.shape)
        if mask is not None:
            quantized = quantized.masked_fill(~mask.unsqueeze(-1), 0.0)
        loss = (self.commitment / self.bank.dim) * found.loss.total
        return QuantizerOutput(self._as_input(quantized), indices, loss, found)

    @torch.no_grad()
    def _start(self, z: Tensor, mask: Tensor | None) -> None:
        """Start the bank, unless someone has, as soon as there are tokens enough."""
        started = bool(self.bank.initialised)
        tokens = z[..., 0].numel() // self.num_heads if mask is None else int(mask.sum())
        if not started and tokens >= self.num_prototypes:
            self.bank.init_from(z.detach(), mask=mask)
            started = True
        self._waits_for_data = not started

    def codes(self, indices: Int[Tensor, "*indices"]) -> Float[Tensor, "*shape"]:
        """The vectors of indices as ``forward`` gives them, in the layout of the input; -1 gives zeros."""
        if not isinstance(indices, Tensor) or indices.dtype.is_floating_point or indices.dtype == torch.bool:
            given = indices.dtype if isinstance(indices, Tensor) else type(indices).__name__
            raise TypeError(f"indices: got {given}, expected a tensor of integers")
        heads = self.num_heads
        free_to_look = indices.device.type == "cpu" and not torch.compiler.is_compiling() and indices.numel()
        if free_to_look and not -1 <= int(indices.min()) <= int(indices.max()) < self.num_prototypes:
            seen = f"{int(indices.min())} to {int(indices.max())}"
            raise ValueError(f"indices: got values from {seen}, expected -1 (masked) to {self.num_prototypes - 1}")
        if heads > 1 and (indices.dim() == 0 or indices.shape[-1] != heads):
            raise ValueError(f"indices: got shape {tuple(indices.shape)}, expected (..., {heads})")
        found = _take(self.bank.prototypes, indices.long().reshape(-1, heads))
        shape = indices.shape if heads == 1 else indices.shape[:-1]
        return self._as_input(found.reshape(*shape, self.dim))

    @torch.no_grad()
    def init_from(self, data: Batches, *, mask: Tensor | None = None, **options: Any) -> Self:
        """Initialise the bank from data as ``forward`` takes them; options as in :meth:`PrototypeBank.init_from`.

        Args:
            data: x, or an iterable of batches or (batch, mask) pairs.
            mask: for a tensor, true where a token counts.
        """
        if isinstance(data, Tensor):
            z, mask = self._entering(data, mask)
            self.bank.init_from(z, mask=mask, **options)
        else:
            kept = list(data) if isinstance(data, Iterator) else data
            self.bank.init_from(ChangedBatches(kept, self._entering), mask=mask, **options)
        return self

    def _entering(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """What the bank sees of an input."""
        tokens, mask = self._tokens(x, mask)
        return self._heads(tokens), mask

    def _codes_of(self, found: Readout, mask: Tensor | None) -> Tensor:
        """The prototype each token gets."""
        if self.mode == "sample" and self.training:
            z, prototypes, temperature, _ = found.inputs
            return sample_assignments(z, prototypes, temperature, mask=mask, check_values=False)
        return found.indices

    def _tokens(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Channels last, masked tokens set to zero, so that not even a NaN in them goes further."""
        check_float_tensor("x", x)
        weight = self.bank.prototypes.dtype
        if x.dtype != weight and not autocast_enabled(x.device.type):
            raise TypeError(f"x: got dtype {x.dtype}, expected that of the quantizer, {weight}")
        axis = -1 if self.channel_last else 1
        if x.dim() <= max(axis, 0) or x.shape[axis] != self.dim:
            wanted = f"(..., {self.dim})" if self.channel_last else f"(B, {self.dim}, ...)"
            raise ValueError(f"x: got shape {tuple(x.shape)}, expected {wanted}")
        x = x.movedim(axis, -1)
        if mask is None:
            return x, None
        check_mask(mask, tuple(x.shape[:-1]), x.device)
        mask = mask.to(torch.bool)
        return x.masked_fill(~mask.unsqueeze(-1), 0.0), mask

    def _heads(self, tokens: Tensor) -> Tensor:
        return tokens if self.num_heads == 1 else tokens.reshape(*tokens.shape[:-1], self.num_heads, self.bank.dim)

    def _as_input(self, tokens: Tensor) -> Tensor:
        """Back from channels last to the layout of the input."""
        return tokens if self.channel_last else tokens.movedim(-1, 1)

    def extra_repr(self) -> str:
        """Settings that the bank does not show, for ``repr``."""
        return (
            f"dim={self.dim}, mode={self.mode!r}, backward={self.backward!r}, commitment={self.commitment:g}, "
            f"channel_last={self.channel_last}"
        )


def _take(prototypes: Float[Tensor, "H K m"], indices: Int[Tensor, "N H"]) -> Float[Tensor, "N H m"]:
    """The prototype of each index, zeros for -1."""
    heads = torch.arange(prototypes.shape[0], device=indices.device)
    taken = prototypes[heads, indices.clamp_min(0)]
    return taken.masked_fill((indices < 0).unsqueeze(-1), 0.0)
