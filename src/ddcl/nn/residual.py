"""Quantisers in a row, each on what those before it left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from ddcl.functional import Batches, Readout
from ddcl.functional.batches import ChangedBatches
from ddcl.functional.checks import check_count
from ddcl.functional.outputs import TupleLike, register_output
from ddcl.nn.quantizer import PrototypeQuantizer, QuantizerOutput
from ddcl.shapes import Bool, Float, Int

if TYPE_CHECKING:
    from typing_extensions import Self

_SHARED = ("dim", "num_heads", "mode", "backward", "channel_last")


@register_output
@dataclass(frozen=True, eq=False, repr=False)
class ResidualOutput(TupleLike):
    """What ``ResidualQuantizer`` gives back; unpacks as ``quantized, indices, loss``."""

    quantized: Tensor
    """The sum over stages, of the input's shape."""
    indices: Tensor
    """Those of the stages, stacked on a last axis."""
    loss: Tensor
    """The sum over stages, a scalar."""
    stages: Any
    """The :class:`QuantizerOutput` of each stage, a tuple."""

    _tuple_fields: ClassVar[tuple[str, ...]] = ("quantized", "indices", "loss")

    @property
    def readouts(self) -> tuple[Readout, ...]:
        """What each stage's bank gave."""
        return tuple(stage.readout for stage in self.stages)

    @property
    def gap(self) -> Tensor:
        """Of each stage, relative to what entered it, (S,)."""
        return torch.stack([stage.gap for stage in self.stages])

    @property
    def perplexity(self) -> Tensor:
        """Of each stage, (S,) or (S, H)."""
        return torch.stack([stage.perplexity for stage in self.stages])

    @property
    def rate(self) -> Tensor:
        """Bits per token that this batch's codes are worth, summed over heads and stages."""
        return torch.stack([stage.rate for stage in self.stages]).sum()

    def __repr__(self) -> str:
        return f"ResidualOutput(quantized={tuple(self.quantized.shape)}, indices={tuple(self.indices.shape)})"


