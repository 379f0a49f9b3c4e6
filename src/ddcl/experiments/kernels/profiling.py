"""What the time of a training step goes to, from the events of PyTorch's profiler."""

from __future__ import annotations

import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

# the profiler's back end announces every start and stop on stderr at any lower level
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

READOUT, PRODUCTS, ELEMENTWISE, OPTIMISER = "readout", "matrix products", "layer norm and elementwise", "optimiser"
UNKNOWN = "not attributed"
GROUPS = (READOUT, PRODUCTS, ELEMENTWISE, OPTIMISER, UNKNOWN)
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHES = ("cuda_runtime", "cuda_driver")
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_scaled_mm")


def trace(step: Callable[[], None], steps: int, device: torch.device) -> list[dict[str, Any]]:
    """Every event of a few steps as PyTorch's profiler writes them."""
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda")
    step()
    with profile(activities=activities, acc_events=True) as profiler:
        for _ in range(steps):
            step()
        if device.type == "cuda":
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return events


def group_times(events: list[dict[str, Any]], steps: int) -> dict[str, float]:
    """Milliseconds per step of each group.

    A kernel belongs to the host's operators around its launch, and a backward operator to the forward one with its
    sequence number: so whatever the readout launches counts as readout, both ways, however its kernels are called.
    Without kernels, on a CPU, the operators' own time is taken.
    """
    ranges = [event for event in events if event.get("ph") == "X" and event.get("cat") in ("cpu_op", "user_annotation")]
    around = _Nesting(ranges)
    of_readout = _readout_sequences(ranges, around)
    found = dict.fromkeys(GROUPS, 0.0)
    kernels = [event for event in events if event.get("cat") in _ON_DEVICE]
    if kernels:
        launches = {event["args"].get("correlation"): event for event in events if event.get("cat") in _LAUNCHES}
        operators = {event["args"].get("External id"): event for event in ranges if event["cat"] == "cpu_op"}
        for kernel in kernels:
            launch = launches.get(kernel["args"].get("correlation"))
            names = [] if launch is None else around.enclosing(launch)
            operator = operators.get(kernel["args"].get("External id", "none"))
            if not names and operator is not None:  # the launch is missing, or stands on a thread of another number
                names = [operator, *around.enclosing(operator)]
            found[_group(names, of_readout)] += kernel["dur"]
    else:
        for event in ranges:
            if event["cat"] == "cpu_op":
                found[_group([*around.enclosing(event), event], of_readout)] += around.own_time(event)
    return {group: microseconds / 1e3 / steps for group, microseconds in found.items()}


class _Nesting:
    """Which ranges of a host thread stand around an event of it."""

    def __init__(self, ranges: list[dict[str, Any]]) -> None:
        self._parents: dict[int, dict[str, Any] | None] = {}
        self._threads: dict[Any, list[dict[str, Any]]] = defaultdict(list)
        self._own: dict[int, float] = {}
        for event in sorted(ranges, key=lambda one: (one["ts"], -one["dur"])):
            parent = self._innermost(event)
            self._parents[id(event)] = parent
            self._own[id(event)] = event["dur"]
            if parent is not None:
                self._own[id(parent)] -= event["dur"]
            self._threads[event["tid"]].append(event)

    def enclosing(self, event: dict[str, Any]) -> list[dict[str, Any]]:
        """From the innermost outwards, without the event itself."""
        found = []
        parent = self._parents[id(event)] if id(event) in self._parents else self._innermost(event)
        while parent is not None:
            found.append(parent)
            parent = self._parents[id(parent)]
        return found

    def own_time(self, event: dict[str, Any]) -> float:
        """Without that of the ranges inside it."""
        return max(self._own[id(event)], 0.0)

    def _innermost(self, event: dict[str, Any]) -> dict[str, Any] | None:
        """The last range of the thread begun before, or one of those around that one."""
        begun = self._threads[event["tid"]]
        low, high = 0, len(begun)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if begun[middle]["ts"] <= event["ts"] else (low, middle)
        candidate = begun[low - 1] if low else None
        while candidate is not None and candidate["ts"] + candidate["dur"] < event["ts"]:
            candidate = self._parents[id(candidate)]
        return candidate


def _readout_sequences(ranges: list[dict[str, Any]], around: _Nesting) -> set[int]:
    """Sequence numbers of the autograd nodes made inside the readout.

    An operator that makes no node shows the number of the next that does: the last to show a number has made it.
    """
    last: dict[int, dict[str, Any]] = {}
    for event in sorted(ranges, key=lambda one: one["ts"]):
        arguments = event.get("args", {})
        if "Sequence number" in arguments and not arguments.get("Fwd thread id"):
            last[arguments["Sequence number"]] = event
    return {number for number, event in last.items() if any(one["name"] == READOUT for one in around.enclosing(event))}


def _group(names: list[dict[str, Any]], of_readout: set[int]) -> str:
    if not names:
        return UNKNOWN
    for event in names:
        arguments = event.get("args", {})
        backward = bool(arguments.get("Fwd thread id"))
        if event["name"] == READOUT or (backward and arguments.get("Sequence number") in of_readout):
            return READOUT
        if event["name"].startswith("Optimizer."):
            return OPTIMISER
    return PRODUCTS if any(event["name"] in _PRODUCTS for event in names) else ELEMENTWISE
