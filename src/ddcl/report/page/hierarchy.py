"""Prototypes of prototypes, as a tree to open and close."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ddcl.explain.outputs import PrototypeCard

TITLE_TERMS = 4


class Node(NamedTuple):
    """A prototype of some level."""

    level: int
    number: int
    title: str
    size: int
    """Rows of all finest prototypes below it."""
    below: tuple[Node, ...]


def hierarchy(parents: Sequence[Sequence[int]], cards: Sequence[PrototypeCard]) -> list[Node]:
    """The coarsest prototypes, each with those that belong to it; an upper one is called by its leaves' terms."""
    nodes = {card.number: Node(0, card.number, card.title, card.size, ()) for card in cards}
    leaves = {card.number: [card] for card in cards}
    for level, of in enumerate(parents, start=1):
        below: dict[int, list[int]] = {}
        for number, parent in enumerate(of):
            below.setdefault(parent, []).append(number)
        # a prototype that none belongs to has nothing to show, nor have those only such belong to
        held = {parent: [number for number in own if number in nodes] for parent, own in below.items()}
        leaves = {parent: [card for number in own for card in leaves[number]] for parent, own in held.items() if own}
        nodes = {
            parent: Node(
                level,
                parent,
                _called(leaves[parent]) or f"prototype {parent} of level {level}",
                sum(nodes[number].size for number in own),
                tuple(sorted((nodes[number] for number in own), key=lambda node: -node.size)),
            )
            for parent, own in held.items()
            if own
        }
    return sorted(nodes.values(), key=lambda node: -node.size)


def _called(cards: Sequence[PrototypeCard]) -> str:
    """The terms that weigh most over all rows of these cards."""
    weights: dict[str, float] = {}
    for card in cards:
        for term in card.terms:
            weights[term.term] = weights.get(term.term, 0.0) + term.weight * card.size
    return ", ".join(sorted(weights, key=lambda term: (-weights[term], term))[:TITLE_TERMS])
