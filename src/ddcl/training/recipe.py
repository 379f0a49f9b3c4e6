"""What a training run is made of, as one frozen value; a variant is its base with one thing replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, get_args, runtime_checkable

from ddcl.functional import INIT_METHODS, InitMethod
from ddcl.functional.checks import check_choice, check_count
from ddcl.training.adaptive import AdaptiveSize
from ddcl.training.critical import CriticalSchedule, Shape
from ddcl.training.schedules import ExponentialSchedule

Mover = Literal["soft-kmeans", "gradient"]
MOVERS: tuple[str, ...] = get_args(Mover)
Precision = Literal["float32", "bfloat16", "float16"]
PRECISIONS: tuple[str, ...] = get_args(Precision)


class Setting(NamedTuple):
    """What a plan may depend on."""

    steps: int
    """Of the whole run."""
    resolving: float
    """The temperature at which K prototypes stand apart on the tokens, over T_c."""
    started: bool
    """Whether the banks were started from data."""
    learning: bool
    """Whether the encoder learns too."""
    resolution: float | None = None
    """The multiple of T_c to end at if the banks find their own size; None if it is given."""


@runtime_checkable
class TemperaturePlan(Protocol):
    """How the temperature is to fall over a run."""

    def schedule(self, setting: Setting) -> CriticalSchedule | ExponentialSchedule:
        """The schedule of a run."""

    @property
    def per_step(self) -> bool:
        """Whether the schedule moves on with every step, not every epoch."""


@dataclass(frozen=True)
class Critical:
    """Temperatures as multiples of the critical one, from ``start`` to ``end`` over a share of the run, then held.

    What is None is taken from the data, in units of T_K, the temperature below which K prototypes stand apart on them
    (:func:`ddcl.resolving_temperature`). A bank that was started from data goes from 0.5 to 0.05 T_K, cool enough to
    keep what it has; in front of an encoder that learns from 0.1 to 0.01 T_K, since such an encoder draws together
    whatever a warm bank does not tell apart. T_K may lie above T_c: the end is never above 0.05 T_c, the start never
    above ten times the end. A bank that was not started from data begins at 0.9 T_c, where all of it is merged, and
    splits on the way down; so does one that finds its own size, and it ends at :attr:`AdaptiveSize.resolution`.

    ``start`` and ``end`` may be one number for each head of the banks, all of which then have that many.
    """

    start: float | Sequence[float] | None = None
    end: float | Sequence[float] | None = None
    share: float = 0.7
    shape: Shape = "exponential"
    warmup: float = 0.0
    """Share of the run before the fall begins."""

    per_step = True

    def schedule(self, setting: Setting) -> CriticalSchedule:
        """One step of the schedule for each step of the run."""
        warm = 0.1 if setting.learning else 0.5  # of T_K
        # data with fewer different tokens than prototypes resolve nothing; T must stay positive all the same
        cold = min(max(0.1 * warm * setting.resolving, 1e-6), 0.05)
        sized, splits = setting.resolution, setting.resolution is not None or not setting.started
        end = _heads((cold if sized is None else sized) if self.end is None else self.end)
        start = [0.9 if splits else min(10 * one, 0.9) for one in end] if self.start is None else _heads(self.start)
        # a number stands for all heads; temperatures do not rise
        heads = max(len(start), len(end))
        first, last = (values * heads if len(values) == 1 else values for values in (start, end))
        lowest = [min(pair) for pair in zip(first, last, strict=True)] if len(first) == len(last) else last
        return CriticalSchedule(
            first,
            lowest,
            steps=max(1, round(self.share * setting.steps)),
            shape=self.shape,
            warmup=round(self.warmup * setting.steps),
            resolved=warm if not splits and self.start is None else None,
        )


def _heads(value: float | Sequence[float]) -> list[float]:
    return list(value) if isinstance(value, Sequence) else [value]


@dataclass(frozen=True)
class Exponential:
    """The paper's temperatures, absolute: 2.0 to 0.3 with a time constant in epochs."""

    start: float = 2.0
    end: float = 0.3
    tau: float = 20.0

    per_step = False

    def schedule(self, setting: Setting) -> ExponentialSchedule:  # noqa: ARG002
        """One step of the schedule for each epoch."""
        return ExponentialSchedule(self.start, self.end, self.tau)


