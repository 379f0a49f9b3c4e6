"""What an explanation says, as plain data that prints, travels as JSON and is drawn by others."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


class _Plain:
    """Something that is nothing but its fields."""

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON has them: dicts, lists, strings, numbers and None."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]


@dataclass(frozen=True)
class Example(_Plain):
    """A row of the data that was fitted."""

    row: int
    id: str | None
    text: str | None
    """None for embeddings without texts."""
    label: str | None
    prototype: int
    """The nearest, which has the largest share."""
    confidence: float
    """Its share."""
    entropy: float
    """Of the mixture, in nats."""
    similarity: float | None = None
    """Cosine with what is explained; None where it is not a neighbour of something."""


@dataclass(frozen=True)
class Term(_Plain):
    """A word or pair of words that tells a prototype's texts from the others'."""

    term: str
    weight: float
    """Class-based tf-idf."""


@dataclass(frozen=True)
class Neighbour(_Plain):
    """Another prototype nearby."""

    prototype: int
    title: str
    distance: float
    """Between the two prototypes, in units of the root of T: below 1 they are hardly told apart."""


@dataclass(frozen=True)
class PrototypeCard(_Plain):
    """All there is to say about a prototype."""

    number: int
    name: str | None
    """What a person has called it."""
    title: str
    """The name, or else the leading terms, or else "prototype 3"."""
    size: int
    """Rows it is the nearest prototype of."""
    coverage: float
    """The same as a share of all rows."""
    confidence: float | None
    """Its mean share in those rows; None if there are none."""
    terms: tuple[Term, ...]
    examples: tuple[Example, ...]
    """Rows nearest to it, most typical first."""
    label: str | None
    """The most frequent among its labelled rows."""
    purity: float | None
    """How large a part of its labelled rows that is."""
    neighbours: tuple[Neighbour, ...]
    taught: bool = False
    """Whether the bank has learned from these labels: its purity is then no measure of what it finds by itself."""


@dataclass(frozen=True)
class Vocabulary(_Plain):
    """The bank as a whole: a card for each prototype in the order of their numbers, and the most undecided rows."""

    cards: tuple[PrototypeCard, ...]
    outliers: tuple[Example, ...]
    """Rows whose mixture is the most undecided, largest entropy first."""
    rows: int


@dataclass(frozen=True)
class Share(_Plain):
    """A part of a mixture."""

    prototype: int
    title: str
    share: float


@dataclass(frozen=True)
class Word(_Plain):
    """A word of the explained text, and how far it carried the answer."""

    word: str
    start: int
    end: int
    """Where in the text it stands: ``text[start:end]``."""
    weight: float
    """Positive where the word speaks for the explained prototype, negative where against it."""


@dataclass(frozen=True)
class Explanation(_Plain):
    """Why a text or an embedding is read as it is."""

    text: str | None
    shares: tuple[Share, ...]
    """The leading prototypes, largest share first."""
    rest: float
    """What all other prototypes have together."""
    confidence: float
    entropy: float
    predicted: str | None
    """The head's class; None without a head."""
    probability: float | None
    examples: tuple[Example, ...]
    """Rows of the data that was fitted nearest to it, with ``similarity``."""
    words: tuple[Word, ...]
    """In the order of the text; empty for embeddings."""
