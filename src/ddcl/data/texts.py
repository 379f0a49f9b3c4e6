"""Text sets with labels."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

FOLDER_VARIABLE = "DDCL_DATA"


class TextSet(NamedTuple):
    """Texts, a label for each, and the labels' names."""

    texts: list[str]
    labels: list[int]
    names: list[str]


def load_texts(name: str, split: str = "train") -> TextSet:
    """A set from the data folder: ``NAME/SPLIT.parquet`` with the columns ``text``, ``label`` and ``name``."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        raise FileNotFoundError(
            f"{name}: no data folder is known; set {FOLDER_VARIABLE} to one that holds {name}/{split}.parquet "
            "with the columns text, label and name"
        )
    path = Path(folder) / name / f"{split}.parquet"
    if not path.exists():
        raise FileNotFoundError(f"{name}: there is no {name}/{split}.parquet in the folder {FOLDER_VARIABLE} names")
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise ImportError("reading text sets needs pyarrow: pip install 'ddcl[text]'") from error
    table = parquet.read_table(path, columns=["text", "label", "name"])
    labels = table["label"].to_pylist()
    named = dict(zip(labels, table["name"].to_pylist(), strict=True))
    return TextSet(table["text"].to_pylist(), labels, [named[label] for label in sorted(named)])