@dataclass(frozen=True)
class Recipe:
    """Everything a run needs besides the model, the data and the loss.

    Example:
        >>> from dataclasses import replace
        >>> replace(Recipe(), epochs=20, move="gradient").move
        'gradient'
    """

    epochs: int = 50
    temperature: TemperaturePlan = field(default_factory=Critical)
    move: Mover | None = None
    """How the bank moves: by running soft k-means (no learning rate, no scale), or by gradient as in the paper. None:
    by soft k-means where the loss is the quantisation loss alone, by gradient where a task or a barrier has a say in
    it."""
    momentum: float = 0.9
    """Of the running soft k-means, per batch."""
    lr: float = 1e-2
    """Of the prototypes, if they move by gradient; see ``relative_lr``."""
    relative_lr: bool = True
    """Count ``lr`` in units of the tokens' spread per coordinate, so that the scale of the data does not matter."""
    epsilon: float = 0.1
    """Learning rate of everything else over ``lr``; the paper asks for 0.01 to 0.1."""
    init: InitMethod | None = "kmeans"
    """Where the banks start; None leaves them as they are."""
    restarts: int = 10
    precision: Precision = "float32"
    clip: float | None = None
    """Largest norm of the gradient of everything but the prototypes."""
    weight_decay: float = 0.0
    barrier: float | Literal["auto"] = 0.0
    """Strength of :func:`ddcl.barrier` between the prototypes of each bank, added to the loss at every step; in units
    of length to the fourth power. ``"auto"`` takes the paper's :func:`ddcl.barrier_strength` with this ``lr`` in units
    of the tokens' spread at the start, so that the scale of the data does not matter; it grows with the square of K.
    Prototypes that running soft k-means moves do not feel a barrier."""
    adapt: AdaptiveSize | None = None
    """How the banks find their own size; None leaves it as it is."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("epochs", self.epochs)
        check_count("restarts", self.restarts)
        if self.move is not None:
            check_choice("move", self.move, MOVERS)
        check_choice("precision", self.precision, PRECISIONS)
        if self.init is not None:
            check_choice("init", self.init, INIT_METHODS)
        for name in ("lr", "epsilon"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name}: got {getattr(self, name)}, expected a positive finite number")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip: got {self.clip}, expected a positive number or None")
        self._check_barrier()

    def _check_barrier(self) -> None:
        given = f"barrier: got {self.barrier!r}"
        if isinstance(self.barrier, str) and self.barrier != "auto":
            raise ValueError(f"{given}, expected a number or 'auto'")
        if not isinstance(self.barrier, str) and not 0 <= self.barrier < float("inf"):
            raise ValueError(f"{given}, expected a finite number of at least 0 or 'auto'")
        if self.barrier and self.move == "soft-kmeans":
            raise ValueError(f"{given} with move='soft-kmeans', expected move='gradient', which feels a barrier")
        if self.barrier and self.adapt is not None:
            raise ValueError(f"{given} with adapt, expected 0: a barrier holds apart what T would merge")


def paper_recipe(epochs: int = 100, *, lr: float = 1e-2, epsilon: float = 0.1, seed: int = 0) -> Recipe:
    """The paper's: absolute temperatures 2.0 to 0.3, the bank by gradient, k-means start."""
    return Recipe(
        epochs=epochs,
        temperature=Exponential(),
        move="gradient",
        lr=lr,
        relative_lr=False,
        epsilon=epsilon,
        seed=seed,
    )
