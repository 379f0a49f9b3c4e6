"""The operation on the CPU: the library against the plain formula and the form most people would write."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise, product

from benchmarks.comparison import Comparison, compare
from benchmarks.implementations import IMPLEMENTATIONS
from benchmarks.problem import PASSES, Cell, Problem
from benchmarks.results import Result, format_table
from benchmarks.timing import Plan

# K runs fastest: the verdict on memory reads one line of K after the other
CELLS = [Cell(*sizes) for sizes in product((2**12, 2**16), (64, 256), (16, 64, 1024))]
QUICK_CELLS = [Cell(32, 8, K) for K in (2, 64)]
RIVALS = [name for name in IMPLEMENTATIONS if name != "eager"]


def measure(quick: bool) -> Result:
    """Every implementation at every size, forward and with backward."""
    cells = QUICK_CELLS if quick else CELLS
    found = list(_compare_all(cells, quick))
    rows = [row for comparison in found for row in comparison.rows("core", "implementation", "eager")]
    return Result(rows, _table(found), [*(_never_slower(found, rival) for rival in RIVALS), _memory_grows(found)])


def _compare_all(cells: Sequence[Cell], quick: bool) -> Iterator[Comparison]:
    largest = max(cells, key=lambda cell: cell.N * cell.m * cell.K)
    for cell in cells:
        problem = Problem(cell)
        plan = Plan(warmup=1, least=2, most=2) if quick else Plan(least=5 if cell == largest else 7)
        for kind in PASSES:
            candidates = {name: partial(problem.run, kind, function) for name, function in IMPLEMENTATIONS.items()}
            comparison = compare(problem, kind, candidates, plan)
            print(comparison, file=sys.stderr, flush=True)
            yield comparison


def _table(found: Sequence[Comparison]) -> str:
    header = ["N", "m", "K", "pass"]
    header += [f"{name} ms (p10-p90)" for name in IMPLEMENTATIONS] + [f"{rival}/eager" for rival in RIVALS]
    header += [f"{name} MiB" for name in IMPLEMENTATIONS] + [f"{rival}/eager MiB" for rival in RIVALS]
    body = []
    for comparison in found:
        timings = [comparison.measured[name].timing for name in IMPLEMENTATIONS]
        peaks = [comparison.measured[name].peak_bytes for name in IMPLEMENTATIONS]
        line: list[object] = [*comparison.cell, comparison.kind]
        line += [f"{t.median:.2f} ({t.p10:.2f}-{t.p90:.2f})" for t in timings]
        line += [f"{comparison.time_ratio(rival, 'eager'):.2f}" for rival in RIVALS]
        line += [f"{peak / 2**20:.2f}" for peak in peaks]
        line += [f"{comparison.memory_ratio(rival, 'eager'):.2f}" for rival in RIVALS]
        body.append(line)
    return format_table(header, body)


def _never_slower(found: Sequence[Comparison], rival: str) -> str:
    ratios = [(comparison.time_ratio(rival, "eager"), comparison) for comparison in found]
    slower = [f"{comparison} {ratio:.2f}" for ratio, comparison in ratios if ratio < 1]
    return f"never slower than {rival}: {'no (cells ' + ', '.join(slower) + ')' if slower else 'yes'}"


def _memory_grows(found: Sequence[Comparison]) -> str:
    lines, growing = [], True
    by_kind = sorted(found, key=lambda comparison: (comparison.kind, comparison.cell))
    for (kind, N, m), group in groupby(by_kind, key=lambda c: (c.kind, c.cell.N, c.cell.m)):
        factors = [comparison.memory_ratio("plain", "eager") for comparison in group]
        growing &= all(small < large for small, large in pairwise(factors))
        lines.append(f"{kind} N={N} m={m}: {' -> '.join(f'{factor:.1f}' for factor in factors)}")
    return f"memory factor grows with K: {'yes' if growing else 'no'} (plain/eager, {'; '.join(lines)})"
