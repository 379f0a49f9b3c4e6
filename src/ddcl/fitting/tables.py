"""What a user has, a table of texts or an array of embeddings, read into rows; every guess is said aloud."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union

import numpy as np

from ddcl.fitting.arrays import read_array
from ddcl.fitting.errors import BadInputError
from ddcl.fitting.formats import READERS, Columns, read_text_folder, sound

Kind = Literal["texts", "embeddings"]
GUESSED_FROM = 1000
"""Rows that a guess about columns is made from."""
ARRAYS = (".npy", ".npz")


@dataclass(frozen=True, eq=False)
class Table:
    """Rows to fit: texts, or embeddings that may lie on the disk still."""

    path: Path
    kind: Kind
    texts: list[str] | None
    embeddings: np.ndarray | None
    """(N, m), memory-mapped where it can be."""
    text_column: str | None
    """Of the texts, or the array of an .npz."""
    label_column: str | None
    labels: list[str | None] | None
    """None where a row has none."""
    ids: list[str] | None
    """Names of files, where the rows are files."""
    remarks: tuple[str, ...]
    """What was guessed, in sentences."""

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def _rows(self) -> Union[list[str], np.ndarray]:
        rows = self.texts if self.texts is not None else self.embeddings
        assert rows is not None, "a table holds texts or embeddings"
        return rows


def read_table(path: str | Path, *, text: str | None = None, labels: str | None = None) -> Table:
    """Read CSV, TSV, JSON lines, Parquet, a folder of .txt files, or embeddings in .npy or .npz.

    Args:
        path: of the file or folder; its ending tells the format.
        text: the column of texts (or the array of an .npz); None: the column of the longest strings.
        labels: the column (or array) of labels; None: there are none.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise BadInputError(f"{path}: there is no such file or folder")
    if path.is_dir():
        return _text_folder(path, text, labels)
    ending = path.suffix.lower()
    if ending in ARRAYS:
        return _embeddings(path, text, labels)
    if ending not in READERS:
        known = ", ".join([*READERS, *ARRAYS])
        raise BadInputError(f"{path}: its ending {ending!r} is not known; expected a folder or one of {known}")
    return _texts(path, READERS[ending](path), text, labels)


def digest_of(path: Path) -> str:
    """SHA-256 of a file's bytes, or of the names and bytes of a folder's .txt files."""
    digest = hashlib.sha256()
    for file in [path] if path.is_file() else sorted(path.rglob("*.txt")):
        if file != path:
            digest.update(f"{file.relative_to(path).as_posix()}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as opened:
            while block := opened.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()


def _texts(path: Path, columns: Columns, text: str | None, labels: str | None) -> Table:
    rows = len(next(iter(columns.values()), []))
    if not rows:
        raise BadInputError(f"{path}: it holds no rows; expected at least two")
    for option, name in (("--text", text), ("--labels", labels)):
        if name is not None and name not in columns:
            raise BadInputError(f"{path}: there is no column {name!r} for {option}; its columns are {_named(columns)}")
    remarks = []
    if text is None:
        text, why = _longest_strings(path, columns, labels)
        remarks.append(f"text column: {text!r} ({why})")
    if text == labels:
        raise BadInputError(f"{path}: the column {text!r} cannot be both the texts and the labels")
    if labels is None:
        others = [name for name in columns if name != text]
        remarks.append("label column: none given" + (f" (there are also {_named(others)})" if others else ""))
    texts = [sound("" if value is None or value != value else str(value)) for value in columns[text]]
    if all(not one.strip() for one in texts):
        raise BadInputError(f"{path}: the column {text!r} holds no text at all")
    if empty := sum(not one.strip() for one in texts):
        remarks.append(f"{empty} of {rows} rows have no text and are taken as empty texts")
    found = None if labels is None else _labels(path, labels, columns[labels], remarks)
    return Table(path, "texts", texts, None, text, labels, found, None, tuple(remarks))


def _text_folder(path: Path, text: str | None, labels: str | None) -> Table:
    if text is not None or labels is not None:
        raise BadInputError(f"{path}: a folder of text files has no columns, so --text and --labels mean nothing here")
    files = read_text_folder(path)
    if not files:
        raise BadInputError(f"{path}: the folder holds no .txt files")
    remarks = (f"{len(files)} text files, one row each, in the order of their names",)
    return Table(path, "texts", list(files.values()), None, None, None, None, list(files), remarks)


def _embeddings(path: Path, name: str | None, labels: str | None) -> Table:
    found = read_array(path, name, labels)
    remarks = list(found.remarks)
    named = None
    if found.labels is not None and labels is not None:
        named = _labels(path, labels, found.labels.tolist(), remarks)
    return Table(path, "embeddings", None, found.rows, found.name, labels, named, None, tuple(remarks))


def _longest_strings(path: Path, columns: Columns, labels: str | None) -> tuple[str, str]:
    lengths = {}
    for name, values in columns.items():
        strings = [value for value in values[:GUESSED_FROM] if isinstance(value, str)]
        if strings and name != labels:
            lengths[name] = sum(map(len, strings)) / len(strings)
    if not lengths:
        raise BadInputError(f"{path}: none of its columns ({_named(columns)}) holds strings to take for texts")
    return max(lengths, key=lambda name: lengths[name]), "the longest strings" if len(lengths) > 1 else "the only one"


def _labels(path: Path, name: str, values: Sequence[Any], remarks: list[str]) -> list[str | None]:
    # a number that is none is what packages write for a label that is missing
    labels = [None if value is None or value == "" or value != value else sound(str(value)) for value in values]
    counts = Counter(label for label in labels if label is not None)
    if len(counts) < 2:
        only = f"one class ({next(iter(counts))!r})" if counts else "no label"
        raise BadInputError(f"{path}: the column {name!r} holds {only}; a head needs at least two classes")
    remarks.append(f"label column: {name!r}, {len(counts)} classes")
    if missing := sum(label is None for label in labels):
        remarks.append(f"{missing} rows have no label; they shape the prototypes, not the head")
    return labels


def _named(names: Iterable[str] | Mapping[str, Any]) -> str:
    return ", ".join(repr(name) for name in names)
