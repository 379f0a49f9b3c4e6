"""A bank that follows a context: every context has prototypes of its own, none of which is ever held."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ddcl.functional import Readout
from ddcl.functional.checks import check_count, check_float_tensor, check_mask
from ddcl.nn.bank import PrototypeBank
from ddcl.ops import arithmetic_dtype, autocast_enabled
from ddcl.shapes import Bool, Float, Int

if TYPE_CHECKING:
    from typing_extensions import Self


class ConditionedBank(nn.Module):
    r"""The readout through prototypes that a context shifts and scales, :math:`P(c) = s(c)\,P + b(c)`.

    .. math::
        \mu(z, c) = s\,\mu_P\!\left(\frac{z - b}{s}\right) + b, \qquad b = B c, \quad \ln s = a^\top c

    This equals the readout of z through the bank :math:`s P + b` at the temperature :math:`s^2 T`, and no such bank is
    built: the tokens are moved into the frame of P and the result is moved back. B and a start at zero, so a new
    module is the plain bank. The inner bank sees the tokens in its own frame, so a schedule, a mover and a monitor work
    on it as on any other. Each head has its own B and a.

    Args:
        bank: P and T.
        context_dim: the dimension of a context vector.
        scale: whether the context scales too; without, s = 1.
        device, dtype: of B and a; by default those of the bank.

    Example:
        >>> bank = PrototypeBank(num_prototypes=2, dim=1, temperature=1.0)
        >>> bank.move_to(torch.tensor([[[-1.0], [1.0]]]))
        >>> module = ConditionedBank(bank, context_dim=1, scale=False)
        >>> _ = torch.nn.init.constant_(module.shift.weight, 5.0)  # b = 5 c
        >>> module.prototypes_at(torch.tensor([[0.0], [2.0]])).squeeze(-1)
        tensor([[-1.,  1.],
                [ 9., 11.]], grad_fn=<SqueezeBackward1>)
        >>> z = torch.tensor([[[10.9]], [[10.9]]])  # two sequences of one token
        >>> module(z, torch.tensor([[0.0], [2.0]])).loss.quantization.detach()  # 9.9^2 and 0.1^2
        tensor(49.0100)
    """

    def __init__(
        self,
        bank: PrototypeBank,
        context_dim: int,
        *,
        scale: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(bank, PrototypeBank):
            raise TypeError(f"bank: got {type(bank).__name__}, expected a PrototypeBank")
        check_count("context_dim", context_dim)
        held = bank.learned[0]
        place: dict[str, Any] = {"device": device or held.device, "dtype": dtype or held.dtype}
        self.bank, self.context_dim = bank, context_dim
        # no bias: a constant shift or scale is one of P itself
        self.shift = nn.Linear(context_dim, bank.num_heads * bank.dim, bias=False, **place)
        self.log_scale = nn.Linear(context_dim, bank.num_heads, bias=False, **place) if scale else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """B and a to zero: the plain bank."""
        for part in (self.shift, self.log_scale):
            if part is not None:
                nn.init.zeros_(part.weight)

    def forward(
        self,
        z: Float[Tensor, "*batch m"],
        context: Float[Tensor, "*lead c"],
        mask: Bool[Tensor, "*tokens"] | Int[Tensor, "*tokens"] | None = None,
    ) -> Readout:
        """The readout of tokens under their context, in the units of the tokens.

        Args:
            z: tokens (..., m), or (..., H, m) for several heads.
            context: one vector for each token, or for each index of the leading token axes: for tokens (B, T, m) it is
                (B, T, c), (B, c) or (c,).
            mask: true where a token counts, one entry per token. A context none of whose tokens counts may be anything.
        """
        z, shift, scale, mask = self._enter(z, context, mask)
        found: Readout = self.bank(_inwards(z, shift, scale), mask)
        centroid = (found.centroid if scale is None else found.centroid * scale) + shift
        centroid = centroid.to(found.centroid.dtype)  # s and b may be wider
        if mask is not None:
            hidden = ~mask[(...,) + (None,) * (centroid.dim() - mask.dim())]
            centroid = centroid.masked_fill(hidden, 0.0)
        per_token = found.per_token
        if scale is not None:
            # every term is a squared distance, or T = s^2 T_inner times the entropy, but for the entropy itself
            area = scale.squeeze(-1).to(per_token.total.dtype).square()
            squared = ("total", "reconstruction", "variance", "quantization", "free_energy")
            per_token = replace(per_token, **{name: getattr(per_token, name) * area for name in squared})
        # q is the same in both frames, so the inner inputs give the assignments
        return replace(found, centroid=centroid, per_token=per_token, loss=per_token.mean(mask))

    def prototypes_at(self, context: Float[Tensor, "*lead c"]) -> Tensor:
        """s P + b for each context: (..., K, m), or (..., H, K, m) for several heads."""
        self._check_context(context, tuple(context.shape[:-1]))
        shift, scale = self._shift_and_scale(context, 0)
        prototypes = self.bank.prototypes[0] if self.bank.num_heads == 1 else self.bank.prototypes
        grown = prototypes if scale is None else scale.unsqueeze(-2) * prototypes
        return grown + shift.unsqueeze(-2)

    @torch.no_grad()
    def init_from(
        self,
        data: Float[Tensor, "*batch m"],
        context: Float[Tensor, "*lead c"],
        *,
        mask: Tensor | None = None,
        **options: Any,
    ) -> Self:
        """Start the inner bank from tokens in its own frame; arguments as for ``forward``.

        Further options as in :meth:`PrototypeBank.init_from`.
        """
        z, shift, scale, mask = self._enter(data, context, mask)
        self.bank.init_from(_inwards(z, shift, scale), mask=mask, **options)
        return self

    def _enter(
        self, z: Tensor, context: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Tokens and contexts, checked and with masked ones zero, and what the contexts say."""
        check_float_tensor("z", z)
        own = (self.bank.dim,) if self.bank.num_heads == 1 else (self.bank.num_heads, self.bank.dim)
        if z.dim() < len(own) or tuple(z.shape[-len(own) :]) != own:
            raise ValueError(f"z: got shape {tuple(z.shape)}, expected (..., {', '.join(map(str, own))})")
        tokens = tuple(z.shape[: -len(own)])
        self._check_context(context, tokens)
        if mask is not None:
            check_mask(mask, tokens, z.device)
            mask = mask.to(torch.bool)
            z = z.masked_fill(~mask[(...,) + (None,) * len(own)], 0.0)
            lead = context.dim() - 1
            counts = mask if lead == len(tokens) else mask.flatten(lead).any(-1)
            context = context.masked_fill(~counts.unsqueeze(-1), 0.0)
        return z, *self._shift_and_scale(context, len(tokens)), mask

    def _shift_and_scale(self, context: Tensor, token_axes: int) -> tuple[Tensor, Tensor | None]:
        """b (..., m) or (..., H, m) and s (..., 1) or (..., H, 1), with an axis of size 1 for each left out."""
        missing = (1,) * max(token_axes - (context.dim() - 1), 0)
        heads = () if self.bank.num_heads == 1 else (self.bank.num_heads,)
        lead = (*context.shape[:-1], *missing, *heads)
        shift = self.shift(context).reshape(*lead, self.bank.dim)
        if self.log_scale is None:
            return shift, None
        exponent = self.log_scale(context).reshape(*lead, 1)
        return shift, exponent.to(arithmetic_dtype(exponent.dtype)).exp()  # half precision would round the losses

    def _check_context(self, context: Tensor, tokens: tuple[int, ...]) -> None:
        check_float_tensor("context", context)
        lead = tuple(context.shape[:-1])
        if context.dim() < 1 or context.shape[-1] != self.context_dim or lead != tokens[: len(lead)]:
            accepted = [str((*tokens[:n], self.context_dim)) for n in range(len(tokens), -1, -1)]
            raise ValueError(f"context: got shape {tuple(context.shape)}, expected {' or '.join(accepted)}")
        expected = self.shift.weight.dtype
        if context.dtype != expected and not autocast_enabled(context.device.type):
            raise TypeError(f"context: got dtype {context.dtype}, expected that of the module, {expected}")

    def extra_repr(self) -> str:
        """The size that the parts do not show, for ``repr``."""
        return f"context_dim={self.context_dim}"


def _inwards(z: Tensor, shift: Tensor, scale: Tensor | None) -> Tensor:
    """Tokens in the frame of the inner bank, in their own dtype."""
    moved = z - shift
    return (moved if scale is None else moved / scale).to(z.dtype)
