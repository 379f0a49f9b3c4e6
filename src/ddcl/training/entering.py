"""What enters a bank, as a forward pre-hook sees it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ddcl.nn import PrototypeBank


def entering_tokens(bank: PrototypeBank, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
    """Tokens (N, H, m), detached, and their mask (N,) from the arguments of a call of the bank."""
    z: Tensor = args[0] if args else kwargs["z"]
    mask: Tensor | None = args[1] if len(args) > 1 else kwargs.get("mask")
    tokens = z.detach().reshape(-1, bank.num_heads, bank.dim)
    return tokens, None if mask is None else mask.reshape(-1).to(torch.bool)
