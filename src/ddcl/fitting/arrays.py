"""Embeddings in .npy and .npz files, left on the disk and mapped into memory where that can be."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.lib import format as npy

from ddcl.fitting.errors import BadInputError

UNMAPPED_BYTES = 2**30
"""An array that cannot be mapped (in a compressed .npz) is read into memory up to this size."""
_USUAL_NAMES = ("embeddings", "x", "X", "z", "arr_0")
_LOCAL_HEADER = 30
SCANNED = 2**14
SMALLEST, LARGEST = 1e-15, 1e15
"""Lengths, of pieces of the rows, whose squares float32 can still tell apart."""


class Array(NamedTuple):
    """Rows, and labels if they were asked for."""

    rows: np.ndarray
    labels: np.ndarray | None
    name: str | None
    """Which array of an .npz."""
    remarks: tuple[str, ...]


def read_array(path: Path, name: str | None, labels: str | None) -> Array:
    """Embeddings (N, m) of finite numbers, and the array of labels (N,) of an .npz if one is named."""
    if path.suffix.lower() == ".npy":
        if name is not None or labels is not None:
            raise BadInputError(f"{path}: a .npy file has no named parts, so --text and --labels mean nothing here")
        rows = _open(path)
        remarks = (f"embeddings: {_described(rows)}", "label column: none (a .npy file holds no labels)")
        return Array(_checked(path, rows), None, None, remarks)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {one.filename.removesuffix(".npy"): one for one in archive.infolist()}
    except zipfile.BadZipFile as error:
        raise BadInputError(f"{path}: it is no .npz file (a zip archive of arrays)") from error
    for option, wanted in (("--text", name), ("--labels", labels)):
        if wanted is not None and wanted not in members:
            raise BadInputError(f"{path}: there is no array {wanted!r} for {option}; it holds {', '.join(members)}")
    shapes = {one: _shape(path, info) for one, info in members.items()}
    tables = [one for one, shape in shapes.items() if len(shape) == 2 and one != labels]
    chosen = name or next((one for one in _USUAL_NAMES if one in tables), tables[0] if tables else None)
    if chosen is None:
        raise BadInputError(f"{path}: none of its arrays ({', '.join(members)}) has two dimensions, (rows, dimension)")
    rows = _checked(path, _member(path, members[chosen]))
    found = None
    if labels is not None:
        found = np.asarray(_member(path, members[labels]))
        if found.shape != (len(rows),):
            raise BadInputError(f"{path}: the array {labels!r} has the shape {found.shape}, expected ({len(rows)},)")
    said = f"embeddings: the array {chosen!r}, {_described(rows)}"
    others = [one for one in members if one not in (chosen, labels)]
    said += f" (there are also {', '.join(others)})" if others and name is None else ""
    return Array(rows, found, chosen, (said, *(() if labels else ("label column: none given",))))


def _open(path: Path) -> np.ndarray:
    try:
        found: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise BadInputError(f"{path}: it is no .npy file of numbers, or not a whole one") from error
    return found


def _shape(path: Path, info: zipfile.ZipInfo) -> tuple[int, ...]:
    with zipfile.ZipFile(path) as archive, archive.open(info) as member:
        return _header(member)[0]


def _header(member: object) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    version = npy.read_magic(member)  # type: ignore[arg-type]
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    return read(member)  # type: ignore[arg-type]


def _member(path: Path, info: zipfile.ZipInfo) -> np.ndarray:
    """An array of an archive: mapped where its bytes lie in the file as they are, read into memory otherwise."""
    with path.open("rb") as file, zipfile.ZipFile(path) as archive:
        with archive.open(info) as member:
            shape, fortran, dtype = _header(member)
            before = member.tell()
        if dtype.hasobject:
            raise BadInputError(
                f"{path}: the array in {info.filename} holds Python objects, expected numbers or strings"
            )
        if info.compress_type == zipfile.ZIP_STORED and info.file_size > before:
            # names in the local header may differ in length from those in the archive's table
            file.seek(info.header_offset + 26)
            lengths = np.frombuffer(file.read(4), dtype="<u2")
            start = info.header_offset + _LOCAL_HEADER + int(lengths.sum()) + before
            return np.memmap(path, dtype, "r", start, shape, "F" if fortran else "C")
        if info.file_size > UNMAPPED_BYTES:
            raise BadInputError(
                f"{path}: {info.filename} is compressed, so its {info.file_size / 2**30:.1f} GiB cannot be mapped into "
                "memory; save it by np.save as a .npy file"
            )
        with archive.open(info) as member:
            found: np.ndarray = npy.read_array(member, allow_pickle=False)
            return found


def _checked(path: Path, rows: np.ndarray) -> np.ndarray:
    if rows.ndim != 2 or not rows.shape[1] or not np.issubdtype(rows.dtype, np.number) or np.iscomplexobj(rows):
        raise BadInputError(f"{path}: it holds {_described(rows)}, expected real numbers of shape (rows, dimension)")
    if not len(rows):
        raise BadInputError(f"{path}: it holds no rows; expected at least two")
    largest = 0.0
    for start in range(0, len(rows), SCANNED):
        part = torch.from_numpy(np.array(rows[start : start + SCANNED], dtype=np.float32))
        length = torch.linalg.vector_norm(part).item()
        largest = max(largest, length)
        if not length < LARGEST:  # one pass over memory; only then a closer look
            bad = (~torch.isfinite(part)).any(-1).nonzero().flatten()
            if len(bad):
                raise BadInputError(f"{path}: row {start + int(bad[0])} holds NaN or infinity; expected finite numbers")
    if not SMALLEST < largest < LARGEST and bool(np.any(rows[:SCANNED])):  # rows of nothing but 0 are all the same
        size = "large" if largest >= LARGEST else "small"
        raise BadInputError(
            f"{path}: its numbers are too {size} for squared distances in float32; scale the rows to lengths of about 1"
        )
    return rows


def _described(rows: np.ndarray) -> str:
    return f"{' x '.join(map(str, rows.shape))} of {rows.dtype}"
