"""The targets, each with yes or no and the number it hangs on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from ddcl.experiments.kernels.layer import LAYER, TRAINING_STEP, layer_name
from ddcl.experiments.kernels.profiling import READOUT
from ddcl.experiments.kernels.record import MEASURED, WHOLE, Row
from ddcl.experiments.kernels.shapes import SHAPES, Kind, Shape

FEW = [shape for shape in SHAPES if shape.N >= 2**20 and shape.m in (64, 128) and shape.K <= 64]
MANY = [Shape(2**18, 256, 1024), Shape(2**17, 256, 8192)]


def verdicts(rows: Sequence[Row]) -> list[str]:
    """One line for each target, for the operation and for the public function around it; bfloat16 alone."""
    sizes = {*SHAPES, LAYER.shape}
    rows = [row for row in rows if row.status == MEASURED and row.dtype == "bfloat16" and row.shape in sizes]
    if not rows:
        return ["the targets are for bfloat16 at the sizes of a run on a GPU, and none of that was measured"]
    backend = subject(rows)
    floor_share, matrix_share = attrgetter("share_of_floor"), attrgetter("share_of_matrix_rate")
    lines = []
    for candidate in (f"operation:{backend}", f"readout:{backend}"):
        lines += [
            _at_least(0.75, "of the floor", "forward", FEW, candidate, rows, floor_share),
            _at_least(0.60, "of the floor", "forward+backward", FEW, candidate, rows, floor_share),
            _at_least(8.0, "times torch.compile", "forward+backward", FEW, candidate, rows, _over_compiled(rows)),
            _at_least(0.70, "of the matrix rate", "forward", MANY, candidate, rows, matrix_share),
            _at_least(
                0.50,
                "of the matrix rate",
                "forward+backward",
                MANY,
                candidate,
                rows,
                matrix_share,
            ),
            _memory(candidate, rows),
        ]
    return [*lines, _layer(layer_name(backend), rows)]


def subject(rows: Sequence[Row]) -> str:
    """The backend the targets are for: Triton's if it was measured."""
    measured = {row.candidate.partition(":")[2] for row in rows if ":" in row.candidate}
    return "triton" if "triton" in measured or not measured else sorted(measured)[0]


def best_timed(rows: Sequence[Row], candidate: str, shape: Shape, kind: Kind) -> Row | None:
    """The row of the device's own time where a graph was replayed, else the other."""
    return next(iter(_timed(rows, candidate, shape, kind)), None)


def _timed(rows: Sequence[Row], candidate: str, shape: Shape, kind: Kind) -> list[Row]:
    asked = (candidate, shape, kind, MEASURED)
    found = [row for row in rows if (row.candidate, row.shape, row.kind, row.status) == asked]
    return sorted(found, key=lambda row: row.timed_by != "graph")


def _over_compiled(rows: Sequence[Row]) -> Callable[[Row], float | None]:
    """How many times faster than torch.compile, both timed alike."""

    def ratio(row: Row) -> float | None:
        key = ("compiled", row.shape, row.kind, row.timed_by)
        rival = [one for one in rows if (one.candidate, one.shape, one.kind, one.timed_by) == key]
        if not rival or rival[0].median_ms is None or row.median_ms is None:
            return None
        return rival[0].median_ms / row.median_ms

    return ratio


def _at_least(
    least: float,
    unit: str,
    kind: Kind,
    shapes: Sequence[Shape],
    candidate: str,
    rows: Sequence[Row],
    figure: Callable[[Row], float | None],
) -> str:
    target = f"{kind} at least {_number(least, unit)} {unit}, {candidate}"
    found = []
    for shape in shapes:
        figures = [(figure(row), row.timed_by) for row in _timed(rows, candidate, shape, kind)]
        value, timed_by = next(((value, by) for value, by in figures if value is not None), (None, ""))
        if value is None:
            return f"{target}: not measured at {shape}"
        found.append((value, f"{_number(value, unit)} at {shape} by {timed_by}"))
    worst = min(value for value, _ in found)
    return f"{target}: {'yes' if worst >= least else 'no'} ({'; '.join(text for _, text in found)})"


def _number(value: float, unit: str) -> str:
    return f"{value:.1f}" if unit.startswith("times") else f"{100 * value:.1f} %"


def _memory(candidate: str, rows: Sequence[Row]) -> str:
    target = f"peak memory of forward+backward at most 1.25 times inputs, outputs and gradients, {candidate}"
    found = []
    for shape in SHAPES:
        row = best_timed(rows, candidate, shape, "forward+backward")
        if row is None or row.memory_ratio is None:
            return f"{target}: not measured at {shape}"
        found.append((row.memory_ratio, f"{row.memory_ratio:.3f} at {shape}"))
    worst = max(value for value, _ in found)
    return f"{target}: {'yes' if worst <= 1.25 else 'no'} ({'; '.join(text for _, text in found)})"


def _layer(name: str, rows: Sequence[Row]) -> str:
    target = f"the readout is not the largest item of a training step, {name}"
    items = {
        row.item: row.median_ms
        for row in rows
        if row.candidate == name and row.kind == TRAINING_STEP and row.item != WHOLE and row.median_ms is not None
    }
    if not items.get(READOUT):  # a profile without a kernel of the readout says nothing about it
        return f"{target}: not measured"
    shown = ", ".join(f"{item} {ms:.3f} ms" for item, ms in sorted(items.items(), key=lambda pair: -pair[1]))
    return f"{target}: {'yes' if max(items, key=lambda item: items[item]) != READOUT else 'no'} ({shown})"
