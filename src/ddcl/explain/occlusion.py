"""Which words carried an answer: leave each out, and see how far the answer falls.

Out of the text, which is scored again for each word; or, for long texts, out of the mean of the encoder's states.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ddcl.explain.outputs import Word
from ddcl.explain.words import Span, word_spans
from ddcl.shapes import Float

Score = Callable[[Sequence[str]], Float[Tensor, " n"]]
"""Of texts: how strongly each has what is explained."""
MOST_VARIANTS = 256
"""Texts that are scored for one text; words of a longer one go together with their neighbours."""
FEW_WORDS = 32
"""Up to so many words texts are scored without each; beyond, states do as well in one pass (docs/lab/0012)."""


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


def state_weights(
    text: str,
    states: Float[Tensor, "tokens m"],
    places: Sequence[tuple[int, int]],
    score: Callable[[Float[Tensor, "n m"]], Float[Tensor, " n"]],
) -> tuple[Word, ...]:
    """The same without scoring texts: each word's states are left out of the mean over all states.

    Args:
        text: to explain.
        states: of its tokens, from an encoder.
        places: where in the text each token stands; empty for what the encoder puts before and behind it.
        score: of means, called once with that of all states and those without each word.
    """
    spans = word_spans(text, max((end for _, end in places), default=0))
    if not spans:
        return ()
    starts = [span.start for span in spans]
    member = torch.zeros(len(spans), len(states), dtype=states.dtype, device=states.device)
    for token, (start, end) in enumerate(places):
        first = max(0, bisect_right(starts, start) - 1)  # a token may hold the end of a word and the next one
        for number in range(first, bisect_right(starts, end - 1) if end > start else 0):
            if spans[number].end > start:
                member[number, token] = 1
    left = 1 - member
    means = torch.cat([states.mean(0, keepdim=True), left @ states / left.sum(-1, keepdim=True).clamp(min=1)])
    whole, *parts = score(means).tolist()
    return tuple(
        Word(text[span.start : span.end], span.start, span.end, whole - part)
        for span, part in zip(spans, parts, strict=True)
    )
