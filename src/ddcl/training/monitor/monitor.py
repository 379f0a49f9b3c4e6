"""Watching a bank while it trains."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from ddcl.functional import CRITICAL_FACTOR, Readout, separation
from ddcl.functional.checks import check_count
from ddcl.nn import PrototypeBank
from ddcl.ops import autocast_off
from ddcl.shapes import Float
from ddcl.training.entering import entering_tokens
from ddcl.training.following import FollowsBanks
from ddcl.training.moments import RunningMoments
from ddcl.training.monitor.conditions import (
    CONDITIONS,
    Action,
    CollapseError,
    CollapseWarning,
    Condition,
    Trouble,
    with_actions,
)
from ddcl.training.monitor.measures import ExactSums, HeadMeasure, StepSums
from ddcl.training.monitor.repair import idle_prototypes, reset_rows, split_into
from ddcl.training.soft_kmeans import SoftKMeans

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass
class EpochReport:
    """Exact figures by bank and head, and the trouble they announce."""

    measures: dict[str, list[HeadMeasure]] = field(default_factory=dict)
    troubles: list[Trouble] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        """Whether no condition is met."""
        return not self.troubles

    def as_dict(self) -> dict[str, float]:
        """All figures as plain numbers, for any logger; ``bank/head/name``, or ``name`` if there is only one head."""
        return _flat({name: [one.as_dict() for one in heads] for name, heads in self.measures.items()})


class _Watched:
    """One bank and what is gathered about it."""

    def __init__(self, bank: PrototypeBank, every: int) -> None:
        self.bank, self.every = bank, every
        self.moments = RunningMoments.of(bank, momentum=0.9, sample=512)
        self.steps = StepSums(bank)
        self.exact: ExactSums | None = None
        self.kept: Tensor | None = None
        self.start_trace: Tensor | None = None
        self.calls = 0
        self.streaks: dict[tuple[str, int], int] = {}

    def observe(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Readout) -> None:
        """A forward hook of the bank."""
        if self.exact is None and not module.training:
            return
        tokens, mask = entering_tokens(self.bank, args, kwargs)
        with autocast_off(tokens):
            if self.exact is not None:
                self.exact.add(tokens, mask, output)
                return
            self.steps.add(output, mask)
            if self.calls % self.every == 0:
                self.moments.update(tokens, mask)
        self.calls += 1


class CollapseMonitor(FollowsBanks[_Watched]):
    """Collects what shows the health of every bank in a model, cheaply at each step and exactly once per epoch.

    Each step adds to sums on the device; :meth:`read` turns them into plain numbers. Once per epoch, run the data
    through the model inside :meth:`measuring`: the figures there are exact (see :class:`HeadMeasure`), the conditions
    are judged, and each one that is met warns, raises or repairs the bank.

    Args:
        actions: other actions than the conditions' own, by name: ``{"dead prototypes": "repair"}``.
        conditions: what announces trouble; see ``ddcl.training.CONDITIONS``.
        every: one step in so many is looked at for the running covariance.

    Example:
        >>> bank = PrototypeBank(num_prototypes=3, dim=2, temperature=1e3)  # far above T_c
        >>> monitor = CollapseMonitor().attach(bank)
        >>> z = torch.randn(100, 2)
        >>> import warnings
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore", CollapseWarning)
        ...     with monitor.measuring() as report:
        ...         readout = bank(z)
        >>> [trouble.condition.name for trouble in report.troubles]
        ['above the critical temperature']
        >>> report.as_dict()["relative_temperature"] > 1
        True
    """

    _without_banks = "there is nothing to watch"

    def __init__(
        self,
        actions: dict[str, Action] | None = None,
        *,
        conditions: Sequence[Condition] = CONDITIONS,
        every: int = 8,
    ) -> None:
        super().__init__()
        check_count("every", every)
        self.conditions = with_actions(tuple(conditions), actions or {})
        self.every = every
        self.optimiser: Optimizer | None = None
        self.mover: SoftKMeans | None = None

    def attach(self, model: nn.Module, *, optimiser: Optimizer | None = None, mover: SoftKMeans | None = None) -> Self:
        """Watch every bank of the model; a repair resets what the optimiser or mover remembers of moved prototypes."""
        self.optimiser, self.mover = optimiser, mover
        return super().attach(model)

    def _follow(self, bank: PrototypeBank) -> _Watched:
        return _Watched(bank, self.every)

    def _hook(self, bank: PrototypeBank, follower: _Watched) -> RemovableHandle:
        return bank.register_forward_hook(follower.observe, with_kwargs=True)

    def _resize(self, follower: _Watched, origin: Tensor) -> None:  # noqa: ARG002
        # counts of other prototypes, and trouble of another bank, say nothing of this one
        follower.steps, follower.streaks = StepSums(follower.bank), {}

    @torch.no_grad()
    def read(self) -> dict[str, float]:
        """Figures of the steps since the last ``clear``, as plain numbers: means of the terms, usage, a, S(P)."""
        found: dict[str, list[dict[str, float]]] = {}
        for name, watched in self._followers.items():
            bank, sums = watched.bank, watched.steps.read()
            critical = CRITICAL_FACTOR[bank.splits_like] * watched.moments.largest
            trace = watched.moments.trace
            apart = separation(bank.prototypes.detach())
            sums["temperature"] = bank.temperature.tolist()
            sums["relative_temperature"] = (bank.temperature / critical).tolist()
            sums["separation"] = apart.tolist()
            sums["relative_separation"] = (apart / trace).tolist()
            sums["trace"] = trace.tolist()
            found[name] = [{key: values[head] for key, values in sums.items()} for head in range(bank.num_heads)]
        return _flat(found)

    def clear(self) -> None:
        """Start the sums of the steps again, as at the beginning of an epoch."""
        for watched in self._followers.values():
            watched.steps.clear()
            watched.kept = None

    @contextmanager
    def measuring(self) -> Iterator[EpochReport]:
        """Calls of the model inside are measured exactly; leaving judges the conditions and acts on them.

        Use it in evaluation mode and without gradients, over the whole data. The first time sets what trace C is
        compared with.
        """
        report = EpochReport()
        for watched in self._followers.values():
            watched.exact = ExactSums(watched.bank)
        try:
            yield report
            self._finish(report)
        finally:
            for watched in self._followers.values():
                watched.exact = None

    def measured_tokens(self, bank: PrototypeBank) -> Float[Tensor, "N H m"] | None:
        """An even sample of the unmasked tokens of the last measurement, until ``clear``; None if there was none."""
        return self._of(bank).kept

    def _finish(self, report: EpochReport) -> None:
        for name, watched in self._followers.items():
            if watched.exact is None or not watched.exact.moments.count:
                continue  # this bank was not called
            heads = watched.exact.result(watched.start_trace)
            report.measures[name] = heads
            watched.kept = watched.exact.kept
            if watched.start_trace is None:
                watched.start_trace = torch.tensor([one.trace for one in heads], dtype=torch.float64)
            for head, measure in enumerate(heads):
                report.troubles += self._judge(name, watched, head, measure)
        for trouble in report.troubles:
            if trouble.condition.action == "raise":
                raise CollapseError(str(trouble))
            if trouble.repaired:
                continue  # in the report, and done with
            warnings.warn(str(trouble), CollapseWarning, stacklevel=4)

    def _judge(self, name: str, watched: _Watched, head: int, measure: HeadMeasure) -> list[Trouble]:
        met = [one for one in self.conditions if self._lasting(watched, one, head, measure)]
        troubles = [Trouble(one, name, head, float(getattr(measure, one.metric))) for one in met]
        if any(one.action == "repair" for one in met):
            repaired = self._repair(watched, head, measure)
            return [replace(t, repaired=repaired) if t.condition.action == "repair" else t for t in troubles]
        return troubles

    @staticmethod
    def _lasting(watched: _Watched, condition: Condition, head: int, measure: HeadMeasure) -> bool:
        """Whether a condition has been met often enough in a row."""
        key = (condition.name, head)
        watched.streaks[key] = watched.streaks.get(key, 0) + 1 if condition.met(measure) else 0
        return watched.streaks[key] >= condition.patience

    @torch.no_grad()
    def _repair(self, watched: _Watched, head: int, measure: HeadMeasure) -> int:
        """How many idle prototypes were put to work."""
        bank, exact = watched.bank, watched.exact
        if exact is None:
            return 0
        idle = idle_prototypes(bank.prototypes[head].detach(), exact.steps.counts[head, 1:], measure.trace)
        rows = split_into(bank, head, idle, exact.kept[:, head])
        if self.optimiser is not None:
            reset_rows(self.optimiser, bank, head, rows)
        if self.mover is not None:
            self.mover.forget(bank, head, rows)
        return int(idle[rows].sum())

    def state_dict(self) -> dict[str, Any]:
        """Running covariances and the trace at the start."""
        return {
            name: {
                "moments": one.moments.state_dict(),
                "start_trace": one.start_trace,
                "calls": one.calls,
                "streaks": [(*key, count) for key, count in one.streaks.items()],
            }
            for name, one in self._followers.items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Return to a saved state of a monitor of the same banks."""
        self._check_names(state)
        for name, watched in self._followers.items():
            watched.moments.load_state_dict(state[name]["moments"])
            watched.start_trace, watched.calls = state[name]["start_trace"], state[name]["calls"]
            watched.streaks = {(condition, head): count for condition, head, count in state[name]["streaks"]}


def _flat(figures: dict[str, list[dict[str, float]]]) -> dict[str, float]:
    only = len(figures) == 1 and all(len(heads) == 1 for heads in figures.values())
    return {
        key if only else f"{name or 'bank'}/{head}/{key}": value
        for name, heads in figures.items()
        for head, values in enumerate(heads)
        for key, value in values.items()
    }
