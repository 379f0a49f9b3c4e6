"""What announces trouble: each condition has a name, a threshold, the reason for it, and what is done."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

from ddcl.functional.checks import check_choice
from ddcl.training.monitor.measures import HeadMeasure

Action = Literal["warn", "raise", "repair"]
ACTIONS: tuple[str, ...] = get_args(Action)


class CollapseWarning(UserWarning):
    """A condition of the collapse monitor is met."""


class CollapseError(RuntimeError):
    """A condition of the collapse monitor is met, and it was asked to stop there."""


@dataclass(frozen=True)
class Condition:
    """Trouble when a figure leaves its range."""

    name: str
    metric: str
    """A field of :class:`HeadMeasure`."""
    threshold: float
    side: Literal["above", "below"]
    """On which side of the threshold the trouble lies."""
    reason: str
    advice: str
    action: Action = "warn"
    while_splitting: bool = False
    """Judged only while some prototype would split: only so many can stand apart at a temperature, and a bank that
    has them all is healthy however many are merged."""
    patience: int = 1
    """Measurements in a row that must meet it: a bank that has just been cooled needs time to part."""

    def met(self, measure: HeadMeasure) -> bool:
        """Whether a measurement meets it."""
        if self.while_splitting and not measure.splitting:
            return False
        value = float(getattr(measure, self.metric))
        if math.isnan(value):
            return True
        return value >= self.threshold if self.side == "above" else value < self.threshold


@dataclass(frozen=True)
class Trouble:
    """A condition that is met, where, and by which value."""

    condition: Condition
    bank: str
    head: int
    value: float
    repaired: int = 0

    def __str__(self) -> str:
        where = f"bank {self.bank!r}, head {self.head}" if self.bank else f"head {self.head}"
        one = self.condition
        text = (
            f"{one.name} ({where}): {one.metric} = {self.value:.4g}, {one.side} {one.threshold:g}. {one.reason} "
            f"{one.advice}"
        )
        if one.action == "repair":
            return f"{text} Repaired: {self.repaired} prototypes put to work."
        return text


CONDITIONS: tuple[Condition, ...] = (
    Condition(
        "not finite",
        "total",
        math.inf,
        "above",
        "The loss is NaN or infinite: nothing after this step means anything.",
        "Lower the learning rate, clip gradients, or look for NaN in the data.",
        action="raise",
    ),
    Condition(
        "above the critical temperature",
        "relative_temperature",
        1.0,
        "above",
        "From T_c on the merged bank is stable: a bank that comes near it falls in and does not return.",
        "State temperatures as multiples of T_c (CriticalSchedule), or lower T.",
    ),
    Condition(
        "uniform assignments",
        "relative_entropy",
        0.95,
        "above",
        "Every token mixes all prototypes almost evenly, which a merged bank does exactly.",
        "Lower the end of the schedule, or start the bank from data (init_from).",
        while_splitting=True,
        patience=2,
    ),
    Condition(
        "duplicate prototypes",
        "distinct_share",
        0.9,
        "below",
        "More than a tenth of the prototypes coincide with others, within a thousandth of the data's radius.",
        "Repair the bank (action 'repair'), use fewer prototypes, or anneal further.",
        while_splitting=True,
        patience=2,
    ),
    Condition(
        "dead prototypes",
        "relative_usage",
        0.9,
        "below",
        "More than a tenth of the prototypes won no token in a whole epoch.",
        "Repair the bank (action 'repair'), or move it by running soft k-means (SoftKMeans).",
        while_splitting=True,
        patience=2,
    ),
    Condition(
        "the encoder shrinks its tokens",
        "relative_trace",
        0.01,
        "below",
        "The tokens have lost 99 % of the variance they had: the encoder lowers the loss by mapping all to one point.",
        "Normalise what enters the bank, add a task or reconstruction loss, or slow the encoder.",
    ),
)
"""The conditions a monitor watches unless told otherwise."""

REPAIRABLE = ("duplicate prototypes", "dead prototypes")


def repairing(conditions: tuple[Condition, ...] = CONDITIONS) -> tuple[Condition, ...]:
    """The conditions with every repair that can be made, made at once: from 1 % of idle prototypes on, not 10 %."""
    return tuple(
        replace(one, action="repair", threshold=0.99, patience=1) if one.name in REPAIRABLE else one
        for one in conditions
    )


def with_actions(conditions: tuple[Condition, ...], actions: dict[str, Action]) -> tuple[Condition, ...]:
    """The conditions with other actions, by name."""
    known = {condition.name for condition in conditions}
    for name, action in actions.items():
        check_choice("actions", name, tuple(sorted(known)))
        check_choice(f"actions[{name!r}]", action, ACTIONS)
        if action == "repair" and name not in REPAIRABLE:
            raise ValueError(f"actions[{name!r}]: got 'repair', expected 'warn' or 'raise': only {REPAIRABLE} can be")
    return tuple(replace(one, action=actions.get(one.name, one.action)) for one in conditions)
