"""How many prototypes there are at each temperature, and the tree of which meets which as it warms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from ddcl.report.page.drawing import Scale, axes, path, picture, tag
from ddcl.report.page.texts import short, shown

WIDTH = 680.0
_LEAF, _NAMES = 13.0, 210.0
AXIS = "temperature in units of the critical one (logarithmic)"


class Branch(NamedTuple):
    """A group that some groups became; a leaf is a prototype."""

    members: tuple[int, ...]
    at: float
    """T / T_c where it came to be; 0 for a leaf, which was there from the start."""
    parts: tuple[Branch, ...]


def branches(phases: Mapping[str, Any]) -> list[Branch]:
    """The groups at the hottest temperature, each with how it came to be."""
    now = {number: Branch((number,), 0.0, ()) for number in range(len(phases["groups"][0]))}
    for temperature, labels in zip(phases["temperatures"], phases["groups"], strict=True):
        joined: dict[int, list[Branch]] = {}
        for lowest in sorted(now):
            joined.setdefault(labels[lowest], []).append(now[lowest])
        now = {lowest: _together(parts, temperature / phases["critical"]) for lowest, parts in joined.items()}
    return sorted(now.values(), key=lambda one: (-len(one.members), one.members))


def _together(parts: list[Branch], at: float) -> Branch:
    if len(parts) == 1:
        return parts[0]
    parts = sorted(parts, key=lambda one: (-len(one.members), one.members))
    return Branch(tuple(sorted(member for one in parts for member in one.members)), at, tuple(parts))


def draw_counts(phases: Mapping[str, Any]) -> Markup:
    """Distinct prototypes over T / T_c, with the critical temperature and the one it is read at."""
    relative = [temperature / phases["critical"] for temperature in phases["temperatures"]]
    counts, K = phases["distinct"], len(phases["groups"][0])
    height, bottom = 300.0, 250.0
    x = Scale(relative[0], relative[-1], 44.0, WIDTH - 12, logarithmic=True)
    y = Scale(0.0, 1.08 * K, bottom, 26.0)
    steps = [(x(relative[0]), y(counts[0]))]
    for here, before, now in zip(relative[1:], counts, counts[1:], strict=False):
        steps += [(x(here), y(before)), (x(here), y(now))]
    parts = axes(x, y, x_label=AXIS, below=(18.0, 40.0))
    parts.append(path(steps, class_="line s0"))
    read = phases["reading"] / phases["critical"]
    for place, name, kind in ((read, f"read here, {short(read)}", "s1"), (1.0, "critical", "quiet")):
        if relative[0] <= place <= relative[-1]:
            parts.append(tag("line", x1=x(place), x2=x(place), y1=y.end, y2=bottom, class_=f"line dashed {kind}"))
            anchor = "end" if place < 1 else "start"
            at = x(place) - 4 if place < 1 else x(place) + 4
            parts.append(tag("text", name, x=at, y=y.end - 6, text_anchor=anchor, class_="axis"))
    ends = [f"{count} at {short(at)} T_c" for count, at in ((counts[0], relative[0]), (counts[-1], relative[-1]))]
    return picture(WIDTH, height, *parts, label=f"Distinct prototypes fall from {ends[0]} to {ends[1]}")


def draw_tree(phases: Mapping[str, Any], titles: Sequence[str]) -> Markup:
    """Prototypes to the left, the temperature rising to the right; a joint is where groups become one."""
    tops = branches(phases)
    relative = [temperature / phases["critical"] for temperature in phases["temperatures"]]
    K = len(titles)
    height = _LEAF * K + 50
    x = Scale(relative[0], relative[-1], _NAMES, WIDTH - 12, logarithmic=True)
    parts = [tag("line", x1=x(v), x2=x(v), y1=6.0, y2=height - 36, class_="grid") for v in x.ticks()]
    parts += _below(x, height)
    read = phases["reading"] / phases["critical"]
    if relative[0] <= read <= relative[-1]:
        parts.append(tag("line", x1=x(read), x2=x(read), y1=6.0, y2=height - 36, class_="line dashed s1"))
    lines: list[Markup] = []
    next_leaf = 0

    def place(branch: Branch) -> tuple[float, float]:
        """Draw a branch; where its line begins."""
        nonlocal next_leaf
        if not branch.parts:
            middle = 12 + _LEAF * next_leaf
            next_leaf += 1
            number = branch.members[0]
            name = f"{number}: {shown(titles[number], 32)}"
            lines.append(tag("text", name, x=_NAMES - 6, y=middle + 3.5, text_anchor="end", class_="tick"))
            return x(relative[0]), middle
        ends = [place(part) for part in branch.parts]
        joint = x(branch.at)
        for start, middle in ends:
            lines.append(path([(start, middle), (joint, middle)], class_="line s0 thin"))
        lines.append(path([(joint, ends[0][1]), (joint, ends[-1][1])], class_="line s0 thin"))
        return joint, sum(middle for _, middle in ends) / len(ends)

    for top in tops:
        start, middle = place(top)
        lines.append(path([(start, middle), (WIDTH - 12, middle)], class_="line s0 thin"))
    label = f"Tree of {K} prototypes that merge into {len(tops)} as the temperature rises"
    return picture(WIDTH, height, *parts, *lines, label=label)


def _below(x: Scale, height: float) -> list[Markup]:
    numbers = [tag("text", f"{v:g}", x=x(v), y=height - 22, text_anchor="middle", class_="tick") for v in x.ticks()]
    middle = (x.start + x.end) / 2
    said = tag("text", AXIS, x=middle, y=height - 6, text_anchor="middle", class_="axis")
    return [*numbers, said]
