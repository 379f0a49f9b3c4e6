"""The paper's six panels of a training run, as vector pictures of a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from ddcl.report.page.drawing import Scale, axes, path, picture, tag
from ddcl.report.page.texts import short

WIDTH, HEIGHT = 330.0, 200.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 8.0, 10.0, 38.0


class Panel(NamedTuple):
    """One of the six."""

    title: str
    note: str
    """What it should look like, in a sentence."""
    picture: Markup
    legend: tuple[str, ...]
    """Names of the lines, in the order of their colours; empty for one line."""
    lines: tuple[tuple[float | None, ...], ...]
    """The numbers, for who points at the picture; empty where an epoch is no place on the x axis."""


def epochs_of(metrics: Sequence[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    """Figures over the epochs; an epoch that has none of a name has None."""
    names = ("total", "reconstruction", "variance", "quantization", "separation", "entropy", "usage", "distinct")
    found: dict[str, list[float | None]] = {"epoch": [line["epoch"] for line in metrics]}
    return found | {name: [line["figures"].get(name) for line in metrics] for name in names}


def panels(metrics: Sequence[Mapping[str, Any]], num_prototypes: int) -> list[Panel]:
    """All six; none for a run of which no epoch is known."""
    if not metrics:
        return []
    epochs = epochs_of(metrics)
    share = [None if count is None else count / num_prototypes for count in epochs["distinct"]]
    terms = {"L": "total", "R": "reconstruction", "V": "variance", "min d": "quantization"}
    undecided = math.log(num_prototypes)
    return [
        _over_epochs(
            "Loss, L = R + V",
            "Falls and levels off; R is what mixtures miss, V what their prototypes differ by.",
            epochs["epoch"],
            {name: epochs[key] for name, key in terms.items()},
        ),
        _over_epochs(
            "Variance V", "Falls as rows settle on one prototype.", epochs["epoch"], {"V": epochs["variance"]}
        ),
        _over_epochs(
            "Separation S(P)",
            "The smallest squared distance of two prototypes; zero would be two in one place.",
            epochs["epoch"],
            {"S": epochs["separation"]},
        ),
        _over_epochs(
            "Assignment entropy H(Q)",
            f"In nats; at ln K = {short(undecided)} nothing would be decided.",
            epochs["epoch"],
            {"H": epochs["entropy"]},
        ),
        _over_epochs(
            "Prototypes apart and in use",
            "Shares of all prototypes; both should stay at 1.",
            epochs["epoch"],
            {"distinct": share, "in use": epochs["usage"]},
            top=1.0,
        ),
        _portrait(epochs["variance"], epochs["separation"], epochs["epoch"]),
    ]


def _over_epochs(
    title: str,
    note: str,
    when: Sequence[float | None],
    lines: Mapping[str, Sequence[float | None]],
    *,
    top: float | None = None,
) -> Panel:
    known = [value for line in lines.values() for value in line if value is not None]
    first, last = (float(when[0] or 0), float(when[-1] or 0))
    high = top or max([*known, 0.0]) or 1.0
    x = Scale(first, last, _LEFT, WIDTH - _RIGHT)
    y = Scale(0.0, 1.05 * high, HEIGHT - _BOTTOM, _TOP)
    parts = axes(x, y, x_label="epoch")
    for number, line in enumerate(lines.values()):
        at = [(x(float(one)), y(value)) for one, value in zip(when, line, strict=True) if None not in (one, value)]  # type: ignore[arg-type]
        parts.append(path(at, class_=f"line s{number}"))
        if len(at) == 1:  # a line of one point is nothing to be seen
            parts.append(tag("circle", cx=at[0][0], cy=at[0][1], r=3, class_=f"f{number}"))
    spoken = ", ".join(f"{name} from {short(line[0])} to {short(line[-1])}" for name, line in lines.items())
    drawn = picture(WIDTH, HEIGHT, *parts, label=f"{title} over {len(when)} epochs: {spoken}")
    legend = tuple(lines) if len(lines) > 1 else ()
    return Panel(title, note, drawn, legend, tuple(map(tuple, lines.values())))


def _portrait(variance: Sequence[float | None], apart: Sequence[float | None], when: Sequence[float | None]) -> Panel:
    both = [(v, s) for v, s in zip(variance, apart, strict=True) if v is not None and s is not None]
    most_v, most_s = max([v for v, _ in both] + [0.0]) or 1.0, max([s for _, s in both] + [0.0]) or 1.0
    x = Scale(0.0, 1.05 * most_v, _LEFT, WIDTH - _RIGHT)
    y = Scale(0.0, 1.05 * most_s, HEIGHT - _BOTTOM, _TOP)
    at = [(x(v), y(s)) for v, s in both]
    parts = [*axes(x, y, x_label="V"), path(at, class_="line quiet")]
    for place, (here, there) in enumerate(at):
        late = 0.25 + 0.75 * (place + 1) / len(at)
        parts.append(tag("circle", cx=here, cy=there, r=2.5, class_="f0", fill_opacity=late))
    if at:
        parts.append(tag("circle", cx=at[-1][0], cy=at[-1][1], r=5, class_="ring"))
    drawn = picture(WIDTH, HEIGHT, *parts, label=f"Phase portrait: separation against variance over {len(when)} epochs")
    return Panel("Phase portrait, S(P) over V", "From pale to full; ringed is the end.", drawn, (), ())
