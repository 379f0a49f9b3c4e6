"""Times of several candidates, measured side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.collection import no_collection
from ddcl.experiments.kernels.timing import Timing, summarise


@dataclass(frozen=True)
class Plan:
    """How often to repeat: between ``least`` and ``most`` times, within ``seconds`` per candidate where possible."""

    warmup: int = 3
    least: int = 7
    most: int = 50
    seconds: float = 2.0


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
