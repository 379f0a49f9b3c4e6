"""Everything a page says of a run, gathered from its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddcl.explain.outputs import Example, PrototypeCard
from ddcl.fitting.fitted import Fitted
from ddcl.fitting.folder import ASSIGNMENTS, INPUTS
from ddcl.report.page.heat import HeatMap, label_map, mixture_map
from ddcl.report.page.hierarchy import Node, hierarchy
from ddcl.report.page.texts import OF_A_LABEL, ON_THE_MAP, shown
from ddcl.report.page.verdict import Compared, Verdict, comparisons, facts, verdict

MOST_CARDS = 200
"""Prototypes that get a card, the largest ones; the page stays readable, and a few megabytes at most."""


@dataclass(frozen=True)
class Drawn:
    """What was computed of a run to be drawn; None where it could not be."""

    map: Mapping[str, Any] | None
    phases: Mapping[str, Any] | None
    comparison: Mapping[str, Any] | None
    left_out: tuple[str, ...] = ()
    """What there was to compute, but no embeddings to compute it from."""


@dataclass(frozen=True)
class MappedRow:
    """A row on the map."""

    row: int
    prototype: int
    text: str | None
    label: str | None
    shares: tuple[tuple[int, float], ...]
    """The leading prototypes, largest share first."""


@dataclass(frozen=True)
class Contents:
    """A run, ready to be laid out."""

    name: str
    """Of the run's folder."""
    kind: str
    verdict: Verdict
    facts: Sequence[tuple[str, str]]
    comparisons: Sequence[Compared]
    metrics: Sequence[Mapping[str, Any]]
    num_prototypes: int
    titles: Sequence[str]
    cards: Sequence[PrototypeCard]
    """Of the largest prototypes, largest first."""
    sizes: Sequence[int]
    map: Mapping[str, Any] | None
    mapped: Sequence[MappedRow]
    heat: HeatMap
    phases: Mapping[str, Any] | None
    tree: Sequence[Node]
    """Empty without levels."""
    outliers: Sequence[Example]
    has_head: bool
    left_out: Sequence[str]
    """Parts that the page should have and has not."""


def gather(fitted: Fitted, drawn: Drawn) -> Contents:
    """Read all that a page shows; nothing is computed but sums."""
    folder, settings = fitted.folder, fitted.settings
    vocabulary = fitted.vocabulary()
    titles = [card.title for card in vocabulary.cards]
    table = folder.read_table(ASSIGNMENTS)
    prototype = table["prototype"].to_numpy()
    if "label" in table.column_names:
        heat = label_map(prototype, table["label"].to_pylist(), settings.prototypes)
    else:
        heat = mixture_map(_lists(table["prototypes"]), _lists(table["weights"]), titles)
    parents = fitted.config["result"].get("parents")
    largest = sorted(vocabulary.cards, key=lambda card: (-card.size, card.number))
    return Contents(
        name=folder.path.resolve().name,
        kind=settings.kind,
        verdict=verdict(fitted.config, settings, drawn.phases),
        facts=facts(fitted.config, settings),
        comparisons=comparisons(fitted.config, drawn.comparison),
        metrics=folder.metrics(),
        num_prototypes=settings.prototypes,
        titles=titles,
        cards=largest[:MOST_CARDS],
        sizes=[card.size for card in vocabulary.cards],
        map=drawn.map,
        mapped=[] if drawn.map is None else _mapped(fitted, table, drawn.map["rows"]),
        heat=heat,
        phases=drawn.phases,
        tree=hierarchy(parents, vocabulary.cards) if parents else [],
        outliers=vocabulary.outliers,
        has_head=fitted.classes is not None,
        left_out=drawn.left_out,
    )


def _mapped(fitted: Fitted, table: Any, rows: Sequence[int]) -> list[MappedRow]:
    some = table.take(list(rows)).to_pydict()
    texts: Sequence[str | None] = [None] * len(rows)
    if (fitted.folder.path / INPUTS).exists():
        texts = fitted.folder.inputs()["text"].take(list(rows)).to_pylist()
    labels = some.get("label") or [None] * len(rows)
    return [
        MappedRow(
            row=row,
            prototype=some["prototype"][place],
            text=None if (text := texts[place]) is None else shown(text, ON_THE_MAP),
            label=None if (label := labels[place]) is None else shown(label, OF_A_LABEL),
            shares=tuple(zip(some["prototypes"][place], some["weights"][place], strict=True)),
        )
        for place, row in enumerate(rows)
    ]


def _lists(column: Any) -> np.ndarray:
    """Lists of the same length as an array (N, n)."""
    flat: np.ndarray = column.combine_chunks().flatten().to_numpy()
    return flat.reshape(len(column), -1)
