"""The temperature as a multiple of the critical one, followed while the data move."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ddcl.functional import CRITICAL_FACTOR, resolving_temperature
from ddcl.functional.batches import Batches
from ddcl.functional.checks import check_choice, check_count
from ddcl.nn import PrototypeBank
from ddcl.ops import autocast_off
from ddcl.training.entering import entering_tokens
from ddcl.training.following import FollowsBanks
from ddcl.training.moments import RunningMoments

if TYPE_CHECKING:
    from typing_extensions import Self

Shape = Literal["exponential", "cosine", "held"]
SHAPES: tuple[str, ...] = get_args(Shape)

_ALWAYS_WATCHED, _SETTLED = 32, 512
"""Steps up to which every one is looked at, and from which half as many looks do: an encoder moves most at first."""

_STAIR = 0.005
"""T is set anew once it is off by this share: setting it costs a few calls, which a short step on a GPU feels."""


class _Followed:
    """A bank, what is known of its tokens, and what its temperature is a multiple of."""

    def __init__(self, bank: PrototypeBank, moments: RunningMoments, resolved: float | None) -> None:
        self.bank, self.moments, self.resolved = bank, moments, resolved
        self.fraction = torch.ones_like(bank.temperature)  # a, a tensor: compiled code would build a number in
        self.critical = torch.zeros_like(bank.temperature)  # T_c, 0 while no spread has been seen
        self.ceiling = torch.full_like(bank.temperature, float("inf"))
        self.watching = True

    def set_fractions(self, values: tuple[float, ...]) -> None:
        """a, one number or one for each head; filled in, not copied, so that nothing waits for the device."""
        if len(values) == 1:
            self.fraction.fill_(values[0])
        else:
            for head, value in enumerate(values):
                self.fraction[head].fill_(value)
        self.set_temperature()

    @torch.no_grad()
    def set_temperature(self) -> None:
        """T = a T_c, in as few calls as possible."""
        wanted = self.critical * self.fraction
        if self.resolved is not None:
            wanted = torch.minimum(wanted, self.ceiling)
        # until tokens with any spread have been seen there is no T_c, and the bank keeps what it has
        torch.where(wanted > 0, wanted, self.bank.temperature, out=self.bank.temperature)

    @torch.no_grad()
    def look(self) -> None:
        """Take over what the running moments and the bank say now."""
        torch.mul(self.moments.largest, CRITICAL_FACTOR[self.bank.splits_like], out=self.critical)
        if self.resolved is not None:
            # T stays below what keeps the prototypes apart from their neighbours as they stand
            found = resolving_temperature(self.bank.prototypes.detach(), gradient=self.bank.splits_like)
            self.ceiling.copy_(self.resolved * found)
        self.set_temperature()

    def observe(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A forward pre-hook: tensors only, so that compiled code may contain it."""
        if not (self.watching and module.training):
            return
        tokens, mask = entering_tokens(self.bank, args, kwargs)
        with autocast_off(tokens):
            self.moments.update(tokens, mask)
            self.look()


