"""Text sets with labels."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ddcl.data.catalogue import SETS, DataSet
from ddcl.data.folder import check_split, find_files, missing
from ddcl.data.homes import fetch


class TextSet(NamedTuple):
    """Texts, a label for each, and the labels' names."""

    texts: list[str]
    labels: list[int]
    names: list[str]


def load_texts(name: str, split: str = "train") -> TextSet:
    """A text set by name: 20newsgroups, sst2, imdb, banking77, or one of your own.

    The data folder (``DDCL_DATA``) is looked into first: ``NAME/SPLIT.parquet`` with the columns ``text``, ``label``
    (from 0) and ``name``, which is all it takes for a set of your own. banking77 comes with this package. Another known
    set that is not there comes from its public home, where the package that fetches it is installed and the network can
    be reached.

    Args:
        name: of the set.
        split: "train" or "test".
    """
    known = SETS.get(name)
    if known is not None and known.kind == "texts":
        check_split(known, split)
        path = find_files(known, split)
        if path is None:
            rows = fetch(known, split)
            return TextSet(rows.content, rows.labels, list(known.classes))
        return _read(path[0], list(known.classes))
    if known is not None:
        raise ValueError(f"{name} is a set of {known.kind}, not of texts")
    own = DataSet(name, "texts", {split: 0}, classes=(), licence="", attribution="", homes=())
    path = find_files(own, split)
    if path is None:
        raise missing(own, split)
    return _read(path[0], [])


def _read(path: Path, classes: list[str]) -> TextSet:
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise ImportError("reading text sets needs pyarrow: pip install 'ddcl[text]'") from error
    table = parquet.read_table(path, columns=["text", "label", "name"])
    labels = table["label"].to_pylist()
    named = dict(zip(labels, table["name"].to_pylist(), strict=True))
    # a split may lack a class: the others keep their numbers
    count = max(len(classes), max(labels, default=-1) + 1)
    names = [named.get(label, classes[label] if label < len(classes) else str(label)) for label in range(count)]
    return TextSet(table["text"].to_pylist(), labels, names)
