"""Text sets from the user's folder, and what is said when there is none."""

from __future__ import annotations

import os

import pytest

from ddcl.data import load_texts

parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow (the extra ddcl[text])")


def write_set(folder, texts, labels, names):
    import pyarrow

    folder.mkdir(parents=True)
    parquet.write_table(pyarrow.table({"text": texts, "label": labels, "name": names}), folder / "train.parquet")


def test_a_set_comes_back_as_it_was_written(tmp_path, monkeypatch):
    write_set(tmp_path / "tiny", ["b one", "a", "b two"], [1, 0, 1], ["second", "first", "second"])
    monkeypatch.setenv("DDCL_DATA", str(tmp_path))
    found = load_texts("tiny")
    assert found.texts == ["b one", "a", "b two"]
    assert found.labels == [1, 0, 1]
    assert found.names == ["first", "second"]


def test_without_a_data_folder_the_message_says_what_to_set(monkeypatch):
    monkeypatch.delenv("DDCL_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"set DDCL_DATA to one that holds tiny/train\.parquet"):
        load_texts("tiny")


def test_a_set_that_is_not_in_the_folder_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("DDCL_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"there is no tiny/test\.parquet in the folder"):
        load_texts("tiny", "test")


@pytest.mark.skipif(not os.environ.get("DDCL_DATA"), reason="needs a data folder (DDCL_DATA)")
def test_twenty_newsgroups_is_the_by_date_edition():
    found = load_texts("20newsgroups")
    assert len(found.texts) == 11_314
    assert found.names[0] == "alt.atheism"
    assert sorted(set(found.labels)) == list(range(20))
