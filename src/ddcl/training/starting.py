"""Starting every bank of a model from what enters it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ddcl.functional import CRITICAL_FACTOR, InitMethod, covariance, kmeans, resolving_temperature
from ddcl.training.entering import entering_tokens
from ddcl.training.groups import banks_of

STARTING_TOKENS = 2**16
"""Tokens a bank is started from; more than k-means needs for any K a bank has."""


class Scales(NamedTuple):
    """What a run needs to know of the tokens before it begins; over several banks the mean and the smallest."""

    spread: float
    """Spread per coordinate, sqrt(trace C / m)."""
    resolving: float
    """The temperature at which K prototypes stand apart, over T_c."""


@torch.no_grad()
def tokens_entering(
    model: nn.Module, batches: Iterable[Any], forward: Callable[[nn.Module, Any], Any], *, limit: int = STARTING_TOKENS
) -> dict[str, Tensor]:
    """Unmasked tokens (N, H, m) that enter each bank, by its name, from as many batches as ``limit`` asks for.

    The model is called in evaluation mode, without gradients, and left as it was.
    """
    banks = banks_of(model)
    found: dict[str, list[Tensor]] = {name: [] for name in banks}

    def listen(name: str) -> Callable[..., None]:
        def hook(bank: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            tokens, mask = entering_tokens(bank, args, kwargs)
            found[name].append(tokens if mask is None else tokens[mask])

        return hook

    hooks = [bank.register_forward_pre_hook(listen(name), with_kwargs=True) for name, bank in banks.items()]
    was_training = model.training
    model.eval()
    try:
        for batch in batches:
            forward(model, batch)
            if all(sum(map(len, parts)) >= limit for parts in found.values()):
                break
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    return {name: torch.cat(parts)[:limit] for name, parts in found.items() if parts}


def start_banks(
    model: nn.Module,
    entering: dict[str, Tensor],
    *,
    method: InitMethod | None,
    restarts: int,
    generator: torch.Generator | None = None,
) -> Scales:
    """Put every bank where its tokens are, if asked to, and find the scales of those tokens."""
    scales = []
    for name, bank in banks_of(model).items():
        if name not in entering:
            raise ValueError(f"model: bank {name!r} was not called by any batch, so it cannot be started from data")
        tokens = entering[name].to(bank.prototypes.dtype)
        data = tokens[:, 0] if bank.num_heads == 1 else tokens
        if method is not None:
            bank.init_from(data, method=method, restarts=restarts, generator=generator)
        centers = bank.prototypes.detach()
        if method != "kmeans":
            heads = None if bank.num_heads == 1 else bank.num_heads
            centers = kmeans(data, bank.num_prototypes, restarts=1, num_heads=heads, generator=generator).centers
        moments = covariance(tokens, num_heads=bank.num_heads)
        critical = CRITICAL_FACTOR[bank.splits_like] * moments.largest
        resolving = resolving_temperature(centers, gradient=bank.splits_like).flatten().to(critical.device) / critical
        scales.append(Scales(float((moments.trace.mean() / bank.dim).sqrt()), float(resolving.nan_to_num().min())))
    return Scales(sum(one.spread for one in scales) / len(scales), min(one.resolving for one in scales))
