"""The paper's layer (Definition 1, equations 4 to 7)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from ddcl.functional import Batches, Readout
from ddcl.functional.batches import masked_batches
from ddcl.functional.checks import check_count, check_float_tensor, check_mask
from ddcl.functional.outputs import TupleLike, register_output
from ddcl.nn.bank import PrototypeBank
from ddcl.nn.normalisation import Normalisation, TokenNorm
from ddcl.ops import Backend, Gradient, autocast_enabled
from ddcl.shapes import Bool, Float, Int

if TYPE_CHECKING:
    from typing_extensions import Self


@register_output
@dataclass(frozen=True, eq=False)
class AttentionOutput(TupleLike):
    """What ``DDCLAttention`` gives back; unpacks as ``hidden, readout``."""

    hidden: Tensor
    """(B, T, dim), zero at masked tokens."""
    readout: Readout
    """The readout of the projected tokens, with the losses."""

    _tuple_fields: ClassVar[tuple[str, ...]] = ("hidden", "readout")


class DDCLAttention(nn.Module):
    r"""Tokens through a bank of prototypes, back into the residual stream.

    .. math::
        z^{(h)} = W_h x, \quad o^{(h)} = \sum_k q_k^{(h)} p_k^{(h)}, \quad
        \text{hidden} = \operatorname{LayerNorm}(x + W_O\,[o^{(1)} \cdots o^{(H)}])

    With one head and no ``proto_dim`` there is no input projection and the bank lives in the space of the tokens,
    as in the paper's Definition 1. Otherwise one matrix holds all :math:`W_h`.

    Args:
        dim: dimension of the tokens.
        num_prototypes: K, for each head.
        proto_dim: m, the dimension the heads share; a multiple of ``num_heads``. None: ``dim``.
        num_heads: H; each head has K prototypes of dimension m / H.
        normalise: what is done to the projected tokens before they meet the bank, see :class:`TokenNorm`; with several
            heads ``"unit"`` and ``"layer"`` act on each.
        temperature, gradient, backend: see :class:`PrototypeBank`.
        eps: of the LayerNorm.

    Example:
        >>> layer = DDCLAttention(dim=8, num_prototypes=4, proto_dim=6, num_heads=2)
        >>> x = torch.randn(3, 5, 8)
        >>> hidden, readout = layer.init_from(x)(x)
        >>> hidden.shape, readout.centroid.shape
        (torch.Size([3, 5, 8]), torch.Size([3, 5, 2, 3]))
    """

    def __init__(
        self,
        dim: int,
        num_prototypes: int,
        *,
        proto_dim: int | None = None,
        num_heads: int = 1,
        normalise: Normalisation = "none",
        temperature: float | Tensor | None = None,
        gradient: Gradient = "full",
        backend: Backend = "auto",
        eps: float = 1e-5,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_count("dim", dim)
        check_count("num_heads", num_heads)
        width = dim if proto_dim is None else proto_dim
        check_count("proto_dim", width)
        if width % num_heads:
            name = "dim" if proto_dim is None else "proto_dim"
            raise ValueError(f"{name}: got {width}, expected a multiple of num_heads = {num_heads}")
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.dim, self.num_heads, self.head_dim = dim, num_heads, width // num_heads
        projected = num_heads > 1 or proto_dim is not None
        self.project = nn.Linear(dim, width, bias=False, **place) if projected else nn.Identity()
        self.enter = TokenNorm(width if normalise == "standard" else self.head_dim, normalise, **place)
        self.bank = PrototypeBank(
            num_prototypes,
            self.head_dim,
            num_heads=num_heads,
            temperature=temperature,
            gradient=gradient,
            backend=backend,
            **place,
        )
        self.output = nn.Linear(width, dim, bias=False, **place)
        self.norm = nn.LayerNorm(dim, eps=eps, **place)

    def forward(
        self,
        x: Float[Tensor, "*batch dim"],
        mask: Bool[Tensor, "*batch"] | Int[Tensor, "*batch"] | None = None,
    ) -> AttentionOutput:
        """Tokens x (B, T, dim), mask (B, T) true where a token counts."""
        x, mask = self._without_masked(x, mask)
        found = self.bank(self._to_heads(x, mask), mask)
        joined = found.centroid if self.num_heads == 1 else found.centroid.flatten(-2)
        hidden = self.norm(x + self.output(joined))
        if mask is not None:
            hidden = hidden.masked_fill(~mask.unsqueeze(-1), 0.0)
        return AttentionOutput(hidden, found)

    @torch.no_grad()
    def init_from(self, data: Batches, *, mask: Tensor | None = None, **options: Any) -> Self:
        """Initialise the bank from tokens as ``forward`` takes them; options as in :meth:`PrototypeBank.init_from`.

        Args:
            data: x (..., dim), or an iterable of batches or (batch, mask) pairs.
            mask: for a tensor, true where a token counts.
        """
        if isinstance(data, Tensor):
            x, mask = self._without_masked(data, mask)
            self.bank.init_from(self._to_heads(x, mask), mask=mask, **options)
        else:
            kept = list(data) if isinstance(data, Iterator) else data
            self.bank.init_from(_Projected(self, kept), mask=mask, **options)
        return self

    def _without_masked(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Masked tokens set to zero, so that not even a NaN in them reaches a weight's gradient."""
        check_float_tensor("x", x)
        if x.dtype != self.norm.weight.dtype and not autocast_enabled(x.device.type):
            raise TypeError(f"x: got dtype {x.dtype}, expected that of the layer, {self.norm.weight.dtype}")
        if x.dim() < 1 or x.shape[-1] != self.dim:
            raise ValueError(f"x: got shape {tuple(x.shape)}, expected (..., {self.dim})")
        if mask is None:
            return x, None
        check_mask(mask, tuple(x.shape[:-1]), x.device)
        mask = mask.to(torch.bool)
        return x.masked_fill(~mask.unsqueeze(-1), 0.0), mask

    def _to_heads(self, x: Tensor, mask: Tensor | None) -> Tensor:
        z: Tensor = self.project(x)
        if self.enter.kind == "standard":
            z = self.enter(z, mask)
        if self.num_heads > 1:
            z = z.reshape(*z.shape[:-1], self.num_heads, self.head_dim)
        return z if self.enter.kind == "standard" else self.enter(z)


class _Projected:
    """Batches as the bank sees them, projected anew each time they are walked through."""

    def __init__(self, layer: DDCLAttention, data: Batches) -> None:
        self.layer, self.data = layer, data

    def __iter__(self) -> Iterator[Tensor | tuple[Tensor, Tensor]]:
        for batch, mask in masked_batches(self.data, name="x"):
            x, mask = self.layer._without_masked(batch, mask)
            tokens = self.layer._to_heads(x, mask)
            yield tokens if mask is None else (tokens, mask)
