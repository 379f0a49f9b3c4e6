"""Arrays written to disk piece by piece, so that work that is interrupted goes on where it stopped.

A piece is an uncompressed .npz file that covers some of the texts. When all are there they are strung together into one
.npy file for each array. Every file is written under another name, flushed and renamed: what carries its right name is
whole, whatever happened to the machine or the disk meanwhile.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

Make = Callable[[int, int], Mapping[str, Any]]
CACHE_VARIABLE = "DDCL_CACHE"


def cache_folder() -> Path:
    """The folder that ``DDCL_CACHE`` names; otherwise .cache/ddcl in the user's home."""
    folder = os.environ.get(CACHE_VARIABLE)
    return Path(folder).expanduser() if folder else Path.home() / ".cache" / "ddcl"


class ShardedArrays:
    """Arrays of one cache entry: NAME.npy for each once complete, their pieces before.

    Args:
        folder: of the entry.
        names: of the arrays.
        making: how the pieces are made; pieces made in another way are not mixed with these.
    """

    def __init__(self, folder: Path, names: Sequence[str], making: str = "") -> None:
        self.folder, self.names = folder, tuple(names)
        self.pieces = folder / f"pieces-{making}"

    def path(self, name: str) -> Path:
        """Of a complete array."""
        return self.folder / f"{name}.npy"

    @property
    def note(self) -> Path:
        """What is known of how the arrays were made, as JSON."""
        return self.folder / "note.json"

    def complete(self) -> bool:
        """Whether every array is there."""
        return all(self.path(name).is_file() for name in self.names)

    def fill(self, total: int, size: int, make: Make, note: Mapping[str, Any]) -> None:
        """Make the pieces that are missing, each of ``size`` texts, then string all together.

        Args:
            total: number of texts.
            size: texts in a piece.
            make: called with the first and one past the last text of a piece; returns its arrays.
            note: to be kept beside the arrays.
        """
        spans = _spans(total, size)
        try:
            for start, stop in spans:
                # another process may have been faster with the piece, or with everything
                if not self._piece(start, stop).is_file() and not self.complete():
                    arrays = make(start, stop)
                    with whole_file(self._piece(start, stop)) as file:
                        np.savez(file, **{name: arrays[name] for name in self.names})
            if not self.complete():
                self._merge([self._piece(start, stop) for start, stop in spans], note)
        except FileNotFoundError:
            # it has then cleared the pieces away
            if not self.complete():
                raise
        for pieces in self.folder.glob("pieces-*"):
            shutil.rmtree(pieces, ignore_errors=True)

    def store(self, arrays: Mapping[str, np.ndarray], note: Mapping[str, Any]) -> None:
        """Write complete arrays that were made elsewhere."""
        self._write_note(note)
        for name in self.names:
            with whole_file(self.path(name)) as file:
                np.save(file, np.ascontiguousarray(arrays[name]))

    def done(self, total: int, size: int) -> int:
        """How many texts lie in finished pieces."""
        return sum(stop - start for start, stop in _spans(total, size) if self._piece(start, stop).is_file())

    def open(self, name: str) -> np.ndarray:
        """A complete array, mapped into memory."""
        try:
            found: np.ndarray = np.load(self.path(name), mmap_mode="r")
            return found
        except ValueError as error:
            raise ValueError(f"{self.path(name)} is no whole array (copied in part?): remove it ({error})") from error

    def _piece(self, start: int, stop: int) -> Path:
        return self.pieces / f"{start:09d}-{stop:09d}.npz"

    def _merge(self, pieces: Sequence[Path], note: Mapping[str, Any]) -> None:
        self._write_note(note)
        for name in self.names:
            headers = [_header(piece, name) for piece in pieces]
            rows = sum(shape[0] for shape, _ in headers)
            (_, *rest), dtype = headers[0]
            with whole_file(self.path(name)) as file:
                described = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": (rows, *rest)}
                npy.write_array_header_1_0(file, described)
                for piece in pieces:
                    with _member(piece, name) as member:
                        _read_header(member)
                        shutil.copyfileobj(member, file, 1 << 20)

    def _write_note(self, note: Mapping[str, Any]) -> None:
        with whole_file(self.note) as file:
            file.write(json.dumps(dict(note), indent=1).encode() + b"\n")


def _spans(total: int, size: int) -> list[tuple[int, int]]:
    return [(start, min(start + size, total)) for start in range(0, total, size)]


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that gets its name only when everything is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _member(piece: Path, name: str) -> Iterator[IO[bytes]]:
    with zipfile.ZipFile(piece) as archive, archive.open(f"{name}.npy") as member:
        yield member


def _header(piece: Path, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    with _member(piece, name) as member:
        return _read_header(member)


def _read_header(member: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    npy.read_magic(member)
    shape, _, dtype = npy.read_array_header_1_0(member)
    return shape, dtype
