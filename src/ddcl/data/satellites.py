"""The satellites in orbit in 2023, as the Union of Concerned Scientists lists them."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ddcl.data.catalogue import SETS
from ddcl.data.folder import find_files, missing

ELEMENTS = (
    "semi_major_axis_km",
    "eccentricity",
    "inclination_deg",
    "period_min",
    "perigee_km",
    "apogee_km",
)
"""The orbital elements of the catalogue."""


@dataclass(frozen=True)
class Satellites:
    """A table with a row for each satellite whose elements are known."""

    names: list[str]
    labels: np.ndarray
    """int64, (N,): index of the orbit's class in ``classes``."""
    classes: tuple[str, ...]
    elements: Mapping[str, np.ndarray]
    """float64, (N,), by name."""
    missing: Mapping[str, int]
    """How many rows of the catalogue lack each element."""
    impossible: int
    """Rows with an eccentricity that no orbit has, outside [0, 1): slips of the pen in the catalogue."""
    dropped: int
    """Rows left out for either reason."""

    def __len__(self) -> int:
        return len(self.names)

    def matrix(self, *names: str) -> np.ndarray:
        """Elements as columns, (N, number of names)."""
        return np.stack([self.elements[name] for name in names], axis=1)


def load_satellites(elements: Sequence[str] = ELEMENTS) -> Satellites:
    """The UCS catalogue from ``ucs_satellites/ucs_satellites.csv.gz`` in the data folder (``DDCL_DATA``).

    Rows that lack one of the elements asked for, or have an impossible eccentricity, are left out and counted. Nothing
    else is corrected: some satellites are listed twice, some periods do not fit their orbit.

    Args:
        elements: which to read; asking for fewer keeps more rows.
    """
    strange = [name for name in elements if name not in ELEMENTS]
    if strange or not elements:
        raise ValueError(f"elements: got {strange or 'none'}; known: {', '.join(ELEMENTS)}")
    known = SETS["ucs_satellites"]
    paths = find_files(known, "train")
    if paths is None:
        raise missing(known, "train")
    with gzip.open(paths[0], "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    columns = {name: np.array([float(row[name] or "nan") for row in rows]) for name in elements}
    absent = np.any([np.isnan(column) for column in columns.values()], axis=0)
    eccentricity = columns.get("eccentricity", np.zeros(len(rows)))
    impossible = ~absent & ~((eccentricity >= 0) & (eccentricity < 1))
    kept = np.flatnonzero(~absent & ~impossible)
    return Satellites(
        names=[rows[i]["name"] for i in kept],
        labels=np.array([known.classes.index(rows[i]["orbit_class"]) for i in kept], dtype=np.int64),
        classes=known.classes,
        elements={name: column[kept] for name, column in columns.items()},
        missing={name: int(np.isnan(column).sum()) for name, column in columns.items()},
        impossible=int(impossible.sum()),
        dropped=len(rows) - len(kept),
    )
