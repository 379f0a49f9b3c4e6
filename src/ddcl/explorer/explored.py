"""A loaded run as the page asks for it: plain values, ready to travel as JSON."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ddcl.explain.cards import titles
from ddcl.explain.occlusion import Score
from ddcl.explorer.landscape import Landscape
from ddcl.explorer.rows import RowTable, clipped, short_label
from ddcl.explorer.turns import GivenUpError, StillWanted
from ddcl.fitting import BadInputError, Fitted
from ddcl.fitting.charts import map_of, phases_of
from ddcl.ops import squared_distances

LONGEST_NAME = 1000
"""Characters of a name that is given to a prototype."""
EXAMPLES, TYPICAL_TEXTS = 5, 8
PIECE = 8
"""Variants of a text that are read before asking whether the answer is still wanted."""
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
    def cards(self) -> list[dict[str, Any]]:
        """A card for each prototype; names and titles are told apart from them, as they change."""
        found = [card.as_json() for card in self.fitted.vocabulary(examples=TYPICAL_TEXTS, outliers=0).cards]
        return [
            card | {"label": short_label(card["label"]), "examples": [clipped(one) for one in card["examples"]]}
            for card in found
        ]

    def warm(self) -> None:
        """Do once what is slow the first time: read the cards, draw the map, load the encoder, read the rows."""
        _ = self.cards, self.map, self.phases
        if self.of_texts:
            self.explain_text("the first text is the slowest")
        elif self.fitted.explainer.rows is not None:
            self.explain_row(0)

    def overview(self) -> dict[str, Any]:
        """The run, its figures, and what each prototype is."""
        folder, result = self.fitted.folder, self.fitted.config["result"]
        return {
            "name": folder.path.resolve().name,
            "settings": self.fitted.settings.as_json(),
            "result": {name: value for name, value in result.items() if name != "sizes"},
            "columns": self.rows.columns,
            "cards": self.cards,
            "titles": titles([None] * len(self.cards), self.fitted.explainer.terms),
            "names": self.fitted.names,
        }

    @cached_property
    def map(self) -> dict[str, Any] | None:
        """Places of some rows and of the prototypes; None if the rows cannot be had any more."""
        if self._landscape is None:
            return None
        return self._landscape.drawn(self.rows.table["prototype"].to_numpy())

    @cached_property
    def phases(self) -> dict[str, Any] | None:
        """What becomes of the bank as it warms, and of the rows' mixtures of the prototypes that were fitted."""
        rows = self.fitted.explainer.rows
        if self._landscape is None or rows is None:
            return None
        return self._landscape.warmed(rows.sample(SAMPLED, self.fitted.settings.seed), self.fitted.prototypes.cpu())

    @cached_property
    def _landscape(self) -> Landscape | None:
        folder, rows = self.fitted.folder, self.fitted.explainer.rows
        if rows is None and folder.map() is None:
            return None
        return Landscape(map_of(folder, rows), folder.phases() if rows is None else phases_of(folder, rows))

    def explain_text(self, text: str) -> dict[str, Any]:
        """How a text is read."""
        if not self.of_texts:
            raise BadInputError("this run was fitted to embeddings, so texts mean nothing to it; pick a row")
        return self._explained(self.fitted.embeddings(text))

    def explain_row(self, number: int) -> dict[str, Any]:
        """How a row of the data is read."""
        self._check_row(number)
        rows = self.fitted.explainer.rows
        if rows is None:
            raise BadInputError("the embeddings of this run are no longer there, so its rows cannot be read again")
        return self._explained(rows.at(slice(number, number + 1)), itself=[number])

    def words(self, text: str, prototype: int, wanted: StillWanted) -> dict[str, Any]:
        """Which words of a text speak for a prototype, and which against it."""
        if not prototype < self.fitted.settings.prototypes:
            known = self.fitted.settings.prototypes - 1
            raise BadInputError(f"prototype: got {prototype}, expected a number from 0 to {known}")
        words = self.fitted.explainer.words(text, prototype, lambda score: _in_pieces(score, wanted))
        return {"prototype": prototype, "words": [word.as_json() for word in words]}

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

    def _explained(self, z: Tensor, itself: Sequence[int] | None = None) -> dict[str, Any]:
        z = z.to(self.fitted.device)
        (found,) = self.fitted.explainer.explain(z, examples=EXAMPLES, shares=1, words=False, itself=itself)
        distances = squared_distances(z.cpu().double(), self.fitted.prototypes.cpu().double())[0]
        said = found.as_json()
        # the page has the mixture at any temperature from the distances, without asking again
        return said | {
            "predicted": short_label(said["predicted"]),
            "examples": [clipped(one) for one in said["examples"]],
            "squared_distances": distances.tolist(),
        }

    def _check_row(self, number: int) -> None:
        if not 0 <= number < len(self.rows):
            raise BadInputError(f"row: got {number}, expected a number from 0 to {len(self.rows) - 1}")


def _in_pieces(score: Score, wanted: StillWanted) -> Score:
    """The same score, given up between two pieces if nobody waits for it any more."""

    def scored(texts: Sequence[str]) -> Tensor:
        found = []
        for start in range(0, len(texts), PIECE):
            if not wanted():
                raise GivenUpError
            found.append(score(texts[start : start + PIECE]))
        return torch.cat(found)

    return scored
