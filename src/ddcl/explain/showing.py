"""Texts as one line that is safe to show: nothing in a text may move a cursor, turn a line round or end a table."""

from __future__ import annotations

import re
import unicodedata

CUT = 160
"""Characters of a text that are shown where it is one of many."""
# joiners make letters and emoji what they are, and do nothing else
_JOINERS = "\u200c\u200d"
_MARKED_DOWN = re.compile(r"([\\`*_\[\]<>|~&#$])")


def neutral(text: str) -> str:
    r"""Without control characters, marks of direction and other signs that are not seen: these become escapes.

    Example:
        >>> print(neutral("red \x1b[31m and \u202e back"))
        red \x1b[31m and \u202e back
    """
    return "".join(one if _harmless(one) else one.encode("unicode_escape").decode() for one in text)


def one_line(text: str, width: int | None = CUT) -> str:
    """On one line, neutral, and cut after so many characters.

    Example:
        >>> one_line("a text\\n of two lines", width=12)
        'a text of t…'
    """
    # so much is enough for any cut, and a text may be very long
    whole = " ".join(text[: 20 * width].split() if width is not None else text.split())
    shown = neutral(whole)
    return shown if width is None or len(shown) <= width else f"{shown[: width - 1]}…"


def in_markdown(text: str) -> str:
    """What :func:`one_line` gave, as Markdown that shows it letter by letter."""
    return _MARKED_DOWN.sub(r"\\\1", text)


def quoted(text: str | None, row: int, width: int | None = CUT) -> str:
    """A text of the data in quotation marks; without texts the number of its row."""
    return f"row {row}" if text is None else f"“{one_line(text, width)}”"


def _harmless(one: str) -> bool:
    return one in _JOINERS or unicodedata.category(one) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
