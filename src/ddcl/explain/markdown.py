"""Explanations as Markdown, for notes and issues."""

from __future__ import annotations

from collections.abc import Sequence

from ddcl.explain.deletion import DeletionTest, carrying
from ddcl.explain.outputs import Explanation, PrototypeCard, Vocabulary
from ddcl.explain.plain import WHOLE, mixed, near, numbered, percent, sizes
from ddcl.explain.showing import in_markdown, one_line, quoted


def vocabulary_markdown(vocabulary: Vocabulary, cards: Sequence[PrototypeCard]) -> str:
    """The cards asked for, in the order given, and the outliers."""
    parts = [f"# {len(vocabulary.cards)} prototypes of {vocabulary.rows} rows", *map(_card, cards)]
    if vocabulary.outliers:
        rows = [
            f"- entropy {one.entropy:.2f}, {percent(one.confidence)} prototype {one.prototype}: "
            f"{in_markdown(quoted(one.text, one.row))}"
            for one in vocabulary.outliers
        ]
        parts.append("\n".join(["## The most undecided rows", "", *rows]))
    return "\n\n".join(parts)


def explanation_markdown(explanation: Explanation, called: str | None = None) -> str:
    """Why an input is read as it is; ``called`` is the heading of one that is no text."""
    text = explanation.text
    lines = [f"## {in_markdown(called or 'Embedding' if text is None else f'“{one_line(text, WHOLE)}”')}", ""]
    lines.append(f"- mixture: {in_markdown(mixed(explanation))}")
    if explanation.predicted is not None:
        lines.append(
            f"- class: {in_markdown(one_line(explanation.predicted))} ({percent(explanation.probability or 0)})"
        )
    if explanation.words:
        carried = (f"**{in_markdown(one_line(w.word))}** {w.weight:+.2f}" for w in carrying(explanation.words))
        lines.append(f"- carried by: {', '.join(carried) or 'no single word'}")
    if explanation.examples:
        lines += ["- nearest:", *(f"  - {in_markdown(near(one))}" for one in explanation.examples)]
    return "\n".join(lines)


def check_markdown(test: DeletionTest) -> str:
    """The deletion test as a table."""
    lines = [
        f"## Deletion test: {test.verdict}",
        "",
        f"{test.rows} rows, seed {test.seed}.",
        "",
        "| without | or without | effect | named | random | difference (95 %) | more in | rows | verdict |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in test.comparisons:
        interval = f"{one.difference:.3f} ({one.low:.3f} to {one.high:.3f})"
        cells = (one.removed, one.instead, one.effect, f"{one.named:.3f}", f"{one.random:.3f}", interval)
        lines.append(f"| {' | '.join(cells)} | {percent(one.wins)} | {one.rows} | {one.verdict} |")
    return "\n".join(lines)


def _card(card: PrototypeCard) -> str:
    lines = [f"## {in_markdown(numbered(card.number, card.title, ': '))}", "", in_markdown(sizes(card)), ""]
    if card.terms:
        lines.append(f"- terms: {in_markdown(', '.join(one_line(term.term) for term in card.terms))}")
    if card.examples:
        lines += ["- typical:", *(f"  - {in_markdown(quoted(one.text, one.row))}" for one in card.examples)]
    if card.neighbours:
        near_ones = (f"{numbered(one.prototype, one.title)} at {one.distance:.2f}" for one in card.neighbours)
        lines.append(f"- near (in roots of T): {in_markdown(', '.join(near_ones))}")
    return "\n".join(lines)
