"""Times of several candidates, measured side by side."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.collection import no_collection


@dataclass(frozen=True)
class Plan:
    """How often to repeat: between ``least`` and ``most`` times, within ``seconds`` per candidate where possible."""

    warmup: int = 3
    least: int = 7
    most: int = 50
    seconds: float = 2.0


class Timing(NamedTuple):
    """The spread of repeated measurements, in the unit they were given in."""

    median: float
    p10: float
    p90: float
    repeats: int


def summarise(values: list[float]) -> Timing:
    """Median, 10th and 90th percentile."""
    # a single value is its own percentile; statistics.quantiles wants two
    tenths = statistics.quantiles(values * 2 if len(values) == 1 else values, n=10, method="inclusive")
    return Timing(statistics.median(values), tenths[0], tenths[-1], len(values))


def time_side_by_side(
    candidates: Mapping[str, Callable[[], object]], before: Callable[[], None], plan: Plan
) -> dict[str, Timing]:
    """Milliseconds of each candidate; ``before`` runs ahead of each call, outside the measured time.

    The candidates take turns, so that what drifts on the machine (clock rate, other users) hits all alike and
    their ratios stand even where the times do not.
    """
    times: dict[str, list[float]] = {name: [] for name in candidates}
    with no_collection():
        for _ in range(plan.warmup):
            _take_turns(candidates, before)
        rounds, end = 0, time.perf_counter() + plan.seconds * len(candidates)
        while rounds < plan.least or (rounds < plan.most and time.perf_counter() < end):
            for name, milliseconds in _take_turns(candidates, before).items():
                times[name].append(milliseconds)
            rounds += 1
    return {name: summarise(values) for name, values in times.items()}


def _take_turns(candidates: Mapping[str, Callable[[], object]], before: Callable[[], None]) -> dict[str, float]:
    times = {}
    for name, candidate in candidates.items():
        before()
        start = time.perf_counter()
        candidate()
        times[name] = 1e3 * (time.perf_counter() - start)
    return times
