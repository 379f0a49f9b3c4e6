"""A bank between an encoder and a decoder."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from ddcl.functional import Readout
from ddcl.functional.batches import masked_batches
from ddcl.functional.checks import check_mask
from ddcl.functional.outputs import TupleLike, register_output
from ddcl.nn.quantizer import PrototypeQuantizer
from ddcl.nn.residual import ResidualQuantizer
from ddcl.shapes import Bool, Int

if TYPE_CHECKING:
    from typing_extensions import Self


@register_output
@dataclass(frozen=True, eq=False, repr=False)
class BottleneckOutput(TupleLike):
    """What ``PrototypeBottleneck`` gives back; unpacks as ``reconstruction, indices, loss``."""

    reconstruction: Tensor
    """What the decoder made of the codes; zero at masked tokens where it has them."""
    coded: Any
    """What the quantiser gave, a :class:`QuantizerOutput` or a :class:`ResidualOutput`."""

    _tuple_fields: ClassVar[tuple[str, ...]] = ("reconstruction", "indices", "loss")

    @property
    def indices(self) -> Tensor:
        """The codes, as the quantiser gives them."""
        indices: Tensor = self.coded.indices
        return indices

    @property
    def loss(self) -> Tensor:
        """The quantiser's loss, a scalar to add to that of the reconstruction."""
        loss: Tensor = self.coded.loss
        return loss

    @property
    def readout(self) -> Readout:
        """What the bank gave; a stack of stages has several, see ``readouts``."""
        found: Readout = self.coded.readout
        return found

    @property
    def readouts(self) -> tuple[Readout, ...]:
        """What the bank of each stage gave; one without stages."""
        stages: tuple[Readout, ...] | None = getattr(self.coded, "readouts", None)
        return (self.readout,) if stages is None else stages

    @property
    def rate(self) -> Tensor:
        """Bits per token that this batch's codes are worth: the entropy of their counts, over heads and stages."""
        rate: Tensor = self.coded.rate
        return rate

    def __repr__(self) -> str:
        return f"BottleneckOutput(reconstruction={tuple(self.reconstruction.shape)}, coded={self.coded})"


class PrototypeBottleneck(nn.Module):
    r"""Encoder, quantiser, decoder: everything the decoder learns of the input passes through the codes.

    .. math:: \hat{x} = D\big(Q(E(x))\big), \qquad \text{loss} = \ell(\hat{x}, x) + \text{quantiser's loss}

    Args:
        encoder: gives what the quantiser takes: (..., dim), or (B, dim, ...) if that is not ``channel_last``.
        quantizer: a :class:`PrototypeQuantizer` or a :class:`ResidualQuantizer`.
        decoder: takes what the encoder gave.

    A mask is of the quantiser's token shape. The quantiser always gets it. Encoder and decoder get it as ``mask=``
    where their ``forward`` has an argument of that name; PyTorch's own modules do not, since ``mask`` means something
    else there. Inputs and reconstructions with the axes of the mask (first, or around the channels if
    the quantiser is not ``channel_last``) are set to zero where it is false.

    Example:
        >>> model = PrototypeBottleneck(nn.Linear(9, 4), PrototypeQuantizer(4, 16), nn.Linear(4, 9))
        >>> out = model(torch.randn(8, 5, 9))
        >>> out.reconstruction.shape, bool(out.rate <= 4)
        (torch.Size([8, 5, 9]), True)
    """

    def __init__(
        self, encoder: nn.Module, quantizer: PrototypeQuantizer | ResidualQuantizer, decoder: nn.Module
    ) -> None:
        super().__init__()
        if not isinstance(quantizer, (PrototypeQuantizer, ResidualQuantizer)):
            raise TypeError(
                f"quantizer: got {type(quantizer).__name__}, expected a PrototypeQuantizer or a ResidualQuantizer"
            )
        self.encoder, self.quantizer, self.decoder = encoder, quantizer, decoder
        self._masks_encoder, self._masks_decoder = _takes_mask(encoder), _takes_mask(decoder)

    def forward(
        self, x: Tensor, mask: Bool[Tensor, "*tokens"] | Int[Tensor, "*tokens"] | None = None
    ) -> BottleneckOutput:
        """x as the encoder takes it, a mask of the quantiser's token shape."""
        if mask is None:
            coded = self.quantizer(self.encoder(x))
            return BottleneckOutput(self.decoder(coded.quantized), coded)
        # its shape is left to the quantiser to check, against the tokens
        check_mask(mask, tuple(getattr(mask, "shape", ())), x.device)
        mask = mask.to(torch.bool)
        coded = self.quantizer(self._encode(x, mask), mask)
        arguments = {"mask": mask} if self._masks_decoder else {}
        decoded = self.decoder(coded.quantized, **arguments)
        return BottleneckOutput(_blank(decoded, mask, self.quantizer.channel_last), coded)

    @torch.no_grad()
    def init_from(self, data: Any, *, mask: Tensor | None = None, **options: Any) -> Self:
        """Initialise the quantiser from what the encoder makes of data as ``forward`` takes them.

        Args:
            data: x, or an iterable of batches or (batch, bool mask) pairs. What the encoder makes of them is kept.
            mask: for a tensor, true where a token counts.
            options: as in :meth:`PrototypeBank.init_from`.
        """
        was_training = self.training
        self.eval()
        try:
            encoded = [self._encoded(x, of_x) for x, of_x in masked_batches(data, mask, name="x")]
        finally:
            self.train(was_training)
        self.quantizer.init_from(encoded, **options)
        return self

    def decode(self, indices: Int[Tensor, "*indices"], mask: Tensor | None = None) -> Tensor:
        """What the decoder makes of stored codes."""
        quantized = self.quantizer.codes(indices)
        if mask is None:
            return self.decoder(quantized)  # type: ignore[no-any-return]
        mask = mask.to(torch.bool)
        arguments = {"mask": mask} if self._masks_decoder else {}
        return _blank(self.decoder(quantized, **arguments), mask, self.quantizer.channel_last)

    def _encode(self, x: Tensor, mask: Tensor) -> Tensor:
        arguments = {"mask": mask} if self._masks_encoder else {}
        return self.encoder(_blank(x, mask, self.quantizer.channel_last), **arguments)  # type: ignore[no-any-return]

    def _encoded(self, x: Tensor, mask: Tensor | None) -> Tensor | tuple[Tensor, Tensor]:
        if mask is None:
            return self.encoder(x)  # type: ignore[no-any-return]
        mask = mask.to(torch.bool)
        return self._encode(x, mask), mask


def _takes_mask(module: nn.Module) -> bool:
    return not type(module).__module__.startswith("torch.") and "mask" in inspect.signature(module.forward).parameters


def _blank(x: Tensor, mask: Tensor, channel_last: bool) -> Tensor:
    """Zero where the mask is false, if x has the axes of the mask: first, or around a channel axis in second place."""
    if not channel_last:
        fits = x.dim() == mask.dim() + 1 and (x.shape[0], *x.shape[2:]) == tuple(mask.shape)
        return x.masked_fill(~mask.unsqueeze(1), 0) if fits else x
    if x.shape[: mask.dim()] != mask.shape:
        return x
    return x.masked_fill(~mask[(...,) + (None,) * (x.dim() - mask.dim())], 0)
