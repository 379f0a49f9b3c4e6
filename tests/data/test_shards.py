"""Arrays in pieces: what is interrupted goes on, and nothing that is not whole looks it."""

from __future__ import annotations

import errno
import json

import numpy as np
import pytest

from ddcl.data import shards
from ddcl.data.shards import ShardedArrays

VALUES = np.arange(7 * 3, dtype=np.float32).reshape(7, 3)


def ragged(start, stop):
    """Two arrays of different kinds, the second with a varying number of rows for each text."""
    rows = [np.full(i, i, dtype=np.int32) for i in range(start, stop)]
    return {"even": VALUES[start:stop], "ragged": np.concatenate(rows)}


def arrays(folder, making="float32"):
    return ShardedArrays(folder, ("even", "ragged"), making)


def files(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_pieces_become_whole_arrays_and_disappear(tmp_path):
    found = arrays(tmp_path)
    found.fill(7, 2, ragged, {"by": "test"})
    np.testing.assert_array_equal(found.open("even"), VALUES)
    np.testing.assert_array_equal(found.open("ragged"), ragged(0, 7)["ragged"])
    assert isinstance(found.open("even"), np.memmap)
    assert json.loads(found.note.read_text()) == {"by": "test"}
    assert files(tmp_path) == ["even.npy", "note.json", "ragged.npy"]


def test_interrupted_work_goes_on_at_the_last_piece(tmp_path):
    made = []

    def interrupted(start, stop):
        if start == 4:
            raise KeyboardInterrupt
        made.append(start)
        return ragged(start, stop)

    with pytest.raises(KeyboardInterrupt):
        arrays(tmp_path).fill(7, 2, interrupted, {})
    found = arrays(tmp_path)
    assert (made, found.complete(), found.done(7, 2)) == ([0, 2], False, 4)

    found.fill(7, 2, lambda start, stop: made.append(start) or ragged(start, stop), {})
    assert made == [0, 2, 4, 6]
    np.testing.assert_array_equal(found.open("even"), VALUES)


def test_pieces_made_in_another_way_are_not_mixed_in(tmp_path):
    def interrupted(start, stop):
        if start:
            raise KeyboardInterrupt
        return {name: -array for name, array in ragged(start, stop).items()}

    with pytest.raises(KeyboardInterrupt):
        arrays(tmp_path, "bfloat16").fill(7, 4, interrupted, {})
    found = arrays(tmp_path)
    found.fill(7, 4, ragged, {})
    np.testing.assert_array_equal(found.open("even"), VALUES)
    assert files(tmp_path) == ["even.npy", "note.json", "ragged.npy"]


@pytest.mark.parametrize("full_at", range(1, 7))
def test_a_full_disk_leaves_nothing_that_looks_whole_and_loses_no_finished_piece(tmp_path, monkeypatch, full_at):
    """The disk is full when the n-th file is flushed: three pieces, the note, two arrays."""
    flushed = []

    def fsync(descriptor):
        flushed.append(descriptor)
        if len(flushed) == full_at:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shards.os, "fsync", fsync)
    found = arrays(tmp_path)
    with pytest.raises(OSError, match="No space left"):
        found.fill(7, 3, ragged, {})
    assert not found.complete()
    assert not [name for name in files(tmp_path) if "partial" in name]
    assert found.done(7, 3) == min(7, 3 * (full_at - 1))
    found.fill(7, 3, ragged, {})
    np.testing.assert_array_equal(found.open("even"), VALUES)


def test_another_process_that_finishes_first_is_no_trouble(tmp_path):
    def overtaken(start, stop):
        arrays(tmp_path).fill(7, 2, ragged, {"by": "the other"})
        return ragged(start, stop)

    found = arrays(tmp_path)
    found.fill(7, 2, overtaken, {"by": "this one"})
    np.testing.assert_array_equal(found.open("even"), VALUES)
    assert json.loads(found.note.read_text()) == {"by": "the other"}


def test_a_file_copied_in_part_is_named(tmp_path):
    found = arrays(tmp_path)
    found.fill(7, 2, ragged, {})
    path = found.path("even")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"even\.npy is no whole array"):
        found.open("even")