class CriticalSchedule(FollowsBanks[_Followed]):
    r"""Temperatures in units of the critical one: :math:`T = a(t)\,T_c`, with :math:`T_c` from what enters the bank.

    Below :math:`a = 1` the merged bank is no resting place, whatever the scale of the data and however the
    encoder changes it. :math:`T_c = 4\,\lambda_{\max}(C)` in gradient mode full, 2 in mode stop and for a bank that
    :class:`SoftKMeans` moves; :math:`C` is a running covariance per head of the unmasked tokens, kept on their device
    without ever waiting for it.

    Args:
        start: :math:`a` at the beginning, between 0 and 1; a number, or one for each head.
        end: :math:`a` at the end, likewise.
        steps: calls of :meth:`step` from start to end; afterwards ``end`` is held.
        shape: ``"exponential"`` or ``"cosine"`` from start to end, or ``"held"`` at start.
        warmup: calls of :meth:`step` before the fall begins.
        resolved: also hold T below this multiple of the bank's own :func:`ddcl.resolving_temperature`, as it stands
            at each look. Prototypes that come near each other then cool the bank and stay apart, however the encoder
            gathers its tokens. For banks that were started from data: a merged bank would be held at T = 0.
        every: after the first 32 steps, one step in so many is looked at, after 512 one in twice as many, which makes
            following nearly free.
        momentum: weight of the past in the running covariance, per batch looked at.
        sample: tokens of such a batch that are looked at.

    Example:
        >>> bank = PrototypeBank(num_prototypes=4, dim=8)
        >>> schedule = CriticalSchedule(start=0.9, end=0.05, steps=100).attach(bank)
        >>> for _ in range(100):
        ...     loss = bank(1e-3 * torch.randn(256, 8)).loss.total  # a scale at which T = 2.0 would merge any bank
        ...     a = schedule.step()
        >>> round(float(bank.temperature / schedule.critical_temperature(bank)), 3)
        0.05
    """

    _without_banks = "there is no temperature to schedule"

    def __init__(
        self,
        start: float | Sequence[float] = 0.9,
        end: float | Sequence[float] = 0.05,
        *,
        steps: int,
        shape: Shape = "exponential",
        warmup: int = 0,
        resolved: float | None = None,
        every: int = 8,
        momentum: float = 0.9,
        sample: int = 512,
    ) -> None:
        super().__init__()
        check_choice("shape", shape, SHAPES)
        check_count("steps", steps)
        check_count("warmup", warmup, minimum=0)
        check_count("every", every)
        check_count("sample", sample, minimum=2)
        if resolved is not None and not 0 < resolved < float("inf"):
            raise ValueError(f"resolved: got {resolved}, expected a positive finite number or None")
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum: got {momentum}, expected a number from 0 to below 1")
        self.start, self.end = _fractions("start", start), _fractions("end", end)
        for first, last in zip(*_same_length(self.start, self.end), strict=True):
            if last > first and shape != "held":
                raise ValueError(f"end: got {last}, expected at most start = {first}: temperatures fall")
        self.steps, self.shape, self.warmup, self.resolved = steps, shape, warmup, resolved
        self.every, self.momentum, self.sample = every, momentum, sample
        self.time = 0
        self._set = self.at(0)

    def at(self, time: float) -> tuple[float, ...]:
        """a at a time: one number, or one for each head."""
        done = min(max(time - self.warmup, 0) / self.steps, 1.0)
        return tuple(self._fall(*ends, done) for ends in zip(*_same_length(self.start, self.end), strict=True))

    def _fall(self, start: float, end: float, done: float) -> float:
        if self.shape == "held":
            return start
        if self.shape == "cosine":
            return end + (start - end) * (1 + math.cos(math.pi * done)) / 2
        return float(start * (end / start) ** done)

    def _follow(self, bank: PrototypeBank) -> _Followed:
        if len(self.at(0)) not in (1, bank.num_heads):
            raise ValueError(f"start: got {len(self.at(0))} values, expected 1 or num_heads = {bank.num_heads}")
        followed = _Followed(bank, RunningMoments.of(bank, momentum=self.momentum, sample=self.sample), self.resolved)
        followed.look()
        followed.set_fractions(self._set)
        return followed

    def _hook(self, bank: PrototypeBank, follower: _Followed) -> RemovableHandle:
        return bank.register_forward_pre_hook(follower.observe, with_kwargs=True)

    def _resize(self, follower: _Followed, origin: Tensor) -> None:  # noqa: ARG002
        follower.look()  # nothing is kept by prototype, but the ceiling is that of other ones now

    def observe(self, data: Batches, *, mask: Tensor | None = None, bank: str | None = None) -> Self:
        """Start the covariance of a bank, by its name, from data as the bank takes them, before the first step.

        Without a name, of the only bank there is.
        """
        if bank is None and len(self._followers) != 1:
            raise ValueError(f"schedule: {len(self._followers)} banks are attached, expected one to take these data")
        if bank is not None and bank not in self._followers:
            raise ValueError(f"bank: got {bank!r}, expected one of {sorted(self._followers)}")
        followed = next(iter(self._followers.values())) if bank is None else self._followers[bank]
        followed.moments.set_from(data, mask)
        followed.look()
        return self

    def step(self) -> tuple[float, ...]:
        """Move on by one and set the temperatures, to within half a per cent on the way; returns a."""
        self.time += 1
        wanted, looks = self.at(self.time), self._looks()
        arrived = self.time >= self.warmup + self.steps and wanted != self._set
        off = any(abs(a - b) > _STAIR * b for a, b in zip(self._set, wanted, strict=True))
        for followed in self._followers.values():
            followed.watching = looks
            if looks or off or arrived:
                followed.set_fractions(wanted)
        if looks or off or arrived:
            self._set = wanted
        return wanted

    def _looks(self) -> bool:
        """Whether the next step is looked at."""
        pause = self.every if self.time < _SETTLED else 2 * self.every
        return self.time < _ALWAYS_WATCHED or self.time % pause == 0

    def critical_temperature(self, bank: PrototypeBank) -> Tensor:
        """T_c of an attached bank as it is known now, (H,)."""
        return CRITICAL_FACTOR[bank.splits_like] * self._of(bank).moments.largest

    def state_dict(self) -> dict[str, Any]:
        """Time, a as it was last set, running covariances and ceilings; the settings belong to the constructor."""
        return {
            "time": self.time,
            "fractions": self._set,
            "moments": {name: one.moments.state_dict() for name, one in self._followers.items()},
            "ceilings": {name: one.ceiling.clone() for name, one in self._followers.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Return to a saved state of a schedule attached to the same banks."""
        self._check_names(state["moments"])
        self.time, self._set = int(state["time"]), tuple(state["fractions"])
        for name, followed in self._followers.items():
            followed.moments.load_state_dict(state["moments"][name])
            followed.look()
            followed.ceiling.copy_(state["ceilings"][name])
            followed.watching = self._looks()
            followed.set_fractions(self._set)

    def __repr__(self) -> str:
        start, end = (values[0] if len(values) == 1 else values for values in (self.start, self.end))
        return f"CriticalSchedule(start={start}, end={end}, steps={self.steps}, shape={self.shape!r}, time={self.time})"


def _fractions(name: str, value: float | Sequence[float]) -> tuple[float, ...]:
    values = tuple(value) if isinstance(value, Sequence) else (value,)
    for one in values:
        if not 0 < one < 1:
            raise ValueError(
                f"{name}: got {one}, expected multiples of T_c between 0 and 1: from 1 on the merged bank is stable"
            )
    return tuple(float(one) for one in values)


def _same_length(start: tuple[float, ...], end: tuple[float, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    size = max(len(start), len(end))
    if len(start) not in (1, size) or len(end) not in (1, size):
        raise ValueError(f"end: got {len(end)} values, expected 1 or as many as start has, {len(start)}")
    return start * (size // len(start)), end * (size // len(end))
