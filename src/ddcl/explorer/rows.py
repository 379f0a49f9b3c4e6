"""The rows of a run: searched, filtered, sorted and paged by pyarrow, never row by row in Python."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from ddcl.fitting import RunFolder
from ddcl.fitting.folder import ASSIGNMENTS, INPUTS

SHOWN_CHARACTERS = 400
"""Of a text in a list; the whole text is given with its row alone."""
LABEL_CHARACTERS = 60
"""Of a label, wherever it is shown."""
LARGEST_PAGE = 200
KEPT_ORDERS = 4
"""Answers to the latest questions, kept so that paging through one sorts only once: 8 bytes for each row found."""

Sort = Literal["row", "confidence", "entropy", "prototype"]


@dataclass(frozen=True)
class Question:
    """Which rows, in what order; everything that is None or empty leaves all rows in."""

    search: str = ""
    """Somewhere in the text or the id, in whatever case."""
    prototype: int | None = None
    label: str | None = None
    held_out: bool | None = None
    wrong: bool = False
    """Only rows whose label is not what the head says."""
    least_confidence: float | None = None
    most_confidence: float | None = None
    least_entropy: float | None = None
    most_entropy: float | None = None
    sort: Sort = "row"
    descending: bool = False


class RowTable:
    """What is known of every row that was fitted, in columns that are held once.

    Args:
        folder: a finished run.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.table = folder.read_table(ASSIGNMENTS)
        if (folder.path / INPUTS).exists():
            self.table = self.table.append_column("text", folder.inputs()["text"])
        self._order = lru_cache(maxsize=KEPT_ORDERS)(self._found)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def columns(self) -> list[str]:
        """Names of what is known: with texts ``text``, with labels ``label``, ``predicted`` and ``held_out``."""
        return list(self.table.column_names)

    def page(self, question: Question, offset: int, limit: int) -> dict[str, Any]:
        """Some of the rows asked for, with how many there are in all."""
        order = self._order(question)
        found = self.table.take(order.slice(offset, min(limit, LARGEST_PAGE)))
        return {"total": len(order), "offset": offset, "rows": [clipped(row) for row in found.to_pylist()]}

    def row(self, number: int) -> dict[str, Any]:
        """All of one row."""
        found: dict[str, Any] = self.table.slice(number, 1).to_pylist()[0]
        return found

    def _found(self, question: Question) -> Any:
        """Numbers of the rows asked for, in order."""
        import pyarrow.compute as pc

        wanted = self._wanted(question)
        narrow = self.table.select(["row", *({question.sort} - {"row"})])
        narrow = narrow if wanted is None else narrow.filter(wanted)
        keys = [(question.sort, "descending" if question.descending else "ascending")]
        if question.sort == "row" and not question.descending:
            return narrow["row"].combine_chunks()
        keys += [] if question.sort == "row" else [("row", "ascending")]  # so that pages do not overlap
        return narrow["row"].take(pc.sort_indices(narrow, keys)).combine_chunks()

    def _wanted(self, question: Question) -> Any:
        """A column of true and false; None for all rows."""
        import pyarrow.compute as pc

        table, parts = self.table, []
        if question.search:
            places = [name for name in ("text", "id") if name in table.column_names]
            hits = [pc.match_substring(table[name], question.search, ignore_case=True) for name in places]
            parts.append(hits[0] if len(hits) == 1 else pc.or_kleene(*hits))
        if question.prototype is not None:
            parts.append(pc.equal(table["prototype"], question.prototype))
        for name, least, most in (
            ("confidence", question.least_confidence, question.most_confidence),
            ("entropy", question.least_entropy, question.most_entropy),
        ):
            parts += [] if least is None else [pc.greater_equal(table[name], least)]
            parts += [] if most is None else [pc.less_equal(table[name], most)]
        if "label" in table.column_names:
            parts += [] if question.label is None else [pc.equal(table["label"], question.label)]
            parts += [] if question.held_out is None else [pc.equal(table["held_out"], question.held_out)]
            parts += [pc.not_equal(table["label"], table["predicted"])] if question.wrong else []
        whole = None
        for part in parts:
            known = pc.fill_null(part, False)
            whole = known if whole is None else pc.and_(whole, known)
        return whole


def clipped(row: dict[str, Any]) -> dict[str, Any]:
    """A row for a list: its text no longer than is shown, with how many ``characters`` it has, and so its labels.

    Labels that are cut may look alike, so whether the head read the row otherwise is said as ``wrong``.
    """
    found = row | {name: short_label(row[name]) for name in ("label", "predicted") if name in row}
    if "predicted" in row:
        found["wrong"] = row["label"] is not None and row["label"] != row["predicted"]
    text = row.get("text")
    if text is None or len(text) <= SHOWN_CHARACTERS:
        return found
    return found | {"text": text[:SHOWN_CHARACTERS], "characters": len(text)}


def short_label(label: str | None) -> str | None:
    """A label no longer than is shown."""
    return label if label is None or len(label) <= LABEL_CHARACTERS else f"{label[:LABEL_CHARACTERS]}…"
