"""The record as a table to read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ddcl.experiments.kernels.layer import TRAINING_STEP
from ddcl.experiments.kernels.record import MEASURED, WHOLE, Row
from ddcl.experiments.kernels.shapes import KINDS

_HEADER = ["candidate", "timed by"]
for _kind in KINDS:
    _HEADER += [f"{_kind} ms (p10 to p90)", "of floor"]
_HEADER += ["peak GiB", "over tensors", "what it computes"]


def table(rows: Sequence[Row]) -> str:
    """A Markdown table for each size, and one for the layer's step."""
    parts = []
    passes = [row for row in rows if row.kind in KINDS]
    for shape in dict.fromkeys(row.shape for row in passes):
        mine = [row for row in passes if row.shape == shape]
        floors = ", ".join(f"{kind} {_floor(mine, kind)}" for kind in KINDS)
        parts.append("\n".join([f"N, m, K = {shape}; floor in ms: {floors}", "", *_lines(_HEADER, _body(mine))]))
    steps = [row for row in rows if row.kind == TRAINING_STEP]
    if steps:
        body = [[row.candidate, row.item, row.timed_by, _ms(row) or row.note] for row in steps]
        parts.append(
            "\n".join(["Training step of DDCLAttention", "", *_lines(["candidate", "item", "timed by", "ms"], body)])
        )
    return "\n\n".join(parts)


def _body(rows: Sequence[Row]) -> list[list[str]]:
    """One line for each candidate and way of timing, what failed among them."""
    body = []
    for candidate, own in groupby(rows, key=lambda row: row.candidate):
        mine = list(own)
        for timed_by in dict.fromkeys(row.timed_by for row in mine):
            line, last, remarks = [candidate, timed_by or "-"], None, []
            for kind in KINDS:
                row = next((one for one in mine if (one.kind, one.timed_by) == (kind, timed_by)), None)
                line += ["-", "-"] if row is None or row.median_ms is None else [_ms(row), _percent(row.share_of_floor)]
                last = row or last
                remarks += [] if row is None else [row.note if row.status == MEASURED else f"{row.status}: {row.note}"]
            line += ["-", "-"] if last is None or last.peak_bytes is None else _memory(last)
            body.append([*line, "; ".join(dict.fromkeys(remarks))])
    return body


def _memory(row: Row) -> list[str]:
    ratio = "-" if row.memory_ratio is None else f"{row.memory_ratio:.2f}"
    return [f"{(row.peak_bytes or 0) / 2**30:.2f}", ratio]


def _floor(rows: Sequence[Row], kind: str) -> str:
    floors = [row.floor_ms for row in rows if row.kind == kind and row.floor_ms is not None]
    return f"{floors[0]:.4g}" if floors else "-"


def _ms(row: Row) -> str:
    if row.median_ms is None:
        return ""
    spread = f" ({row.p10_ms:.4g} to {row.p90_ms:.4g})" if row.p10_ms is not None and row.item == WHOLE else ""
    return f"{row.median_ms:.4g}{spread}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _lines(header: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
        *("| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in body),
    ]
