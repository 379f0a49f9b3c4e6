"""The user's data folder, which sets are in it, and what is said when one is not."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from ddcl.data.catalogue import SETS, DataSet

FOLDER_VARIABLE = "DDCL_DATA"
SHIPPED = Path(__file__).parent
"""Where the sets lie that come with this package."""


class MissingDataError(FileNotFoundError):
    """A set is neither in the data folder nor to be had from its public home; the message says what to do."""


class Available(NamedTuple):
    """A set and where it is."""

    name: str
    where: str | None
    """A folder or the package that ships it; None: it would have to be fetched."""
    splits: tuple[str, ...]
    """Those that are there."""


def data_folder() -> Path | None:
    """The folder that ``DDCL_DATA`` names, if it names one."""
    folder = os.environ.get(FOLDER_VARIABLE)
    return Path(folder).expanduser() if folder else None


def find_files(known: DataSet, split: str) -> list[Path] | None:
    """The files of a split in the data folder, or else in this package; None unless all are there."""
    found = _files_in(data_folder(), known, split)
    return _files_in(SHIPPED, known, split) if found is None and known.shipped else found


def _files_in(folder: Path | None, known: DataSet, split: str) -> list[Path] | None:
    if folder is None:
        return None
    paths = [folder / name for name in known.files(split)]
    return paths if all(path.is_file() for path in paths) else None


def missing(known: DataSet, split: str, problem: str = "") -> MissingDataError:
    """One sentence: what is missing, where it was looked for, and how to get it."""
    files = known.files(split)
    layout = files[0] if len(files) == 1 else f"{files[0]} to {files[-1]}"
    folder = data_folder()
    looked = f"is not in {folder}" if folder is not None else f"cannot be looked for, as {FOLDER_VARIABLE} is not set"
    reason = f", nor could it be fetched ({problem})" if problem else ""
    ways = [f"set {FOLDER_VARIABLE} to a folder that holds {layout} ({_columns(known)})"]
    if known.homes:
        ways.append(f"run `pip install {known.homes[0].package}` and have it fetched with a network connection")
    return MissingDataError(f"the {split} split of {known.name} {looked}{reason}: {', or '.join(ways)}")


def unknown(name: str, kind: str) -> ValueError:
    """For a name that is no set of this kind."""
    names = ", ".join(one.name for one in SETS.values() if one.kind == kind)
    return ValueError(f"there is no set of {kind} called {name!r}; known: {names}")


def check_split(known: DataSet, split: str) -> None:
    """Refuse a split the set does not have."""
    if split not in known.splits:
        raise ValueError(f"{known.name} has no split {split!r}; it has {', '.join(known.splits)}")


def available() -> list[Available]:
    """Every set known by name and every text set of the user's own, with where it is; fetches nothing."""
    found = []
    for known in SETS.values():
        splits = tuple(split for split in known.splits if find_files(known, split) is not None)
        where = str(data_folder()) if splits else None
        if known.shipped and all(_files_in(data_folder(), known, split) is None for split in splits):
            where = "ddcl"
        if known.name == "digits" and not splits and find_spec("sklearn") is not None:
            where, splits = "scikit-learn", known.splits
        found.append(Available(known.name, where, splits))
    folder = data_folder()
    if folder is not None and folder.is_dir():
        for own in sorted(folder.iterdir()):
            splits = tuple(sorted(path.stem for path in own.glob("*.parquet")))
            if splits and own.name not in SETS:
                found.append(Available(own.name, str(folder), splits))
    return found


def _columns(known: DataSet) -> str:
    return {
        "texts": "columns text, label, name",
        "images": "arrays x, uint8, and y, int64",
        "table": "columns name, orbit_class and the orbital elements; from ucsusa.org/resources/satellite-database",
    }[known.kind]
