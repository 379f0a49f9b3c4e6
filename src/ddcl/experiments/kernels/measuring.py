"""One candidate at one size: times and memory of both passes, and a row that says so where it cannot run."""

from __future__ import annotations

import re

from ddcl.experiments.kernels.candidates import Call, Candidate
from ddcl.experiments.kernels.memory import free_bytes, peak_bytes, release
from ddcl.experiments.kernels.problem import Problem
from ddcl.experiments.kernels.record import FAILED, SKIPPED, Row, blank
from ddcl.experiments.kernels.shapes import DTYPES, KINDS, Kind, Rates, held_bytes, tensor_bytes
from ddcl.experiments.kernels.timing import Plan, TimedBy, Timing, time_calls, time_replays

# a call this long keeps the device busy whatever the host does
_LONG_MS = 20.0


def measure(candidate: Candidate, problem: Problem, rates: Rates, plan: Plan) -> list[Row]:
    """Rows of the forward pass and of the training step; nothing a candidate does stops the run."""
    found = []
    for kind in KINDS:
        try:
            found += _measure_pass(candidate, kind, problem, rates, plan)
        except Exception as error:
            found.append(_row(candidate, kind, problem, rates, status=FAILED, note=reason(error)))
        release(problem.device)
    return found


def reason(error: Exception) -> str:
    """What a row says of a failure: its kind and the beginning of its message, without the paths of this machine."""
    message = re.sub(r"(?:[A-Za-z]:)?[\\/][\w.\\/-]*[\\/][\w.-]*", "...", str(error).strip().partition("\n")[0])
    return f"{type(error).__name__}: {message[:160]}"


def _measure_pass(candidate: Candidate, kind: Kind, problem: Problem, rates: Rates, plan: Plan) -> list[Row]:
    why_not = _why_not(candidate, kind, problem)
    if why_not:
        return [_row(candidate, kind, problem, rates, status=SKIPPED, note=why_not)]
    calls = candidate.make(problem)
    call = calls.forward if kind == "forward" else calls.step
    if problem.device.type != "cuda":
        timing = time_calls(call, problem.sets, plan, problem.device)
        return [_timed(candidate, kind, problem, rates, "clock", timing, None)]
    call(problem.sets[0])  # compilation, tuning and workspaces are no part of what a call needs
    peak = peak_bytes(lambda: call(problem.sets[0]))
    by_events = time_calls(call, problem.sets, plan, problem.device)
    found = [_timed(candidate, kind, problem, rates, "events", by_events, peak)]
    if candidate.in_graph and by_events.median < _LONG_MS:
        found += _replayed(candidate, kind, problem, rates, plan, call, peak)
    return found


def _replayed(
    candidate: Candidate, kind: Kind, problem: Problem, rates: Rates, plan: Plan, call: Call, peak: int
) -> list[Row]:
    try:
        timing = time_replays(call, problem.sets, plan)
    except Exception as error:  # what was timed by events stands
        note = f"no CUDA graph: {reason(error)}"
        return [_row(candidate, kind, problem, rates, status=FAILED, timed_by="graph", note=note)]
    return [_timed(candidate, kind, problem, rates, "graph", timing, peak)]


def _why_not(candidate: Candidate, kind: Kind, problem: Problem) -> str:
    shape = problem.shape
    if candidate.most_prototypes is not None and candidate.most_prototypes < shape.K:
        return f"measured up to K = {candidate.most_prototypes}"
    needed = candidate.wide[KINDS.index(kind)] * shape.N * shape.K
    free = free_bytes(problem.device)
    if free is not None and needed > free:
        return f"would need about {needed / 2**30:.0f} GiB, {free / 2**30:.0f} GiB are free"
    return ""


def _timed(
    candidate: Candidate,
    kind: Kind,
    problem: Problem,
    rates: Rates,
    timed_by: TimedBy,
    timing: Timing,
    peak: int | None,
) -> Row:
    ratio = None
    if peak is not None:
        sizes = (problem.shape, kind, problem.dtype.itemsize)
        ratio = (peak + held_bytes(*sizes)) / tensor_bytes(*sizes)
    return _row(
        candidate,
        kind,
        problem,
        rates,
        timed_by=timed_by,
        median_ms=timing.median,
        p10_ms=timing.p10,
        p90_ms=timing.p90,
        repeats=timing.repeats,
        peak_bytes=peak,
        memory_ratio=ratio,
        note=candidate.about,
    )


def _row(candidate: Candidate, kind: Kind, problem: Problem, rates: Rates, **known: object) -> Row:
    return blank(candidate.name, problem.shape, dtype_name(problem), kind, rates, **known)


def dtype_name(problem: Problem) -> str:
    """As the command line spells it."""
    return next(name for name, dtype in DTYPES.items() if dtype == problem.dtype)
