"""The most memory that CPU tensors take at once while something runs.

Measured from the allocator's own events in a trace of ``torch.profiler``: every allocation and release, those
inside operators and in the backward pass included, exact to the byte and the same on every run. The high-water
mark of the process is of no use here: PyTorch's CPU allocator may keep what tensors release (its aarch64 builds
do), so the resident size neither falls nor says how much of it is in use. What libraries below PyTorch allocate for
themselves, such as the packing buffers of a matrix product, is not counted for any candidate.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

from torch.profiler import ProfilerActivity, profile

from benchmarks.collection import no_collection

# the profiler's back end announces every start and stop on stderr at any lower level
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

_CPU = 0  # c10::DeviceType


def peak_bytes(run: Callable[[], object]) -> int:
    """Largest number of bytes in CPU tensors at any moment of ``run()``, beyond those held before."""
    with no_collection(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    changes = [event for event in events if event["name"] == "[memory]" and event["args"]["Device Type"] == _CPU]
    changes.sort(key=lambda event: event["ts"])
    return max(accumulate((int(event["args"]["Bytes"]) for event in changes), initial=0))
