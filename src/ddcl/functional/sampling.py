"""One prototype per token, drawn from its mixture."""

from __future__ import annotations

import torch
from torch import Tensor

from ddcl.functional.checks import check_prototypes, check_tokens
from ddcl.functional.readout import _assignments, _canonical_temperature, _token_mask
from ddcl.ops import arithmetic_dtype
from ddcl.ops.blocks import block_rows, row_blocks
from ddcl.shapes import Bool, Float, Int


@torch.no_grad()
def sample_assignments(
    z: Float[Tensor, "*batch m"],
    prototypes: Float[Tensor, "K m"] | Float[Tensor, "H K m"],
    temperature: float | Tensor,
    *,
    mask: Bool[Tensor, "*tokens"] | Int[Tensor, "*tokens"] | None = None,
    generator: torch.Generator | None = None,
    check_values: bool = True,
) -> Int[Tensor, "*indices"]:
    r"""Draw one prototype for each token (and head) from its mixture q.

    .. math:: k \sim q(z) = \operatorname{softmax}_k(-\lVert z - p_k\rVert^2 / T)

    One uniform number per token is turned into an index through the running sum of q, in blocks of tokens: no whole
    N x K is held, and the draws do not depend on the blocks. Nothing is differentiable here.

    Args:
        z: tokens (..., m); for several heads (..., H, m).
        prototypes: the bank (K, m), or one bank for each of H heads, (H, K, m).
        temperature: T > 0, as in :func:`ddcl.readout`.
        mask: true where a token counts, of shape z.shape[:-1], without the head axis.
        generator: where the randomness comes from; None: PyTorch's own, on the device of z.
        check_values: whether to look at a temperature tensor on a GPU, see :func:`ddcl.readout`.

    Returns:
        Indices of shape z.shape[:-1], -1 at masked tokens.

    Example:
        >>> bank = torch.tensor([[0.0], [4.0]])
        >>> drawn = sample_assignments(torch.full((1000, 1), 2.1), bank, temperature=1.0)
        >>> bool((drawn.float().mean() - assignments(torch.tensor([[2.1]]), bank, 1.0)[0, 1]).abs() < 0.1)
        True
    """
    check_prototypes(prototypes)
    check_tokens(z, prototypes)
    mask = _token_mask(mask, z, prototypes)
    T = _canonical_temperature(temperature, z, prototypes, mask, check_values)
    heads, _, dim = prototypes.shape if prototypes.dim() == 3 else (1, *prototypes.shape)
    tokens = z.reshape(-1, heads, dim)
    # drawn outside of the operator: the compiler knows what this is and never runs it twice
    uniform = torch.empty(tokens.shape[:2], device=z.device, dtype=T.dtype).uniform_(generator=generator)
    banks = prototypes.reshape(heads, -1, dim)
    flat_mask = None if mask is None else mask.reshape(-1)
    opaque = torch.compiler.is_compiling() or z.is_meta
    found: Tensor = (_pick_opaque if opaque else _pick)(tokens, banks, T, flat_mask, uniform)
    return found.reshape(z.shape[:-1])


def _pick(z: Tensor, prototypes: Tensor, temperature: Tensor, mask: Tensor | None, uniform: Tensor) -> Tensor:
    """The index at which the running sum of q passes a number from 0 to 1: z (N, H, m), T (1 or N, H) to (N, H)."""
    heads, K, _ = prototypes.shape
    dtype = arithmetic_dtype(z.dtype)
    banks = prototypes.to(dtype)
    found = torch.empty(uniform.shape, dtype=torch.int64, device=z.device)
    for rows in row_blocks(len(z), block_rows(len(z), heads * K, z.device)):
        T = temperature if temperature.shape[0] == 1 else temperature[rows]
        kept = None if mask is None else mask[rows]
        # q in the arithmetic's dtype: rounded to half precision it would be another distribution
        sums = _assignments(z[rows].to(dtype), banks, T, kept).cumsum(-1)
        level = uniform[rows].unsqueeze(-1) * sums[..., -1:]  # the last sum is 1 but for rounding
        found[rows] = torch.searchsorted(sums, level, right=True).squeeze(-1)
    found.clamp_max_(K - 1)
    return found if mask is None else found.masked_fill_(~mask.unsqueeze(-1), -1)


@torch.library.custom_op(
    "ddcl::sample_assignments",
    mutates_args=(),
    schema="(Tensor z, Tensor prototypes, Tensor temperature, Tensor? mask, Tensor uniform) -> Tensor",
)
def _pick_opaque(z: Tensor, prototypes: Tensor, temperature: Tensor, mask: Tensor | None, uniform: Tensor) -> Tensor:
    return _pick(z, prototypes, temperature, mask, uniform)


@_pick_opaque.register_fake
def _(z: Tensor, prototypes: Tensor, temperature: Tensor, mask: Tensor | None, uniform: Tensor) -> Tensor:  # noqa: ARG001
    return torch.empty(uniform.shape, dtype=torch.int64, device=z.device)
