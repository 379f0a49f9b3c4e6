"""Starting every bank of a model from what enters it, in the order in which they are called."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ddcl.functional import CRITICAL_FACTOR, InitMethod, covariance, kmeans, resolving_temperature
from ddcl.nn import PrototypeBank, banks_of
from ddcl.shapes import Float
from ddcl.training.entering import entering_tokens
from ddcl.training.losses import call

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
    model: nn.Module,
    batches: Iterable[Any],
    forward: Callable[[nn.Module, Any], Any],
    *,
    names: Collection[str] | None = None,
    limit: int = STARTING_TOKENS,
) -> dict[str, Tensor]:
    """Unmasked tokens (N, H, m) that enter each bank, from as many batches as ``limit`` asks for.

    By the names of the banks, in the order in which they are first called; of all banks, or of those named. The model
    is called in evaluation mode, without gradients, and left as it was.
    """
    banks = {name: bank for name, bank in banks_of(model).items() if names is None or name in names}
    found: dict[str, list[Tensor]] = {}

    def listen(name: str) -> Callable[..., None]:
        def hook(bank: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            tokens, mask = entering_tokens(bank, args, kwargs)
            found.setdefault(name, []).append(tokens if mask is None else tokens[mask])

        return hook

    hooks = [bank.register_forward_pre_hook(listen(name), with_kwargs=True) for name, bank in banks.items()]
    modes = {part: part.training for part in model.modules()}
    model.eval()
    try:
        for batch in batches:
            forward(model, batch)
            if len(found) == len(banks) and all(sum(map(len, parts)) >= limit for parts in found.values()):
                break
    finally:
        for part, training in modes.items():
            part.training = training
        for hook in hooks:
            hook.remove()
    return {name: torch.cat(parts)[:limit] for name, parts in found.items()}


def start_banks(
    model: nn.Module,
    gather: Callable[[Collection[str]], dict[str, Tensor]],
    *,
    method: InitMethod | None,
    restarts: int,
    generator: torch.Generator | None = None,
) -> tuple[Scales, dict[str, Tensor]]:
    """Put every bank where its tokens are, if asked to; find the scales of those tokens, and return them too.

    Args:
        model: any module with banks in it.
        gather: gives the tokens that enter the banks named, in the order of their calls. Asked again after a bank was
            started: what enters the next depends on it where banks stand on top of each other.
        method: how to start; None leaves the banks as they are.
        restarts, generator: see :func:`ddcl.kmeans`.
    """
    waiting = list(banks_of(model))
    entering: dict[str, Tensor] = {}
    scales = []
    found = gather(waiting)
    while waiting:
        name = next((name for name in found if name in waiting), None)
        if name is None:
            raise ValueError(f"model: bank {waiting[0]!r} was not called by any batch, so it cannot start from data")
        entering[name] = found[name]
        scales.append(_start(banks_of(model)[name], found[name], method, restarts, generator))
        waiting.remove(name)
        if waiting and method is not None:
            found = gather(waiting)
    spread = sum(one.spread for one in scales) / len(scales)
    return Scales(spread, min(one.resolving for one in scales)), entering


def _start(
    bank: PrototypeBank,
    tokens: Float[Tensor, "N H m"],
    method: InitMethod | None,
    restarts: int,
    generator: torch.Generator | None,
) -> Scales:
    tokens = tokens.to(bank.prototypes.dtype)
    data = tokens[:, 0] if bank.num_heads == 1 else tokens
    if method is not None:
        bank.init_from(data, method=method, restarts=restarts, generator=generator)
    centers = bank.prototypes.detach()
    if method not in ("kmeans", None) or not bool(bank.initialised):  # k-means, here or before, has seen the data
        heads = None if bank.num_heads == 1 else bank.num_heads
        centers = kmeans(data, bank.num_prototypes, restarts=1, num_heads=heads, generator=generator).centers
    moments = covariance(tokens, num_heads=bank.num_heads)
    critical = CRITICAL_FACTOR[bank.splits_like] * moments.largest
    resolving = resolving_temperature(centers, gradient=bank.splits_like).flatten().to(critical.device) / critical
    return Scales(float((moments.trace.mean() / bank.dim).sqrt()), float(resolving.nan_to_num().min()))


def init_banks(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    forward: Callable[[nn.Module, Any], Any] | None = None,
    method: InitMethod = "kmeans",
    restarts: int = 3,
    generator: torch.Generator | None = None,
) -> None:
    """Put every bank of a model where the tokens are that enter it, in the order in which they are called.

    The model is called in evaluation mode, without gradients, and left as it was but for its banks. :class:`Trainer`
    does this by itself; this is for loops of your own.

    Args:
        model: anything with a :class:`PrototypeBank` in it; not compiled.
        batches: as ``forward`` takes them; walked through once for each bank, as far as it needs.
        forward: how to call the model on a batch. None: ``model(**batch)`` for a mapping, otherwise ``model(batch)``,
            with a mask if the batch is a pair of a tensor and a bool mask.
        method, restarts, generator: see :meth:`PrototypeBank.init_from`.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(6, 8), PrototypeFeedForward(8, num_prototypes=4))
        >>> init_banks(model, torch.randn(3, 7, 6))
        >>> bool(model[1].bank.initialised)
        True
    """
    if not banks_of(model):
        raise ValueError("model: it holds no PrototypeBank, so there is nothing to initialise")
    kept = list(batches) if isinstance(batches, Iterator) else batches
    how = forward or _call
    start_banks(
        model,
        lambda names: tokens_entering(model, kept, how, names=names),
        method=method,
        restarts=restarts,
        generator=generator,
    )


def _call(model: nn.Module, batch: Any) -> Any:
    return model(**batch) if isinstance(batch, Mapping) else call(model, batch)
