"""How tokens come to a bank: masked ones silenced, the rest projected, normalised and split into heads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ddcl.functional import Batches
from ddcl.functional.batches import ChangedBatches
from ddcl.functional.checks import check_count, check_float_tensor, check_mask
from ddcl.nn.bank import PrototypeBank
from ddcl.nn.normalisation import Normalisation, TokenNorm
from ddcl.ops import Backend, Gradient, autocast_enabled

if TYPE_CHECKING:
    from typing_extensions import Self


class BankEntrance(nn.Module):
    r"""A bank and the way of the tokens into it, :math:`z^{(h)} = \operatorname{enter}(W_h x)`.

    Modules that read tokens of dimension ``dim`` through a bank build on it, and add a ``forward`` that calls
    ``self.bank(self.to_heads(x, mask), mask)`` on what ``without_masked`` gave them. It is a class to build on and not
    a part to hold, so that ``project``, ``enter`` and ``bank`` are parts of the module itself.

    With one head and no ``proto_dim`` there is no input projection and the bank lives in the space of the tokens.
    Otherwise one matrix holds all :math:`W_h`.

    Args:
        dim: dimension of the tokens.
        num_prototypes: K, for each head.
        proto_dim: m, the dimension the heads share; a multiple of ``num_heads``. None: ``dim``.
        num_heads: H; each head has K prototypes of dimension m / H.
        normalise: what is done to the projected tokens before they meet the bank, see :class:`TokenNorm`; with several
            heads ``"unit"`` and ``"layer"`` act on each.
        temperature, gradient, backend: see :class:`PrototypeBank`.

    Attributes:
        width: m, the dimension of all heads together.
        head_dim: m / H, that of one.
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
        self.dim, self.num_heads, self.width, self.head_dim = dim, num_heads, width, width // num_heads
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

    def without_masked(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Tokens and mask, checked; masked tokens set to zero, so that not even a NaN reaches a weight's gradient."""
        check_float_tensor("x", x)
        expected = self.bank.prototypes.dtype
        if x.dtype != expected and not autocast_enabled(x.device.type):
            raise TypeError(f"x: got dtype {x.dtype}, expected that of the layer, {expected}")
        if x.dim() < 1 or x.shape[-1] != self.dim:
            raise ValueError(f"x: got shape {tuple(x.shape)}, expected (..., {self.dim})")
        if mask is None:
            return x, None
        check_mask(mask, tuple(x.shape[:-1]), x.device)
        mask = mask.to(torch.bool)
        return x.masked_fill(~mask.unsqueeze(-1), 0.0), mask

    def to_heads(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Tokens as the bank takes them: (..., m), or (..., H, m / H) for several heads."""
        z: Tensor = self.project(x)
        if self.enter.kind == "standard":
            z = self.enter(z, mask)
        if self.num_heads > 1:
            z = z.reshape(*z.shape[:-1], self.num_heads, self.head_dim)
        return z if self.enter.kind == "standard" else self.enter(z)

    def join_heads(self, z: Tensor) -> Tensor:
        """The heads of a result, (..., H, n), side by side; of one head nothing is to be joined."""
        return z if self.num_heads == 1 else z.flatten(-2)

    @torch.no_grad()
    def init_from(self, data: Batches, *, mask: Tensor | None = None, **options: Any) -> Self:
        """Initialise the bank from tokens as ``forward`` takes them; options as in :meth:`PrototypeBank.init_from`.

        Args:
            data: x (..., dim), or an iterable of batches or (batch, mask) pairs.
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
        """What the bank sees of tokens."""
        x, mask = self.without_masked(x, mask)
        return self.to_heads(x, mask), mask
