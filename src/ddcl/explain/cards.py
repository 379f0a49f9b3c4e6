"""The vocabulary of a bank: a card for each prototype, made from what is known of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ddcl.explain.outputs import Example, Neighbour, PrototypeCard, Term, Vocabulary
from ddcl.shapes import Float

TITLE_TERMS = 3
"""Terms that stand for a prototype nobody has named."""
_SEARCHED = 50
"""Rows looked at for each example that is wanted, so that one text said over and over is shown once."""


@dataclass(frozen=True, eq=False)
class ReadRows:
    """What is known of the rows that were fitted, in their order."""

    prototype: np.ndarray
    """(N,), the nearest."""
    confidence: np.ndarray
    """(N,), its share."""
    entropy: np.ndarray
    """(N,), of the mixture, in nats."""
    texts: Sequence[str] | None = None
    ids: Sequence[str | None] | None = None
    labels: Sequence[str | None] | None = None

    def __len__(self) -> int:
        return len(self.prototype)

    def example(self, row: int, similarity: float | None = None) -> Example:
        """One of them."""
        return Example(
            row=row,
            id=None if self.ids is None else self.ids[row],
            text=None if self.texts is None else self.texts[row],
            label=None if self.labels is None else self.labels[row],
            prototype=int(self.prototype[row]),
            confidence=float(self.confidence[row]),
            entropy=float(self.entropy[row]),
            similarity=similarity,
        )

    def examples(self, order: np.ndarray, count: int) -> tuple[Example, ...]:
        """The first rows of an order, each text once."""
        found: list[Example] = []
        seen: set[str] = set()
        for row in order[: count * _SEARCHED].tolist():
            if len(found) == count:
                break
            one = self.example(row)
            if one.text is None or one.text not in seen:
                found.append(one)
                seen |= set() if one.text is None else {one.text}
        return tuple(found)


def titles(names: Sequence[str | None], terms: Sequence[Sequence[Term]]) -> list[str]:
    """What to call each prototype: its name, or its leading terms, or its number."""
    return [
        name or ", ".join(term.term for term in leading[:TITLE_TERMS]) or f"prototype {number}"
        for number, (name, leading) in enumerate(zip(names, terms, strict=True))
    ]


def neighbouring(
    prototypes: Float[Tensor, "K m"], temperature: float, called: Sequence[str], count: int
) -> list[tuple[Neighbour, ...]]:
    """The nearest other prototypes of each, with their distance in units of the root of T."""
    z = prototypes.cpu().double()
    distance = torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist") / temperature**0.5
    distance.fill_diagonal_(float("inf"))
    near = distance.topk(min(count, len(z) - 1), largest=False)
    return [
        tuple(Neighbour(k, called[k], far) for k, far in zip(others, apart, strict=True))
        for others, apart in zip(near.indices.tolist(), near.values.tolist(), strict=True)
    ]


def purity(labels: Sequence[str | None], rows: np.ndarray) -> tuple[str | None, float | None]:
    """The most frequent label of some rows, and how large a part of the labelled ones it is; None if none is."""
    counts: dict[str, int] = {}
    for row in rows.tolist():
        label = labels[row]
        if label is not None:
            counts[label] = counts.get(label, 0) + 1
    if not counts:
        return None, None
    best = min(counts, key=lambda label: (-counts[label], label))
    return best, counts[best] / sum(counts.values())


def vocabulary(
    rows: ReadRows,
    typical: np.ndarray,
    prototypes: Float[Tensor, "K m"],
    temperature: float,
    *,
    names: Sequence[str | None],
    terms: Sequence[Sequence[Term]],
    examples: int,
    outliers: int,
    neighbours: int,
    taught: bool = False,
) -> Vocabulary:
    """A card for each prototype, and the rows that are the most undecided.

    Args:
        rows: what is known of the rows.
        typical: (N,), the smaller the more typical a row is of its prototype: its distance, say.
        prototypes: the bank.
        temperature: T, at which it is read.
        names: what people have called each, or None.
        terms: of each prototype, largest weight first.
        examples: rows on each card.
        outliers: undecided rows.
        neighbours: on each card.
        taught: whether the bank has learned from the labels.
    """
    called = titles(names, terms)
    near = neighbouring(prototypes, temperature, called, neighbours)
    order = np.lexsort((np.arange(len(rows)), typical, rows.prototype))
    sizes = np.bincount(rows.prototype, minlength=len(prototypes))
    ends = np.cumsum(sizes)
    cards = []
    for number, (size, end) in enumerate(zip(sizes.tolist(), ends.tolist(), strict=True)):
        own = order[end - size : end]
        label, pure = (None, None) if rows.labels is None else purity(rows.labels, own)
        cards.append(
            PrototypeCard(
                number=number,
                name=names[number],
                title=called[number],
                size=size,
                coverage=size / len(rows),
                confidence=float(rows.confidence[own].mean()) if size else None,
                terms=tuple(terms[number]),
                examples=rows.examples(own, examples),
                label=label,
                purity=pure,
                neighbours=near[number],
                taught=taught and label is not None,
            )
        )
    undecided = np.argsort(-rows.entropy, kind="stable")
    return Vocabulary(tuple(cards), rows.examples(undecided, outliers), len(rows))
