"""Texts of others on a page of ours: short enough, and with nothing in them that does something."""

from __future__ import annotations

from collections.abc import Sequence

ON_A_CARD, ON_THE_MAP, OF_A_LABEL = 400, 240, 60
"""Characters of a text that are shown."""
_DELETE = 0x7F
# what is invisible and does something gets its picture; a tab and the end of a line are text
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"} | {_DELETE: "\u2421"}
_PICTURES |= dict.fromkeys([*range(0x80, 0xA0), *range(0xD800, 0xE000)], "\ufffd")


def shown(text: str, limit: int = ON_A_CARD) -> str:
    """A text with its control characters visible, cut off where it grows too long.

    Example:
        >>> from ddcl.report.page.texts import shown
        >>> shown("a long text", limit=7)
        'a long…'
    """
    cut = text[:limit].rstrip() + "…" if len(text) > limit else text
    return cut.replace("\r\n", "\n").translate(_PICTURES)


def grouped(number: int) -> str:
    """A whole number as people read it: 10,003."""
    return f"{number:,}"


def short(value: float | None) -> str:
    """Three digits, or a question mark where there is no number."""
    return "?" if value is None else f"{value:.3g}"


def percent(value: float | None, digits: int = 0) -> str:
    """A share of 1, in hundredths."""
    return "?" if value is None else f"{100 * value:.{digits}f} %"


def listed(names: Sequence[str]) -> str:
    """Several names in one sentence.

    Example:
        >>> from ddcl.report.page.texts import listed
        >>> listed(["the map", "the phases", "the rest"])
        'the map, the phases and the rest'
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
