"""Milliseconds of a call: by the clock on a CPU; on a GPU by events around calls, and by replays of a CUDA graph."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Literal, NamedTuple, TypeVar

import torch

TimedBy = Literal["clock", "events", "graph"]
Input = TypeVar("Input")


@dataclass(frozen=True)
class Plan:
    """How often to repeat: between ``least`` and ``most`` times, about ``seconds`` in all."""

    warmup: int = 3
    least: int = 5
    most: int = 100
    seconds: float = 0.15

    def repeats(self, milliseconds: float) -> int:
        """Of a call that takes so long."""
        return max(self.least, min(self.most, int(1e3 * self.seconds / max(milliseconds, 1e-6))))


QUICK = Plan(warmup=1, least=2, most=2)


class Timing(NamedTuple):
    """The spread of repeated measurements, in the unit they were given in."""

    median: float
    p10: float
    p90: float
    repeats: int


def summarise(values: Sequence[float]) -> Timing:
    """Median, 10th and 90th percentile."""
    # a single value is its own percentile; statistics.quantiles wants two
    tenths = statistics.quantiles([*values] * 2 if len(values) == 1 else values, n=10, method="inclusive")
    return Timing(statistics.median(values), tenths[0], tenths[-1], len(values))


def time_calls(call: Callable[[Input], object], inputs: Sequence[Input], plan: Plan, device: torch.device) -> Timing:
    """As a program would make them, one after the other over the inputs in rotation, the host's work included."""
    rotating = cycle(inputs)
    measure = _by_events if device.type == "cuda" else _by_clock
    measure(call, list(islice(rotating, plan.warmup)))
    first = statistics.median(measure(call, list(islice(rotating, 2))))
    return summarise(measure(call, list(islice(rotating, plan.repeats(first)))))


def time_replays(call: Callable[[Input], object], inputs: Sequence[Input], plan: Plan) -> Timing:
    """What the device alone needs: a CUDA graph with one call for each input, replayed."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # whatever is set up on first use must not be recorded
        for given in inputs:
            call(given)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, stream=stream):
            for given in inputs:
                call(given)
        whole = time_calls(lambda _: graph.replay(), [None], plan, torch.device("cuda"))
    finally:
        graph.reset()
    count = len(inputs)
    return Timing(whole.median / count, whole.p10 / count, whole.p90 / count, whole.repeats * count)


def _by_clock(call: Callable[[Input], object], inputs: Sequence[Input]) -> list[float]:
    times = []
    for given in inputs:
        start = time.perf_counter()
        call(given)
        times.append(1e3 * (time.perf_counter() - start))
    return times


def _by_events(call: Callable[[Input], object], inputs: Sequence[Input]) -> list[float]:
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in inputs]
    torch.cuda.synchronize()
    for given, (start, end) in zip(inputs, pairs, strict=True):
        start.record()
        call(given)
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in pairs]
