"""From a finished run to explanations: of inputs, and of the bank as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ddcl.data.encoding import Encoding
from ddcl.explain.cards import ReadRows, titles, vocabulary
from ddcl.explain.nearest import Nearest, distances_to_own, nearest_rows
from ddcl.explain.occlusion import FEW_WORDS, Score, state_weights, word_weights
from ddcl.explain.outputs import Explanation, Share, Term, Vocabulary, Word
from ddcl.explain.terms import characteristic_terms
from ddcl.explain.words import word_spans
from ddcl.fitting.batches import Rows
from ddcl.fitting.errors import BadInputError
from ddcl.fitting.folder import ASSIGNMENTS, INPUTS
from ddcl.fitting.mixtures import class_logits
from ddcl.fitting.training import mixture
from ddcl.nn import PrototypeReadout
from ddcl.shapes import Float

if TYPE_CHECKING:
    from ddcl.fitting.fitted import Fitted, Inputs

IN_MEMORY = 2**29
"""Bytes of rows that are kept in memory to be searched; more are read from the disk each time."""
KEPT_TERMS = 20
"""Terms of each prototype that are looked for; asking for fewer costs nothing more."""


class Explainer:
    """What :class:`ddcl.fitting.Fitted` explains by; everything that is read or computed once is kept.

    Args:
        fitted: the run.
    """

    def __init__(self, fitted: Fitted) -> None:
        self.fitted = fitted

    @cached_property
    def read(self) -> ReadRows:
        """What the folder says of the rows; texts where they were kept."""
        folder = self.fitted.folder
        table = folder.read_table(ASSIGNMENTS)
        texts = folder.read_table(INPUTS)["text"] if (folder.path / INPUTS).exists() else None
        named = table["id"].null_count < len(table)
        return ReadRows(
            prototype=table["prototype"].to_numpy(),
            confidence=table["confidence"].to_numpy(),
            entropy=table["entropy"].to_numpy(),
            texts=None if texts is None else _Column(texts),
            ids=_Column(table["id"]) if named else None,
            labels=table["label"].to_pylist() if "label" in table.column_names else None,
        )

    @cached_property
    def rows(self) -> Rows | None:
        """The embeddings that were fitted; None if they were too many to keep or are no longer where they were."""
        try:
            return self.fitted.folder.rows()
        except BadInputError:
            return None

    @cached_property
    def terms(self) -> list[tuple[Term, ...]]:
        """The leading terms of each prototype; empty without texts."""
        number = self.fitted.settings.prototypes
        if self.read.texts is None:
            return [()] * number
        return characteristic_terms(self.read.texts, self.read.prototype, number, KEPT_TERMS)

    @property
    def titles(self) -> list[str]:
        """What to call each prototype, by the names it has now."""
        return titles(self.fitted.names, self.terms)

    def vocabulary(self, *, terms: int, examples: int, outliers: int, neighbours: int) -> Vocabulary:
        """See :meth:`ddcl.fitting.Fitted.vocabulary`."""
        fitted = self.fitted
        return vocabulary(
            self.read,
            self._untypical,
            fitted.prototypes,
            fitted.temperature,
            names=fitted.names,
            terms=[one[:terms] for one in self.terms],
            examples=examples,
            outliers=outliers,
            neighbours=neighbours,
            taught=bool(fitted.config["result"].get("learned_from_labels")),
        )

    def explain(
        self, inputs: Inputs, *, examples: int, shares: int, words: bool, itself: Sequence[int] | None = None
    ) -> list[Explanation]:
        """See :meth:`ddcl.fitting.Fitted.explain`.

        Where the inputs are rows of the run, ``itself`` are their numbers: no row is an example of itself.
        """
        texts = _texts(inputs)
        z = self.fitted.embeddings(inputs)
        mixtures = self.fitted.mixture(z)
        classes = self._classes(mixtures)
        near = self._nearest(z, examples, itself)
        called = self.titles
        return [
            self._explanation(
                None if texts is None else texts[number],
                shared,
                classes[number],
                near(number),
                called,
                shares=shares,
                words=words,
            )
            for number, shared in enumerate(mixtures.cpu())
        ]

    def explain_rows(self, rows: Sequence[int], *, examples: int, shares: int, words: bool) -> list[Explanation]:
        """Explain rows of the data that was fitted; by their texts where these were kept, otherwise as embeddings."""
        known = len(self.read)
        for row in rows:
            if not 0 <= row < known:
                raise BadInputError(f"rows: got {row}, expected numbers from 0 to {known - 1}")
        inputs: Inputs
        if self.read.texts is not None:
            inputs = [self.read.texts[row] for row in rows]
        elif self.rows is not None:
            inputs = self.rows.at(np.array(rows, dtype=np.int64))
        else:
            raise BadInputError(f"{self.fitted.folder.path} has neither its rows nor its texts any more")
        return self.explain(inputs, examples=examples, shares=shares, words=words, itself=rows)

    def _explanation(
        self,
        text: str | None,
        shared: Float[Tensor, " K"],
        decided: tuple[str | None, float | None],
        near: list[tuple[int, float]],
        called: Sequence[str],
        *,
        shares: int,
        words: bool,
    ) -> Explanation:
        leading = shared.topk(min(shares, len(shared)))
        best = int(shared.argmax())
        return Explanation(
            text=text,
            shares=tuple(
                Share(k, called[k], share)
                for k, share in zip(leading.indices.tolist(), leading.values.tolist(), strict=True)
            ),
            rest=max(0.0, 1.0 - float(leading.values.sum())) if len(leading.values) < len(shared) else 0.0,
            confidence=float(shared[best]),
            entropy=float(torch.special.entr(shared).sum()),
            predicted=decided[0],
            probability=decided[1],
            examples=tuple(self.read.example(row, cosine) for row, cosine in near),
            words=self.words(text, best) if words and text is not None else (),
        )

    def words(
        self, text: str, prototype: int, around: Callable[[Score], Score] = lambda score: score
    ) -> tuple[Word, ...]:
        """How far each word of a text carried the share of a prototype; only what the encoder reads of it counts.

        Args:
            text: to explain.
            prototype: whose share it is.
            around: what is done to the score of texts before it is asked, as to stop half done; in one pass it is not.
        """
        places = self._token_places(text)
        until = len(text) if places is None else max((end for _, end in places), default=0)
        if places is None or len(word_spans(text, until)) <= FEW_WORDS:
            score = around(lambda texts: self.fitted.mixture(list(texts))[:, prototype].cpu())
            return word_weights(text, score, until=until)
        return state_weights(text, self._states(text), places, lambda means: self._share_in(means, prototype))

    def _share_in(self, means: Float[Tensor, "n m"], prototype: int) -> Float[Tensor, " n"]:
        return mixture(self.fitted.model, F.normalize(means, dim=-1))[:, prototype].cpu()

    def _token_places(self, text: str) -> list[tuple[int, int]] | None:
        """Where the tokens that the encoder reads stand in a text; None from tokenizers that cannot tell."""
        tokenizer = self.fitted.encoder.tokenizer
        if not tokenizer.is_fast:
            return None
        length = self.fitted.settings.max_tokens
        found: list[tuple[int, int]] = tokenizer(text, truncation=True, max_length=length, return_offsets_mapping=True)[
            "offset_mapping"
        ]
        return found

    def _states(self, text: str) -> Float[Tensor, "tokens m"]:
        length = self.fitted.settings.max_tokens
        assert length is not None, "a run with an encoder has a length"
        (found,) = Encoding(self.fitted.encoder, length, 1, self.fitted.device, "float32").batches([text])
        return found.states[0]

    def _classes(self, mixtures: Float[Tensor, "N K"]) -> list[tuple[str | None, float | None]]:
        """The head's class for each mixture and its probability; without a head nothing."""
        model, classes = self.fitted.model, self.fitted.classes
        if not isinstance(model, PrototypeReadout) or classes is None:
            return [(None, None)] * len(mixtures)
        best = class_logits(model, mixtures).softmax(-1).max(-1)
        return [(classes[k], p) for k, p in zip(best.indices.tolist(), best.values.tolist(), strict=True)]

    @cached_property
    def _untypical(self) -> np.ndarray:
        """Distance to the own prototype; without the rows, how small its share is."""
        if self.rows is None:
            return 1.0 - self.read.confidence
        own = torch.from_numpy(self.read.prototype.astype(np.int64))
        found: np.ndarray = distances_to_own(self.rows.in_order(), self.fitted.prototypes.cpu(), own).numpy()
        return found

    @cached_property
    def _kept_directions(self) -> Tensor | None:
        """All rows of length 1, if they are few enough to stay in memory."""
        rows = self.rows
        if rows is None or len(rows) * rows.dim * 4 > IN_MEMORY:
            return None
        return F.normalize(rows.at(slice(None)), dim=-1).to(self.fitted.device)

    def _directions(self) -> Iterable[Tensor]:
        if self._kept_directions is not None:
            return [self._kept_directions]
        return (F.normalize(part, dim=-1) for part in self.rows.in_order()) if self.rows is not None else []

    def _nearest(self, z: Tensor, count: int, itself: Sequence[int] | None) -> Callable[[int], list[tuple[int, float]]]:
        """For the number of an input, its nearest rows and their cosines."""
        wanted = count if itself is None else count + 1
        found: Nearest = nearest_rows(z, self._directions() if count else [], wanted)
        rows, cosine = found.rows.tolist(), found.cosine.tolist()

        def of(number: int) -> list[tuple[int, float]]:
            own = None if itself is None else itself[number]
            near = zip(rows[number], cosine[number], strict=True)
            return [(row, similarity) for row, similarity in near if row != own][:count]

        return of


class _Column(Sequence[Any]):
    """A column of a table as a sequence, of which only what is asked for becomes a Python object."""

    def __init__(self, column: Any) -> None:
        self.column = column.combine_chunks()

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, row: Any) -> Any:
        return self.column[row].as_py()


def _texts(inputs: Inputs) -> list[str] | None:
    """The inputs, if they are texts."""
    if isinstance(inputs, str):
        return [inputs]
    if isinstance(inputs, Tensor) or (isinstance(inputs, np.ndarray) and inputs.dtype.kind not in "UO"):
        return None
    return [str(one) for one in inputs]
