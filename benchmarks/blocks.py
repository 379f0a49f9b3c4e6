"""How many numbers a block should hold on a CPU: measures the constant in ``ddcl.ops.blocks``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from statistics import geometric_mean
from unittest import mock

from benchmarks.comparison import Comparison, compare
from benchmarks.implementations import eager
from benchmarks.problem import PASSES, Cell, Problem
from benchmarks.results import Result, format_table
from benchmarks.timing import Plan
from ddcl.ops.blocks import BLOCK_NUMBERS

CELLS = [Cell(2**16, 64, 64), Cell(2**16, 256, 16), Cell(2**16, 64, 1024)]
SIZES = [2**power for power in range(16, 23)]


def measure(quick: bool) -> Result:
    """Every block size at every cell, forward and with backward."""
    cells, sizes = ([Cell(64, 8, 16)], [2**8, 2**9]) if quick else (CELLS, SIZES)
    plan = Plan(warmup=1, least=2, most=2) if quick else Plan()
    current = BLOCK_NUMBERS["cpu"]
    tried = sorted({*sizes, current})
    found = []
    for cell in cells:
        problem = Problem(cell)
        for kind in PASSES:
            run = partial(problem.run, kind, eager)
            found.append(compare(problem, kind, {str(size): partial(_in_blocks, size, run) for size in tried}, plan))
            print(found[-1], file=sys.stderr, flush=True)
    rows = [row for comparison in found for row in comparison.rows("blocks", "block_numbers", str(current), "current")]
    return Result(rows, _table(found, tried, current), [_verdict(found, tried, current)])


def _in_blocks(numbers: int, run: Callable[[], None]) -> None:
    with mock.patch.dict(BLOCK_NUMBERS, cpu=numbers):
        run()


def _table(found: Sequence[Comparison], tried: Sequence[int], current: int) -> str:
    header = ["N", "m", "K", "pass", *(f"{_power(size)}{' (in use)' if size == current else ''}" for size in tried)]
    body = [
        [*comparison.cell, comparison.kind, *(f"{one.timing.median:.2f}" for one in comparison.measured.values())]
        for comparison in found
    ]
    return "milliseconds by numbers in a block\n" + format_table(header, body)


def _verdict(found: Sequence[Comparison], tried: Sequence[int], current: int) -> str:
    """How far each size is from the fastest of its row, in the geometric mean over rows."""
    behind = {size: geometric_mean(_behind_fastest(comparison, size) for comparison in found) for size in tried}
    worst = max(found, key=lambda comparison: _behind_fastest(comparison, current))
    best = min(behind, key=lambda size: behind[size])
    means = ", ".join(f"{_power(size)} {mean:.3f}" for size, mean in behind.items())
    return (
        f"block size in use is the best on the whole: {'yes' if best == current else f'no ({_power(best)} is)'} "
        f"(times the fastest, geometric mean: {means}; "
        f"{_power(current)} at worst {_behind_fastest(worst, current):.3f} at {worst})"
    )


def _behind_fastest(comparison: Comparison, size: int) -> float:
    fastest = min(comparison.measured, key=lambda name: comparison.measured[name].timing.median)
    return comparison.time_ratio(str(size), fastest)


def _power(size: int) -> str:
    exponent = size.bit_length() - 1
    return f"2^{exponent}" if size == 2**exponent else str(size)
