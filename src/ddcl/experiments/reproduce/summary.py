"""Tables from records: mean and spread over seeds, the paper's figure beside ours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import mean, stdev

from ddcl.experiments.reproduce.study import Column, Done, Study

NONE = "-"


def table(study: Study, finished: Sequence[Done]) -> str:
    """A Markdown table: a row per case and method, the paper's rows of a case before ours."""
    head = ["", "method", *(column.title for column in study.columns), "runs"]
    rows = []
    for case in cases(finished):
        here = [one for one in finished if one.case == case]
        found = [_paper_row(study, paper.method, paper.values) for paper in study.paper if paper.case == case]
        found += [_row(study, method, [one for one in here if one.method == method]) for method in methods(here)]
        rows += [[case if i == 0 else "", *row] for i, row in enumerate(found)]
    return markdown(head, rows)


def sentences(study: Study, finished: Sequence[Done]) -> str:
    """What the numbers say, as a list in Markdown; empty for a study without notes."""
    said = [] if study.notes is None else study.notes(finished)
    return "\n".join(f"- {sentence}" for sentence in said)


def cases(finished: Iterable[Done]) -> list[str]:
    """The cases, in the order they were run."""
    return list(dict.fromkeys(one.case for one in finished))


def methods(finished: Iterable[Done]) -> list[str]:
    """The methods, in the order they were run."""
    return list(dict.fromkeys(one.method for one in finished))


def values(finished: Iterable[Done], case: str, method: str, metric: str) -> list[float]:
    """A figure of all seeds of one row."""
    here = (one for one in finished if one.case == case and one.method == method)
    return [one.metrics[metric] for one in here if metric in one.metrics]


def average(finished: Iterable[Done], case: str, method: str, metric: str) -> float:
    """Mean over seeds, NaN where nothing was run."""
    found = values(finished, case, method, metric)
    return mean(found) if found else math.nan


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def spread(found: Sequence[float], digits: int, scale: float = 1.0) -> str:
    """Mean and standard deviation over seeds."""
    scaled = [value * scale for value in found]
    if not scaled:
        return NONE
    if any(map(math.isnan, scaled)):
        return "nan"
    if any(map(math.isinf, scaled)):  # such as the epochs until something happened that never did
        finite = [value for value in scaled if math.isfinite(value)]
        return f"{mean(finite):.{digits}f} in {len(finite)} of {len(scaled)}" if finite else "never"
    if len(scaled) == 1:
        return f"{scaled[0]:.{digits}f}"
    return f"{mean(scaled):.{digits}f} ± {stdev(scaled):.{digits}f}"


def _row(study: Study, method: str, here: Sequence[Done]) -> list[str]:
    cells = [
        _cell(column, [one.metrics[column.metric] for one in here if column.metric in one.metrics])
        for column in study.columns
    ]
    return [method, *cells, str(len(here))]


def _paper_row(study: Study, method: str, reported: object) -> list[str]:
    given = dict(reported) if isinstance(reported, dict) else {}
    cells = [f"{given[c.metric] * c.scale:.{c.digits}f}" if c.metric in given else NONE for c in study.columns]
    return [f"*the paper: {method}*", *cells, NONE]


def _cell(column: Column, found: Sequence[float]) -> str:
    return spread(found, column.digits, column.scale)
