"""The record: a row for each candidate, size, pass and way of timing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from ddcl.experiments.kernels.shapes import DTYPES, Rates, Shape, as_kind, floor_ms, least_bytes, operations
from ddcl.experiments.records import append_row, read_rows

WHOLE = "whole"
MEASURED, FAILED, SKIPPED = "measured", "failed", "skipped"
_NUMBERS = ("median_ms", "p10_ms", "p90_ms", "floor_ms", "memory_ratio", "copy_bytes_s", "matrix_ops_s")
_COUNTS = ("N", "m", "K", "repeats", "peak_bytes")


@dataclass(frozen=True)
class Row:
    """One line; what was not measured is None. The rates are those of the run that wrote the row."""

    candidate: str
    N: int
    m: int
    K: int
    dtype: str
    kind: str
    """``forward`` or ``forward+backward``; ``training step`` for the layer."""
    item: str
    """``whole``, or the part of the layer's step the time is of."""
    status: str
    """``measured``, ``failed`` or ``skipped``; the note says why."""
    note: str
    timed_by: str
    """``clock``, ``events`` (the host's work included), ``graph`` (replays: the device alone) or ``profile``."""
    median_ms: float | None
    p10_ms: float | None
    p90_ms: float | None
    repeats: int | None
    floor_ms: float | None
    peak_bytes: int | None
    """Beyond what was held before the call."""
    memory_ratio: float | None
    """Peak with what was held before, over the bytes of inputs, outputs and their gradients."""
    copy_bytes_s: float | None
    matrix_ops_s: float | None

    @property
    def shape(self) -> Shape:
        """N, m, K."""
        return Shape(self.N, self.m, self.K)

    @property
    def share_of_floor(self) -> float | None:
        """How near to the floor: 1 is at it."""
        return None if self.median_ms is None or self.floor_ms is None else self.floor_ms / self.median_ms

    @property
    def operations_per_second(self) -> float | None:
        """Operations that must be done, over the time; None for what is no pass of the operation."""
        kind = as_kind(self.kind)
        if self.median_ms is None or kind is None:
            return None
        return operations(self.shape, kind) / (1e-3 * self.median_ms)

    @property
    def share_of_matrix_rate(self) -> float | None:
        """Those over what a large matrix product reached in the same run."""
        rate = self.operations_per_second
        return None if rate is None or self.matrix_ops_s is None else rate / self.matrix_ops_s

    @property
    def intensity(self) -> float | None:
        """Operations for each byte that must be moved."""
        kind = as_kind(self.kind)
        if kind is None:
            return None
        return operations(self.shape, kind) / least_bytes(self.shape, kind, DTYPES[self.dtype].itemsize)


def append(rows: Iterable[Row], path: str | Path, origin: Mapping[str, object]) -> None:
    """Add rows to the file, begun if there is none."""
    for row in rows:
        append_row(_line(row), path, origin)


def read(path: str | Path) -> list[Row]:
    """The rows of a file."""
    found = []
    for line in read_rows(path):
        values: dict[str, object] = {field.name: line[field.name] for field in fields(Row)}
        for names, convert in ((_NUMBERS, float), (_COUNTS, int)):
            values |= {name: convert(line[name]) if line[name] else None for name in names}
        found.append(Row(**values))  # type: ignore[arg-type]
    return found


def _line(row: Row) -> dict[str, object]:
    return {
        name: "" if value is None else f"{value:.5g}" if isinstance(value, float) else value
        for name, value in asdict(row).items()
    }


def blank(candidate: str, shape: Shape, dtype: str, kind: str, rates: Rates, **known: object) -> Row:
    """A row of what is known, the rest None; the floor follows from the shape where the pass has one."""
    measured_pass = as_kind(kind)
    floor = None if measured_pass is None else floor_ms(shape, measured_pass, DTYPES[dtype].itemsize, rates)
    values: dict[str, object] = {field.name: None for field in fields(Row)}
    values |= {**shape._asdict(), "candidate": candidate, "dtype": dtype, "kind": kind, "item": WHOLE}
    values |= {"status": MEASURED, "note": "", "timed_by": "", "floor_ms": floor}
    values |= {"copy_bytes_s": rates.copy, "matrix_ops_s": rates.matrix}
    return Row(**{**values, **known})  # type: ignore[arg-type]
