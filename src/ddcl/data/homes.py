"""The second place a set is looked for: its public home, through a package that can fetch it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from ddcl.data.catalogue import DataSet, Home
from ddcl.data.folder import missing


class Fetched(NamedTuple):
    """Rows as the home has them, with labels counted as the catalogue does."""

    content: list[Any]
    labels: list[int]


def fetch(known: DataSet, split: str) -> Fetched:
    """The rows of a split from the first home that has them.

    ``HF_HUB_OFFLINE`` is honoured: the hub's package then looks into its own cache alone, and so does scikit-learn's.
    """
    problems, last = [], None
    for home in known.homes:
        read: Callable[[DataSet, Home, str], Fetched]
        read = _from_hub if home.package == "datasets" else _from_scikit_learn
        try:
            return read(known, home, split)
        # whatever went wrong in another's package, the user needs to hear what else can be done
        except Exception as error:
            problems.append(f"{home.address}: {_first_line(error)}")
            last = error
    raise missing(known, split, "; ".join(problems)) from last


def _from_hub(known: DataSet, home: Home, split: str) -> Fetched:
    rows = import_module("datasets").load_dataset(home.address, split=home.splits.get(split, split))
    content = [one.strip() for one in rows[home.content]] if home.strip else list(rows[home.content])
    return Fetched(content, _counted(known, home, _label_names(rows, home)))


def _from_scikit_learn(known: DataSet, home: Home, split: str) -> Fetched:
    function = getattr(import_module("sklearn.datasets"), home.address)
    # remove=(): the messages as they were sent
    bunch = function(subset=split, remove=(), shuffle=False, download_if_missing=not _offline())
    labels = _counted(known, home, [bunch.target_names[label] for label in bunch.target])
    # its own order is a shuffle made when it was fetched; sorted by file, every copy has the same
    order = sorted(range(len(labels)), key=lambda i: (labels[i], str(bunch.filenames[i])))
    return Fetched([bunch.data[i] for i in order], [labels[i] for i in order])


def _label_names(rows: Any, home: Home) -> list[str]:
    """The name of each row's label, wherever the home keeps it."""
    known = getattr(rows.features[home.label], "names", None)
    if known is not None:
        return [known[label] for label in rows[home.label]]
    raise ValueError(f"its labels have no names (columns {', '.join(rows.features)})")


def _counted(known: DataSet, home: Home, names: Iterable[str]) -> list[int]:
    """Names to numbers in the catalogue's order."""
    number = {name: label for label, name in enumerate(known.classes)}
    found = [home.classes.get(name, name) for name in names]
    strange = next((name for name in found if name not in number), None)
    if strange is not None:
        raise ValueError(f"{strange!r} is none of the classes of {known.name}")
    return [number[name] for name in found]


def _offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def _first_line(error: Exception) -> str:
    lines: Sequence[str] = str(error).splitlines() or [type(error).__name__]
    return lines[0]
