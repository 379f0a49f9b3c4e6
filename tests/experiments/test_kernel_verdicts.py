"""The targets of the bench, judged from made-up records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddcl.experiments.kernels.layer import layer_name
from ddcl.experiments.kernels.profiling import GROUPS
from ddcl.experiments.kernels.record import Row, blank
from ddcl.experiments.kernels.shapes import QUICK_SHAPES, SHAPES, Rates, Shape
from ddcl.experiments.kernels.verdicts import FEW, MANY, verdicts

RATES = Rates(copy=4e12, matrix=700e12)


def measured(candidate: str, shape: Shape, kind: str, share: float, *, memory: float = 1.2, by: str = "graph") -> Row:
    """A row at a share of its floor."""
    row = blank(candidate, shape, "bfloat16", kind, RATES)
    return replace(row, timed_by=by, median_ms=row.floor_ms / share, memory_ratio=memory)


def record_at(forward: float, step: float, *, memory: float = 1.2, compiled: float = 0.05) -> list[Row]:
    """Every size at the same shares, the compiler's step at its own; by graph, and ten times slower by events."""
    rows = []
    for shape in SHAPES:
        rows.append(measured("compiled", shape, "forward+backward", compiled))
        for call in ("operation:triton", "readout:triton"):
            for by, slower in (("events", 10), ("graph", 1)):
                rows.append(measured(call, shape, "forward", forward / slower, memory=memory, by=by))
                rows.append(measured(call, shape, "forward+backward", step / slower, memory=memory, by=by))
    return rows


def layer_rows(**milliseconds: float) -> list[Row]:
    names = dict(zip(("readout", "products", "elementwise", "optimiser", "unknown"), GROUPS, strict=True))
    blank_row = blank(layer_name("triton"), Shape(2**17, 64, 64), "bfloat16", "training step", RATES)
    return [replace(blank_row, item=names[name], median_ms=ms) for name, ms in milliseconds.items()]


def answers(rows: list[Row]) -> list[str]:
    return [line.rpartition(": ")[2].partition(" ")[0] for line in verdicts(rows)]


def test_every_target_is_answered_with_its_number():
    layer = layer_rows(readout=0.5, products=1.0, elementwise=2.0, optimiser=0.1)
    lines = verdicts([*record_at(0.76, 0.61), *layer])
    assert len(lines) == 13  # six for the operation, six for the public function, one for the layer
    assert answers([*record_at(0.76, 0.61), *layer]) == ["yes"] * 13
    assert "76.0 % at (2^20, 64, 16) by graph" in lines[0]
    assert "12.2 at (2^20, 128, 32) by graph" in lines[2]
    assert "1.200 at (2^16, 64, 65536)" in lines[5]
    assert "layer norm and elementwise 2.000 ms, matrix products 1.000 ms, readout 0.500 ms" in lines[-1]


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        (record_at(0.74, 0.61), {0}),
        (record_at(0.69, 0.61), {0, 3}),
        (record_at(0.76, 0.59), {1}),
        (record_at(0.76, 0.49), {1, 4}),
        (record_at(0.76, 0.61, compiled=0.08), {2}),
        (record_at(0.76, 0.61, memory=1.26), {5}),
    ],
    ids=["floor", "forward", "step floor", "step", "compile", "memory"],
)
def test_a_target_that_is_missed_says_no(rows, wrong):
    found = answers(rows)
    assert {place for place in range(6) if found[place] == "no"} == wrong
    assert found[:6] == found[6:12]


def test_the_worst_size_decides():
    rows = record_at(0.9, 0.9)
    slow = [replace(row, median_ms=2 * row.median_ms) if row.shape in (FEW[-1], MANY[0]) else row for row in rows]
    assert answers(rows)[:5] == ["yes"] * 5
    assert answers(slow)[:5] == ["no", "no", "yes", "no", "no"]


def test_a_target_that_was_not_measured_is_not_answered():
    rows = [row for row in record_at(0.9, 0.9) if row.shape != SHAPES[-1] and row.candidate != "compiled"]
    lines = verdicts(rows)
    assert "not measured at (2^20, 64, 16)" in lines[2]
    assert "not measured at (2^16, 64, 65536)" in lines[5]
    assert lines[-1].endswith("not measured")


def test_a_profile_in_which_the_readout_was_not_found_says_nothing_about_it():
    lines = verdicts(layer_rows(readout=0.0, products=1.0, elementwise=2.0, optimiser=0.1, unknown=0.5))
    assert lines[-1].endswith("not measured")


def test_a_readout_that_leads_the_profile_is_a_no():
    assert answers(layer_rows(readout=3.0, products=1.0, elementwise=2.0, optimiser=0.1))[-1] == "no"


def test_other_sizes_and_dtypes_answer_no_target():
    rows = [measured("operation:triton", shape, "forward", 0.9) for shape in QUICK_SHAPES]
    rows += [replace(row, dtype="float32") for row in record_at(0.9, 0.9)]
    rows += [replace(row, N=24, m=8, K=5) for row in layer_rows(readout=0.5, products=1.0)]
    (line,) = verdicts(rows)
    assert "none of that was measured" in line
