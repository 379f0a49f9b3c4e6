"""What a training step of the layer spends its time on, from the profiler's events."""

from __future__ import annotations

import pytest
import torch

from ddcl.experiments.kernels.layer import QUICK_LAYER, measure_layer, training_step
from ddcl.experiments.kernels.profiling import (
    ELEMENTWISE,
    GROUPS,
    OPTIMISER,
    PRODUCTS,
    READOUT,
    UNKNOWN,
    group_times,
    trace,
)
from ddcl.experiments.kernels.shapes import Rates, Shape
from ddcl.experiments.kernels.table import table
from ddcl.experiments.kernels.timing import QUICK

CPU = torch.device("cpu")
RATES = Rates(copy=4e12, matrix=700e12)


def event(name: str, ts: float, dur: float, *, cat: str = "cpu_op", tid: int = 1, **args: int) -> dict[str, object]:
    return {"ph": "X", "name": name, "cat": cat, "ts": ts, "dur": dur, "tid": tid, "args": args}


def test_kernels_are_counted_where_they_were_launched():
    number, forward = "Sequence number", "Fwd thread id"
    events = [
        event("aten::linear", 0, 10, **{number: 1, forward: 0}),
        event("aten::mm", 2, 6, **{number: 1, forward: 0}),
        event(READOUT, 20, 20, cat="user_annotation"),
        event("Fused", 22, 10, **{number: 2, forward: 0, "External id": 17}),
        event("aten::view", 35, 1, **{number: 3, forward: 0}),  # makes no node: 3 is the layer norm's
        event("aten::layer_norm", 50, 10, **{number: 3, forward: 0}),
        event("autograd::engine::evaluate_function: NormBackward", 100, 10, tid=2, **{number: 3, forward: 1}),
        event("autograd::engine::evaluate_function: FusedBackward", 120, 10, tid=2, **{number: 2, forward: 1}),
        event("aten::mm", 122, 4, tid=2),  # a product of the readout is the readout's
        event("autograd::engine::evaluate_function: MmBackward0", 140, 10, tid=2, **{number: 1, forward: 1}),
        event("aten::mm", 142, 4, tid=2),
        event("Optimizer.step#AdamW.step", 200, 10, cat="user_annotation"),
        event("aten::_foreach_add_", 202, 4),
    ]
    launches = [  # thread, time of the launch, milliseconds of the kernel in each of two steps
        (1, 5, 1.0),  # forward product
        (1, 25, 2.0),  # readout
        (1, 55, 4.0),  # layer norm
        (2, 105, 8.0),  # its backward
        (2, 125, 16.0),  # readout's backward, by a driver call
        (2, 124, 32.0),  # a product inside it
        (2, 144, 64.0),  # backward product
        (1, 204, 128.0),  # optimiser
    ]
    for correlation, (tid, ts, milliseconds) in enumerate(launches):
        cat = "cuda_driver" if correlation == 4 else "cuda_runtime"
        events.append(event("launch", ts, 1, cat=cat, tid=tid, correlation=correlation))
        events.append(event("kernel", 1000 + ts, 2e3 * milliseconds, cat="kernel", tid=7, correlation=correlation))
    # one whose launch was not seen but whose operator is known, one of which nothing is
    events.append(event("kernel", 3000, 2e3 * 256, cat="kernel", tid=7, **{"correlation": 98, "External id": 17}))
    events.append(event("kernel", 4000, 2e3 * 512, cat="gpu_memcpy", tid=7, correlation=99))
    assert group_times(events, steps=2) == {
        READOUT: 306.0,
        PRODUCTS: 65.0,
        ELEMENTWISE: 12.0,
        OPTIMISER: 128.0,
        UNKNOWN: 512.0,
    }


def test_a_real_step_is_divided_without_remainder_and_without_the_readout_there_is_none():
    events = trace(training_step(QUICK_LAYER, "eager", CPU), 2, CPU)
    found = group_times(events, steps=2)
    assert all((found[group] > 0) == (group != UNKNOWN) for group in GROUPS)
    top = [one for one in events if one.get("cat") == "user_annotation" and one["name"] == READOUT]
    assert found[READOUT] > sum(one["dur"] for one in top) / 2e3 / 4  # most of its range, and its backward
    renamed = [{**one, "name": "bank"} if one.get("name") == READOUT else one for one in events]
    without = group_times(renamed, steps=2)
    assert without[READOUT] == 0
    assert sum(without.values()) == pytest.approx(sum(found.values()))


def test_the_rows_of_a_layer_are_its_step_and_its_items():
    rows = measure_layer(QUICK_LAYER, "eager", CPU, RATES, QUICK)
    assert [row.item for row in rows] == ["whole", *GROUPS]
    assert {row.candidate for row in rows} == {"layer:eager"}
    assert {row.shape for row in rows} == {Shape(24, 8, 5)}
    assert all(f"| layer:eager | {row.item} |" in table(rows) for row in rows)