class ResidualQuantizer(nn.Module):
    r"""Stage s quantises what the stages before it left; the sum is the output.

    .. math:: r_1 = x, \qquad r_{s+1} = r_s - Q_s(r_s), \qquad Q(x) = \sum_s Q_s(r_s)

    Each stage has its own bank, so a :class:`ddcl.CriticalSchedule` measures each temperature against what enters
    that stage. Gradients: with ``backward="boltzmann"`` the residual carries the derivative of the stage before, and
    the whole is the derivative of the soft stack. With ``"identity"`` the residual is formed with the detached value,
    as the field does, so that every stage's loss reaches the encoder; the sum is passed straight through once,
    however many stages there are.

    Args:
        quantizers: the number of stages, with ``dim``, ``num_prototypes`` and further arguments of
            :class:`PrototypeQuantizer`; or the stages themselves, alike in all but K, loss and bank.
        dim: channels of the input.
        num_prototypes: K, one number or one for each stage.

    Example:
        >>> quantizer = ResidualQuantizer(3, dim=6, num_prototypes=16)
        >>> quantized, indices, loss = quantizer(torch.randn(2, 5, 6))
        >>> indices.shape
        torch.Size([2, 5, 3])
        >>> torch.allclose(quantizer.codes(indices), quantized)
        True
    """

    stages: Sequence[PrototypeQuantizer]

    def __init__(
        self,
        quantizers: int | Iterable[PrototypeQuantizer],
        *,
        dim: int | None = None,
        num_prototypes: int | Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if isinstance(quantizers, Iterable):
            if dim is not None or num_prototypes is not None or options:
                raise TypeError("quantizers: got the stages themselves, expected no further arguments beside them")
            stages = list(quantizers)
        else:
            check_count("quantizers", quantizers)
            if dim is None or num_prototypes is None:
                raise TypeError("quantizers: got a number of stages, expected dim and num_prototypes with it")
            sizes = list(num_prototypes) if isinstance(num_prototypes, Sequence) else [num_prototypes] * quantizers
            if len(sizes) != quantizers:
                raise ValueError(f"num_prototypes: got {len(sizes)} numbers, expected one for each of {quantizers}")
            stages = [PrototypeQuantizer(dim, size, **options) for size in sizes]
        _check_stages(stages)
        self.stages = nn.ModuleList(stages)  # type: ignore[assignment]
        self.dim, self.num_heads, self.channel_last = stages[0].dim, stages[0].num_heads, stages[0].channel_last
        self.backward = stages[0].backward

    def forward(
        self,
        x: Float[Tensor, "*shape"],
        mask: Bool[Tensor, "*tokens"] | Int[Tensor, "*tokens"] | None = None,
    ) -> ResidualOutput:
        """x and mask as :class:`PrototypeQuantizer` takes them."""
        found: list[QuantizerOutput] = []
        residual = x
        for stage in self.stages:
            found.append(stage(residual, mask))
            residual = residual - self._value(found[-1])
        quantized = self._value(found[0])
        for later in found[1:]:
            quantized = quantized + self._value(later)
        if self.backward == "identity":
            quantized = quantized + self._nothing(x, mask)
        indices = torch.stack([one.indices for one in found], -1)
        loss = torch.stack([one.loss for one in found]).sum()
        return ResidualOutput(quantized, indices, loss, tuple(found))

    def codes(self, indices: Int[Tensor, "*indices"]) -> Float[Tensor, "*shape"]:
        """The sum of the vectors of indices (..., S), in the layout of the input; -1 gives zeros.

        Fewer than S on the last axis are taken for the first stages: a coarser version of the same.
        """
        if not isinstance(indices, Tensor) or indices.dim() == 0 or not 1 <= indices.shape[-1] <= len(self.stages):
            given = f"shape {tuple(indices.shape)}" if isinstance(indices, Tensor) else type(indices).__name__
            raise ValueError(f"indices: got {given}, expected a tensor (..., S) with 1 <= S <= {len(self.stages)}")
        parts = zip(self.stages, indices.unbind(-1), strict=False)
        return torch.stack([stage.codes(of_stage) for stage, of_stage in parts]).sum(0)

    @torch.no_grad()
    def init_from(self, data: Batches, *, mask: Tensor | None = None, **options: Any) -> Self:
        """Initialise stage by stage, each from what those before leave of the data.

        Args:
            data: x, or an iterable of batches or (batch, mask) pairs.
            mask: for a tensor, true where a token counts.
            options: as in :meth:`PrototypeBank.init_from`.
        """
        if isinstance(data, Iterator):
            data = list(data)
        was_training = self.training
        self.eval()  # nearest prototypes, and nobody who follows the banks counts these calls
        try:
            for count, stage in enumerate(self.stages):
                stage.init_from(ChangedBatches(data, partial(self._left_by, count), mask), **options)
        finally:
            self.train(was_training)
        return self

    def _left_by(self, count: int, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """What the first stages leave of an input."""
        for stage in self.stages[:count]:
            x = x - stage(x, mask).quantized
        return x, None if mask is None else mask.to(torch.bool)

    def _value(self, found: QuantizerOutput) -> Tensor:
        return found.quantized.detach() if self.backward == "identity" else found.quantized

    def _nothing(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Zero, with the derivative of x at unmasked tokens."""
        zero: Tensor = x - x.detach()
        if mask is None:
            return zero
        return zero.masked_fill(~mask.to(torch.bool).unsqueeze(-1 if self.channel_last else 1), 0.0)


def _check_stages(stages: list[PrototypeQuantizer]) -> None:
    if not stages:
        raise ValueError("quantizers: got none, expected at least one stage")
    for number, stage in enumerate(stages):
        if not isinstance(stage, PrototypeQuantizer):
            raise TypeError(f"quantizers: stage {number} is {type(stage).__name__}, expected a PrototypeQuantizer")
        for name in _SHARED:
            first, own = getattr(stages[0], name), getattr(stage, name)
            if own != first:
                raise ValueError(
                    f"quantizers: stage {number} has {name} = {own!r}, expected that of the first, {first!r}"
                )
