"""Which words carried an answer: leave each out, and see how far the answer falls."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from ddcl.explain.outputs import Word
from ddcl.explain.words import Span, word_spans
from ddcl.shapes import Float

Score = Callable[[Sequence[str]], Float[Tensor, " n"]]
"""Of texts: how strongly each has what is explained."""
MOST_VARIANTS = 256
"""Texts that are scored for one text; words of a longer one go together with their neighbours."""


def without(text: str, spans: Sequence[Span]) -> str:
    """A text with some of its words left out; the rest stays where it is.

    Example:
        >>> without("my card was declined", [Span(3, 7), Span(8, 11)])
        'my   declined'
    """
    kept, at = [], 0
    for start, end in sorted(spans):
        kept.append(text[at:start])
        at = end
    return "".join([*kept, text[at:]])


def word_groups(spans: Sequence[Span], most: int = MOST_VARIANTS) -> list[list[Span]]:
    """Words that are left out together: each alone, or in a long text runs of equal length."""
    size = -(-len(spans) // most)
    return [list(spans[start : start + size]) for start in range(0, len(spans), max(1, size))]


def word_weights(text: str, score: Score, *, until: int | None = None) -> tuple[Word, ...]:
    """The weight of each word: the score of the text less that of the text without it.

    Words that share a group share its weight evenly.

    Args:
        text: to explain.
        score: called once, with the text and all its variants.
        until: how many characters of the text are read at all; words beyond are left out.
    """
    groups = word_groups(word_spans(text, until))
    if not groups:
        return ()
    whole, *parts = score([text, *(without(text, group) for group in groups)]).tolist()
    return tuple(
        Word(text[span.start : span.end], span.start, span.end, (whole - part) / len(group))
        for group, part in zip(groups, parts, strict=True)
        for span in group
    )
