"""Candidates compared in time and memory at one size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from benchmarks.memory import peak_bytes
from benchmarks.problem import Cell, Pass, Problem
from benchmarks.results import Row
from benchmarks.timing import Plan, Timing, time_side_by_side


class Measurement(NamedTuple):
    """Time in milliseconds and peak memory of one candidate."""

    timing: Timing
    peak_bytes: int


class Comparison(NamedTuple):
    """One pass at one size, by every candidate."""

    cell: Cell
    kind: Pass
    measured: dict[str, Measurement]

    def __str__(self) -> str:
        return f"{self.cell} {self.kind}"

    def time_ratio(self, name: str, to: str) -> float:
        """How many times as long as ``to`` the candidate takes."""
        return self.measured[name].timing.median / self.measured[to].timing.median

    def memory_ratio(self, name: str, to: str) -> float:
        """How many times as much memory as ``to`` the candidate needs."""
        return self.measured[name].peak_bytes / self.measured[to].peak_bytes

    def rows(self, benchmark: str, column: str, baseline: str, baseline_name: str | None = None) -> list[Row]:
        """One row per candidate, named in ``column``, with ratios to the ``baseline`` candidate."""
        to = baseline_name or baseline
        return [
            {
                "benchmark": benchmark,
                **self.cell._asdict(),
                "pass": self.kind,
                column: name,
                "median_ms": f"{timing.median:.4g}",
                "p10_ms": f"{timing.p10:.4g}",
                "p90_ms": f"{timing.p90:.4g}",
                "repeats": timing.repeats,
                f"ratio_to_{to}": f"{self.time_ratio(name, baseline):.3f}",
                "peak_bytes": peak,
                f"memory_ratio_to_{to}": f"{self.memory_ratio(name, baseline):.3f}",
            }
            for name, (timing, peak) in self.measured.items()
        ]


def compare(problem: Problem, kind: Pass, candidates: Mapping[str, Callable[[], None]], plan: Plan) -> Comparison:
    """Time the candidates in turns, then measure their memory one by one, which slows them down."""
    timings = time_side_by_side(candidates, problem.clear_gradients, plan)
    measured = {}
    for name, candidate in candidates.items():
        problem.clear_gradients()
        measured[name] = Measurement(timings[name], peak_bytes(candidate))
    problem.clear_gradients()
    return Comparison(problem.cell, kind, measured)
