"""Small vector pictures that live in a page: their colours are the page's, light or dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

COLOURS = 8
"""Classes c0 to c7 of the style sheet, told apart by people who see colours differently."""


def tag(name: str, *inside: str | Markup, **attributes: Any) -> Markup:
    """An element; an underscore at the end of a name is dropped, one inside is a hyphen. Texts are escaped.

    Example:
        >>> from ddcl.report.page.drawing import tag
        >>> tag("text", "a < b", x=1, class_="axis")
        Markup('<text x="1" class="axis">a &lt; b</text>')
    """
    named = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value is not None)
    said = "".join(f' {key}="{escape(_number(value))}"' for key, value in named)
    content = Markup("").join(inside)
    return Markup(f"<{name}{said}>{content}</{name}>")  # all parts are escaped above


def picture(width: float, height: float, *parts: Markup, label: str, fixed: bool = False, **attributes: Any) -> Markup:
    """A whole picture; the label is what is read aloud. One that is fixed does not grow or shrink with the page."""
    size = {"width": round(width), "height": round(height)} if fixed else {}
    view = f"0 0 {_number(width)} {_number(height)}"
    return tag("svg", *parts, viewBox=view, **size, role="img", aria_label=label, **attributes)


def path(points: Sequence[tuple[float, float]], **attributes: Any) -> Markup:
    """A line through points; nothing where there are none."""
    steps = " ".join(f"{_number(x)} {_number(y)}" for x, y in points)
    return tag("path", d=f"M{steps}" if points else None, **attributes)


@dataclass(frozen=True)
class Scale:
    """From numbers to places along an axis."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """Where a number is."""
        low, high, value = (math.log(one) if self.logarithmic else one for one in (self.low, self.high, value))
        return self.start + (self.end - self.start) * ((value - low) / (high - low) if high > low else 0.5)

    def ticks(self, most: int = 5) -> list[float]:
        """Round numbers between the ends."""
        if self.logarithmic:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            factors = (1, 2, 5) if self.high > 30 * self.low else (1, 1.5, 2, 3, 5, 7)
            every = [factor * 10.0**power for power in decades for factor in factors]
            return [value for value in every if self.low <= value <= self.high]
        return round_numbers(self.low, self.high, most)


def round_numbers(low: float, high: float, most: int = 5) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten between two numbers, no more than so many.

    Example:
        >>> from ddcl.report.page.drawing import round_numbers
        >>> round_numbers(0, 47)
        [0.0, 10.0, 20.0, 30.0, 40.0]
    """
    if not high > low:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(factor * power for factor in (1, 2, 5, 10, 20) if (high - low) / (factor * power) <= most)
    first = math.ceil(low / step - 1e-9)
    return [step * place for place in range(first, math.floor(high / step + 1e-9) + 1)]


def axes(x: Scale, y: Scale, *, x_label: str = "", below: tuple[float, float] = (14.0, 29.0)) -> list[Markup]:
    """Grid lines and their numbers, below and to the left; ``below`` is how far down numbers and label stand."""
    parts = []
    for value in y.ticks(4):
        parts.append(tag("line", x1=x.start, x2=x.end, y1=y(value), y2=y(value), class_="grid"))
        parts.append(tag("text", _tick(value), x=x.start - 5, y=y(value) + 3.5, text_anchor="end", class_="tick"))
    for value in x.ticks():
        parts.append(tag("text", _tick(value), x=x(value), y=y.start + below[0], text_anchor="middle", class_="tick"))
    if x_label:
        middle = (x.start + x.end) / 2
        parts.append(tag("text", x_label, x=middle, y=y.start + below[1], text_anchor="middle", class_="axis"))
    return parts


def _tick(value: float) -> str:
    return f"{value:.6g}"


def _number(value: Any) -> Any:
    """A place needs no more than two digits after the point."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
