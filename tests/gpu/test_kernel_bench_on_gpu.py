"""The instruments of the bench on a CUDA device: times, memory, and where a step's kernels are counted."""

from __future__ import annotations

import pytest
import torch

from ddcl.experiments.kernels.candidates import BACKENDS, candidates
from ddcl.experiments.kernels.layer import Layer, training_step
from ddcl.experiments.kernels.measuring import measure
from ddcl.experiments.kernels.memory import peak_bytes
from ddcl.experiments.kernels.problem import CACHE_BYTES, Problem
from ddcl.experiments.kernels.profiling import GROUPS, READOUT, UNKNOWN, group_times, trace
from ddcl.experiments.kernels.rates import measure_rates
from ddcl.experiments.kernels.shapes import Shape
from ddcl.experiments.kernels.timing import Plan, time_calls, time_replays

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

CUDA = torch.device("cuda")


def test_replays_take_the_device_s_time_and_calls_not_less():
    x, y = (torch.randn(2**26, device="cuda") for _ in range(2))
    plan = Plan(least=20, most=20)
    by_calls = time_calls(lambda _: torch.add(x, y), [None], plan, CUDA)
    by_replays = time_replays(lambda _: torch.add(x, y), [None], plan)
    several = time_replays(lambda _: torch.add(x, y), [None] * 3, plan)  # per call, not per graph
    assert 0 < by_replays.median < 1.2 * by_calls.median
    assert several.median == pytest.approx(by_replays.median, rel=0.2)


def test_the_peak_is_what_a_call_held_at_once():
    def run() -> None:
        first = torch.empty(2**20, dtype=torch.uint8, device="cuda")
        del first
        second = torch.empty(2**22, dtype=torch.uint8, device="cuda")
        third = torch.empty(2**20, dtype=torch.uint8, device="cuda")
        del second, third

    assert peak_bytes(run) == 2**22 + 2**20


def test_inputs_that_fit_the_cache_are_measured_in_rotation():
    small, large = (Problem(Shape(N, 64, 64), torch.bfloat16, CUDA) for N in (2**14, 2**20))
    assert len(small.sets) > 1
    assert len({one.z.data_ptr() for one in small.sets}) == len(small.sets)
    assert len(large.sets) == 1
    assert large.sets[0].z.nbytes > CACHE_BYTES


@pytest.mark.parametrize("name", ["plain", "sdpa", *(f"{c}:{b}" for c in ("readout", "operation") for b in BACKENDS)])
def test_a_candidate_is_timed_both_ways_with_its_memory(name):
    plan = Plan(warmup=1, least=2, most=2)
    rates = measure_rates(CUDA, torch.bfloat16, plan, quick=True)
    rows = measure(candidates()[name], Problem(Shape(2**12, 64, 16), torch.bfloat16, CUDA), rates, plan)
    assert [(row.timed_by, row.status, row.note) for row in rows if row.status != "measured"] == []
    assert [row.timed_by for row in rows] == ["events", "graph"] * 2
    assert all(row.memory_ratio > 0.5 for row in rows)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_kernel_of_a_step_is_counted_and_the_readout_s_are_found(backend):
    sizes = Layer(batch=32, length=128, dim=128, proto_dim=64, num_prototypes=64)
    found = group_times(trace(training_step(sizes, backend, CUDA), 3, CUDA), steps=3)
    assert all(found[group] > 0 for group in GROUPS if group != UNKNOWN)
    assert found[UNKNOWN] < 0.02 * sum(found.values())
    other = group_times(
        [event for event in trace(training_step(sizes, backend, CUDA), 3, CUDA) if event.get("name") != READOUT],
        steps=3,
    )
    assert other[READOUT] == 0
