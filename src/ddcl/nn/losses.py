"""The quantisation losses of all banks of a model, whatever the model itself returns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ddcl.functional import Decomposition
from ddcl.nn.bank import banks_of
from ddcl.nn.conditioned import ConditionedBank


class QuantisationLosses:
    r"""What the banks of a model lost since ``clear``, collected by forward hooks on the banks.

    A module inside a network returns a tensor, so its :math:`L_q` takes this way to the training loop. The terms carry
    their gradients. :func:`quantisation_losses` opens and closes one around a call; an object of its own is for a loop
    that keeps it, and for compiled models, which see only hooks that were there when they were compiled.

    Args:
        model: anything with a :class:`PrototypeBank` in it.

    Attributes:
        terms: by the name of the bank, the :class:`Decomposition` of each of its calls.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(6, 8), PrototypeFeedForward(8, num_prototypes=4))
        >>> losses = QuantisationLosses(model)
        >>> for x in torch.randn(2, 5, 6):
        ...     losses.clear()
        ...     loss = model(x).square().mean() + 0.1 * losses.total()
        >>> list(losses.terms)
        ['1.bank']
        >>> losses.detach()
    """

    def __init__(self, model: nn.Module) -> None:
        banks: dict[str, nn.Module] = dict(banks_of(model))
        if not banks:
            raise ValueError("model: it holds no PrototypeBank, so there is no quantisation loss")
        # the bank inside a conditioned one loses in a frame of its own: what counts is the loss outside
        for name, part in model.named_modules():
            if isinstance(part, ConditionedBank):
                banks = {other: bank for other, bank in banks.items() if bank is not part.bank}
                banks[name] = part
        self.terms: dict[str, list[Decomposition]] = {name: [] for name in banks}
        self._cut_off: list[str] = []
        self._handles: list[RemovableHandle] = [
            bank.register_forward_hook(_Collector(name, self.terms[name], self._cut_off))
            for name, bank in banks.items()
        ]

    def total(self) -> Tensor:
        """The sum of :math:`L_q` over all calls of all banks."""
        return torch.stack([one.to(self._all()[0].device) for one in self._all()]).sum()

    def mean(self) -> Tensor:
        """The mean of :math:`L_q` over all calls of all banks: a weight for it need not follow the number of layers."""
        return self.total() / len(self._all())

    def clear(self) -> None:
        """Forget what was collected, before the next step."""
        for calls in self.terms.values():
            calls.clear()
        self._cut_off.clear()

    def detach(self) -> None:
        """Take the hooks out; what was collected stays."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _all(self) -> list[Tensor]:
        found = [one.total for calls in self.terms.values() for one in calls]
        if self._cut_off and torch.is_grad_enabled():
            raise RuntimeError(
                f"bank {self._cut_off[0]!r} was called in training with gradients switched off, so its loss has none. "
                "Reentrant gradient checkpointing does that: enable it with use_reentrant=False (Hugging Face: "
                "gradient_checkpointing_enable(gradient_checkpointing_kwargs={'use_reentrant': False}))"
            )
        if not found:
            raise RuntimeError(
                "no bank of the model was called, so there is no quantisation loss: call the model first. A compiled "
                "model sees only hooks that were there when it was compiled: make QuantisationLosses(model) before its "
                "first call, and keep it"
            )
        return found


class _Collector:
    """A forward hook of one bank."""

    def __init__(self, name: str, calls: list[Decomposition], cut_off: list[str]) -> None:
        self.name, self.calls, self.cut_off = name, calls, cut_off

    def __reduce__(self) -> tuple[Any, ...]:
        return _collecting_nothing, ()  # a copy of the model is not the one whose losses were asked for

    def __call__(self, bank: nn.Module, _args: Any, output: Any) -> None:
        self.calls.append(output.loss)
        learns = any(parameter.requires_grad for parameter in bank.parameters())
        if bank.training and learns and not torch.is_grad_enabled():
            self.cut_off.append(self.name)


def _collecting_nothing() -> Any:
    return _ignore


def _ignore(*_: Any) -> None:
    """The hook of a copied model."""


@contextmanager
def quantisation_losses(model: nn.Module) -> Iterator[QuantisationLosses]:
    """Collect the quantisation losses of every bank that is called inside the ``with`` block.

    Args:
        model: anything with a :class:`PrototypeBank` in it.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(6, 8), PrototypeFeedForward(8, num_prototypes=4))
        >>> with quantisation_losses(model) as losses:
        ...     y = model(torch.randn(3, 5, 6))
        >>> loss = y.square().mean() + 0.1 * losses.total()
        >>> loss.requires_grad
        True
    """
    losses = QuantisationLosses(model)
    try:
        yield losses
    finally:
        losses.detach()
