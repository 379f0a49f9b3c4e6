"""Texts to words, with the place of each: in any script, as nothing here knows a language."""

from __future__ import annotations

import re
import unicodedata
from itertools import takewhile
from typing import NamedTuple

# `\w` has no vowel signs and no accents that stand alone, without which words of many scripts fall apart
_MARKS = "".join(chr(code) for code in range(0x300, 0x10000) if unicodedata.category(chr(code))[0] == "M")
# scripts written without spaces: Thai to Myanmar, Khmer, kana, Chinese characters; each sign is a word there
_UNSPACED = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_LETTERS = rf"[^\W{_UNSPACED}_{_MARKS}]"
_RUN = rf"{_LETTERS}(?:{_LETTERS}|[{_MARKS}])*"
_WORD = re.compile(rf"[{_UNSPACED}][{_MARKS}]*|{_RUN}(?:['\u2019]{_RUN})*")
_UNSPACED_WORD = re.compile(rf"[{_UNSPACED}]")


class Span(NamedTuple):
    """Where something stands: ``text[start:end]``."""

    start: int
    end: int


def word_spans(text: str, until: int | None = None) -> list[Span]:
    """The words of a text that begin before ``until``; punctuation belongs to none.

    Example:
        >>> text = "I can't pay, 银行"
        >>> [text[start:end] for start, end in word_spans(text)]
        ['I', "can't", 'pay', '银', '行']
    """
    spans = (Span(*found.span()) for found in _WORD.finditer(text))
    return list(takewhile(lambda span: until is None or span.start < until, spans))


def words(text: str) -> list[str]:
    """The words of a text, for counting: lower case, and not one letter alone."""
    return [word for word in _WORD.findall(text.casefold()) if len(word) > 1 or _UNSPACED_WORD.match(word)]


def joined(pair: str) -> str:
    """Words that were counted side by side, as they are written: without a space where the script has none."""
    parts = pair.split(" ")
    return ("" if all(_UNSPACED_WORD.match(part) for part in parts) else " ").join(parts)
