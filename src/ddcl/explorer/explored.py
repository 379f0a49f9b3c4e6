"""A loaded run as the page asks for it: plain values, ready to travel as JSON."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ddcl.explain.outputs import PrototypeCard, Vocabulary
from ddcl.explorer.rows import RowTable
from ddcl.fitting import BadInputError, Fitted
from ddcl.fitting.batches import Rows
from ddcl.ops import squared_distances

LONGEST_NAME = 1000
"""Characters of a name that is given to a prototype."""
EXAMPLES, TYPICAL_TEXTS = 5, 8
SAMPLED = 2048
"""Rows that the means at other temperatures are of."""


class ExploredRun:
    """What the explorer knows of a finished run, read once and kept.

    Args:
        fitted: the run, loaded.
    """

    def __init__(self, fitted: Fitted) -> None:
        self.fitted = fitted
        self.rows = RowTable(fitted.folder)
        self._renaming = threading.Lock()

    @property
    def of_texts(self) -> bool:
        """Whether texts can be typed, or rows only be picked."""
        return self.fitted.settings.kind == "texts"

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """A card for each prototype, as they were when the explorer began."""
        return self.fitted.vocabulary(examples=TYPICAL_TEXTS)

    def warm(self) -> None:
        """Do once what is slow the first time: read the cards, load the encoder, read the rows."""
        _ = self.vocabulary
        if self.of_texts:
            self.explain_text("the first text is the slowest")

    def overview(self) -> dict[str, Any]:
        """The run, its figures, and what each prototype is."""
        folder, result = self.fitted.folder, self.fitted.config["result"]
        return {
            "name": folder.path.resolve().name,
            "settings": self.fitted.settings.as_json(),
            "result": {name: value for name, value in result.items() if name != "sizes"},
            "created": self.fitted.config["created"],
            "columns": self.rows.columns,
            "cards": [card.as_json() for card in self.vocabulary.cards],
            "titles": [_unnamed(card) for card in self.vocabulary.cards],
            "names": self.fitted.names,
        }

    @cached_property
    def map(self) -> dict[str, Any]:
        """Places of some rows and of the prototypes, in both layouts."""
        return {}

    @cached_property
    def phases(self) -> dict[str, Any]:
        """What becomes of the bank as it warms, and of the rows' mixtures of the prototypes that were fitted."""
        return {}

    def explain_text(self, text: str) -> dict[str, Any]:
        """How a text is read."""
        if not self.of_texts:
            raise BadInputError("this run was fitted to embeddings, so texts mean nothing to it; pick a row")
        return self._explained(self.fitted.embeddings(text))

    def explain_row(self, number: int) -> dict[str, Any]:
        """How a row of the data is read."""
        self._check_row(number)
        if self._embeddings is None:
            raise BadInputError("this run keeps no embeddings of its rows; type the text instead")
        return self._explained(self._embeddings.at(slice(number, number + 1)))

    def words(self, text: str) -> dict[str, Any]:
        """Which words carried the leading prototype of a text."""
        (found,) = self.fitted.explain(text, examples=0, shares=1, words=True)
        return {"prototype": found.shares[0].prototype, "words": [word.as_json() for word in found.words]}

    def row(self, number: int) -> dict[str, Any]:
        """All that is known of a row."""
        self._check_row(number)
        return self.rows.row(number)

    def rename(self, prototype: int, name: str) -> list[str | None]:
        """Name a prototype, with an empty name take its name away; all names as they are then."""
        plain = " ".join(name.split())
        if len(plain) > LONGEST_NAME:
            raise BadInputError(f"name: got {len(plain)} characters, expected at most {LONGEST_NAME}")
        with self._renaming:  # it reads all names and writes them back
            self.fitted.rename(prototype, plain or None)
            return self.fitted.names

    def _explained(self, z: Tensor) -> dict[str, Any]:
        z = z.to(self.fitted.device)
        (found,) = self.fitted.explain(z, examples=EXAMPLES, words=False)
        distances = squared_distances(z.double(), self.fitted.prototypes.double())[0]
        # from which the page has the mixture at any temperature, without asking again
        return found.as_json() | {"squared_distances": distances.tolist()}

    def _check_row(self, number: int) -> None:
        if not 0 <= number < len(self.rows):
            raise BadInputError(f"row: got {number}, expected a number from 0 to {len(self.rows) - 1}")

    @cached_property
    def _embeddings(self) -> Rows | None:
        try:
            return self.fitted.folder.rows()
        except BadInputError:
            return None
