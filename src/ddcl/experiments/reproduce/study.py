"""What a study is made of: runs that are complete configurations, what each gave, and how to set them side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

Metrics = Mapping[str, float]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Run:
    """One method on one case with one seed; everything that decides the outcome is in here."""

    case: str
    """What is learnt, such as "SST-2, all-MiniLM-L6-v2" or "K = 64"."""
    method: str
    """By whom, as the table names it."""
    seed: int
    settings: Any = None
    """A frozen dataclass of plain values: what the study needs to know to do it again."""

    def described(self) -> dict[str, Any]:
        """As plain values, for a record."""
        settings = {} if self.settings is None else asdict(self.settings)
        return {"case": self.case, "method": self.method, "seed": self.seed, "settings": settings}


@dataclass(frozen=True)
class Result:
    """What a run gave."""

    metrics: Metrics
    """Figures at the end, by name."""
    epochs: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Figures over the run, one value per entry of ``epochs["epoch"]``; empty for methods without epochs."""
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    """What only a picture needs, such as a map's coordinates; kept beside the record."""


@dataclass(frozen=True)
class Done:
    """A run, what it gave, how long it took, and with what it was made."""

    run: Mapping[str, Any]
    metrics: Metrics
    epochs: Mapping[str, Sequence[float]]
    seconds: float
    origin: Mapping[str, Any]

    @property
    def case(self) -> str:
        """What was learnt."""
        return str(self.run["case"])

    @property
    def method(self) -> str:
        """By whom."""
        return str(self.run["method"])

    @property
    def seed(self) -> int:
        """Of all random numbers."""
        return int(self.run["seed"])


class Paper(NamedTuple):
    """A figure that the paper reports for a row of a table."""

    case: str
    method: str
    """The paper's name of it."""
    values: Mapping[str, float]


class Column(NamedTuple):
    """One column of a table."""

    metric: str
    title: str
    digits: int = 3
    scale: float = 1.0


@dataclass(frozen=True)
class Study:
    """One table of the paper, with its figures: what to run, how, and which figures to show."""

    name: str
    title: str
    shows: str
    """Where in the paper, such as "Table 3, Figure 1"."""
    runs: Callable[[bool, int], Sequence[Run]]
    """All runs, of the quick version or the full one, for so many seeds."""
    execute: Callable[[Run, str], Result]
    """Do one run on a device."""
    columns: Sequence[Column]
    paper: Sequence[Paper] = ()
    seeds: int = 5
    needs: str = ""
    """What it takes beyond the core: extras and data."""
    notes: Callable[[Sequence[Done]], Sequence[str]] | None = None
    """Sentences that the numbers say, such as margins against targets; computed, never written down."""
