"""Explanations as plain text, for a terminal or a file."""

from __future__ import annotations

from collections.abc import Sequence

from ddcl.explain.deletion import DeletionTest, carrying
from ddcl.explain.outputs import Example, Explanation, PrototypeCard, Share, Vocabulary, Word
from ddcl.explain.showing import neutral, one_line, quoted

WHOLE = 600
"""Characters of the text that is explained."""
BOLD, NORMAL = "\x1b[1;4m", "\x1b[0m"


def vocabulary_text(vocabulary: Vocabulary, cards: Sequence[PrototypeCard]) -> str:
    """The cards asked for, in the order given, and the outliers."""
    parts = ["\n".join(card_lines(card)) for card in cards]
    if vocabulary.outliers:
        parts.append("\n".join(["the most undecided rows, by entropy:", *map(_outlier, vocabulary.outliers)]))
    return "\n\n".join([f"{len(vocabulary.cards)} prototypes of {vocabulary.rows} rows", *parts])


def card_lines(card: PrototypeCard) -> list[str]:
    """A prototype: how much of the data it is of, its terms, its typical rows, its neighbours."""
    lines = [numbered(card.number, card.title, ": "), f"  {sizes(card)}"]
    if card.terms:
        lines.append(f"  terms: {', '.join(one_line(term.term) for term in card.terms)}")
    lines += [_entry("typical", number, quoted(one.text, one.row)) for number, one in enumerate(card.examples)]
    if card.neighbours:
        near = (f"{numbered(one.prototype, one.title)} at {one.distance:.2f}" for one in card.neighbours)
        lines.append(f"  near (in roots of T): {', '.join(near)}")
    return lines


def explanation_text(explanation: Explanation, *, mark: bool, called: str | None = None) -> str:
    """Why an input is read as it is.

    Args:
        explanation: what to show.
        mark: whether to mark the words that carried it, by a terminal's own signs.
        called: what to call an input that is no text.
    """
    named = carrying(explanation.words)
    shown = called or "embedding"
    if explanation.text is not None:
        shown = f"“{_marked(explanation.text, named) if mark else one_line(explanation.text, WHOLE)}”"
    lines = [shown, f"  {mixed(explanation)}"]
    if explanation.predicted is not None:
        lines.append(f"  class: {one_line(explanation.predicted)} ({percent(explanation.probability or 0)})")
    if explanation.words:
        carried = ", ".join(f"{one_line(word.word)} {word.weight:+.2f}" for word in named)
        lines.append(f"  carried by: {carried or 'no single word'}")
    lines += [_entry("nearest", number, near(one)) for number, one in enumerate(explanation.examples)]
    return "\n".join(lines)


def check_text(test: DeletionTest) -> str:
    """The deletion test: a sentence for each comparison, and the verdict over all."""
    shown = sum(one.verdict == test.verdict for one in test.comparisons)
    counted = "in all" if shown == len(test.comparisons) else f"in {shown} of"
    counted += f" {len(test.comparisons)} comparisons"
    verdict = f"verdict: {test.verdict} ({counted}, {test.rows} rows, seed {test.seed})"
    return "\n".join([*(one.sentence() for one in test.comparisons), verdict])


def numbered(number: int, title: str, between: str = " (") -> str:
    """The number of a prototype with its title, unless that says no more."""
    bare = f"prototype {number}"
    ending = ")" if between == " (" else ""
    return bare if title == bare else f"{bare}{between}{one_line(title)}{ending}"


def sizes(card: PrototypeCard) -> str:
    """How many rows a prototype is the nearest of, how sure, and how many of one label."""
    said = f"{card.size} rows ({100 * card.coverage:.1f} %)"
    if card.confidence is not None:
        said += f", mean share {percent(card.confidence)}"
    if card.label is not None and card.purity is not None:
        said += f", {percent(card.purity)} labelled {one_line(card.label)}"
        said += " (it learned from labels)" if card.taught else ""
    return said


def mixed(explanation: Explanation) -> str:
    """A mixture in words: "62 % prototype 3 (card payments declined), 28 % ..."."""
    return ", ".join(
        [*map(_share, explanation.shares), *([f"{percent(explanation.rest)} others"] if explanation.rest else [])]
    )


def percent(share: float) -> str:
    """A share in whole per cent.

    Example:
        >>> percent(0.624), percent(0.001)
        ('62 %', 'under 1 %')
    """
    return f"{100 * share:.0f} %" if share >= 0.005 or share == 0 else "under 1 %"


def near(example: Example) -> str:
    """A row that is near what is explained, with its cosine and label."""
    label = "" if example.label is None else f" ({one_line(example.label)})"
    return f"{example.similarity or 0:.2f} {quoted(example.text, example.row)}{label}"


def _share(share: Share) -> str:
    return f"{percent(share.share)} {numbered(share.prototype, share.title)}"


def _outlier(one: Example) -> str:
    return (
        f"  entropy {one.entropy:.2f}, {percent(one.confidence)} prototype {one.prototype}: {quoted(one.text, one.row)}"
    )


def _entry(name: str, number: int, said: str) -> str:
    return f"  {name + ':' if not number else '':<{len(name) + 1}} {said}"


def _marked(text: str, named: Sequence[Word]) -> str:
    """The text on one line with some words marked."""
    parts, at = [], 0
    for word in sorted(named, key=lambda word: word.start):
        if word.end > WHOLE:
            break
        parts += [neutral(_spaced(text[at : word.start])), BOLD, neutral(text[word.start : word.end]), NORMAL]
        at = word.end
    rest = text[at : max(WHOLE, at)]
    return "".join([*parts, neutral(_spaced(rest)), "…" if len(text) > max(WHOLE, at) else ""])


def _spaced(text: str) -> str:
    return "".join(" " if one.isspace() else one for one in text)
