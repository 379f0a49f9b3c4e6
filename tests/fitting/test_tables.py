"""What users have becomes rows: every format, columns guessed aloud, and one sentence for what cannot be read."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ddcl.fitting import BadInputError
from ddcl.fitting.tables import digest_of, read_table

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
AWKWARD = ['<script>alert("1")</script>', "quotes \" and ' and ,;\t", "שלום עולם مرحبا", "line\nbreak", "x" * 100_000]


def write_csv(path, delimiter=","):
    quoted = ['"' + text.replace('"', '""') + '"' for text in AWKWARD]
    lines = [f"{number}{delimiter}{text}{delimiter}{'ab'[number % 2]}" for number, text in enumerate(quoted)]
    path.write_text("\n".join([delimiter.join(["number", "body", "kind"]), *lines]) + "\n", encoding="utf-8")


def write_json_lines(path, delimiter=""):
    rows = [{"number": number, "body": text, "kind": "ab"[number % 2]} for number, text in enumerate(AWKWARD)]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n", encoding="utf-8")


def write_parquet(path, delimiter=""):
    kinds = ["ab"[number % 2] for number in range(len(AWKWARD))]
    parquet.write_table(pyarrow.table({"number": range(len(AWKWARD)), "body": AWKWARD, "kind": kinds}), path)


@pytest.mark.parametrize(
    ("name", "write", "delimiter"),
    [
        ("a.csv", write_csv, ","),
        ("b.csv", write_csv, ";"),
        ("c.csv", write_csv, "\t"),
        ("a.tsv", write_csv, "\t"),
        ("a.jsonl", write_json_lines, ""),
        ("a.ndjson", write_json_lines, ""),
        ("A.PARQUET", write_parquet, ""),
    ],
)
def test_texts_of_any_kind_survive_every_format(tmp_path, name, write, delimiter):
    write(tmp_path / name, delimiter)
    table = read_table(tmp_path / name, labels="kind")
    assert table.texts == AWKWARD
    assert table.labels == ["a", "b", "a", "b", "a"]
    assert (table.kind, table.text_column, table.label_column, len(table)) == ("texts", "body", "kind", 5)


def test_the_longest_strings_are_taken_for_the_texts_and_that_is_said(messages):
    table = read_table(messages)
    assert table.text_column == "message"
    assert table.remarks == (
        "text column: 'message' (the longest strings)",
        "label column: none given (there are also 'number', 'place')",
    )


def test_a_named_column_is_not_a_guess(messages):
    table = read_table(messages, text="place", labels="message")
    assert table.texts[0] == "bank"
    assert table.remarks == ("label column: 'message', 4 classes",)


def test_a_byte_order_mark_is_no_part_of_the_first_column_s_name(tmp_path):
    (tmp_path / "a.csv").write_bytes("\ufefftext\nné\n".encode())
    assert read_table(tmp_path / "a.csv").texts == ["né"]


def test_a_folder_keeps_the_names_of_its_files(tmp_path):
    (tmp_path / "texts" / "inner").mkdir(parents=True)
    for name, text in (("b.txt", "second"), ("inner/a.txt", "third"), ("a.txt", "first"), ("c.md", "no text file")):
        (tmp_path / "texts" / name).write_text(text)
    table = read_table(tmp_path / "texts")
    assert (table.ids, table.texts) == (["a.txt", "b.txt", "inner/a.txt"], ["first", "second", "third"])


def test_rows_without_a_text_or_a_label_are_kept_and_counted_aloud(tmp_path):
    rows = [{"text": "one", "kind": 1}, {"text": None, "kind": 2}, {"kind": None, "text": "three"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    table = read_table(tmp_path / "a.jsonl", labels="kind")
    assert table.texts == ["one", "", "three"]
    assert table.labels == ["1", "2", None]
    assert any(remark.startswith("1 of 3 rows have no text") for remark in table.remarks)
    assert any(remark.startswith("1 rows have no label") for remark in table.remarks)


def test_half_a_surrogate_pair_which_no_file_can_hold_is_replaced(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "broken \\ud83d pair"}\n{"text": "whole \\ud83d\\ude00 pair"}\n')
    assert read_table(tmp_path / "a.jsonl").texts == ["broken ? pair", "whole \U0001f600 pair"]


def test_arrays_stay_on_the_disk(tmp_path, vectors):
    z = np.load(vectors)
    np.savez(tmp_path / "a.npz", other=np.zeros(3), z=z, kind=np.arange(200) % 2)
    for table in (read_table(vectors), read_table(tmp_path / "a.npz"), read_table(tmp_path / "a.npz", text="z")):
        assert isinstance(table.embeddings, np.memmap)
        np.testing.assert_array_equal(table.embeddings, z)
    assert read_table(tmp_path / "a.npz").remarks[0] == (
        "embeddings: the array 'z', 200 x 6 of float32 (there are also other, kind)"
    )
    assert read_table(tmp_path / "a.npz", labels="kind").labels[:3] == ["0", "1", "0"]


def test_a_compressed_archive_is_read_into_memory_up_to_a_size(tmp_path, monkeypatch):
    z = np.random.default_rng(0).normal(size=(7, 5))
    np.savez_compressed(tmp_path / "a.npz", z)
    np.testing.assert_array_equal(read_table(tmp_path / "a.npz").embeddings, z)
    monkeypatch.setattr("ddcl.fitting.arrays.UNMAPPED_BYTES", 100)
    with pytest.raises(BadInputError, match="cannot be mapped"):
        read_table(tmp_path / "a.npz")


def test_the_digest_is_of_names_and_contents(tmp_path):
    (tmp_path / "texts").mkdir()
    path = tmp_path / "texts" / "a.txt"
    found = set()
    for name, text in (("a.txt", "one"), ("a.txt", "two"), ("b.txt", "two")):
        path = path.rename(path.with_name(name)) if path.exists() else path
        path.write_text(text)
        found |= {digest_of(tmp_path / "texts"), digest_of(path)}
    assert len(found) == 5  # two files of one content and different names are the same file


@pytest.mark.parametrize(
    ("name", "content", "options", "said"),
    [
        (
            "a.csv",
            b"text,kind\na,b\n",
            {"text": "body"},
            "there is no column 'body' for --text; its columns are 'text'",
        ),
        ("a.csv", b"text,kind\na,b\n", {"labels": "team"}, "no column 'team' for --labels"),
        ("a.csv", b"text,kind\na,b\nc,b\n", {"labels": "kind"}, "holds one class ('b')"),
        ("a.csv", b"text,kind\na,\nc,\n", {"labels": "kind"}, "holds no label"),
        ("a.csv", b"text\na\n", {"text": "text", "labels": "text"}, "cannot be both"),
        ("a.csv", b"", {}, "holds no rows"),
        ("a.csv", b"text\n", {}, "holds no rows"),
        ("a.csv", b"text\n \n\t\n", {}, "holds no text at all"),
        ("a.csv", b"a,b\n1\n", {}, "line 2 has 1 cells, the header 2"),
        ("a.csv", b"a,a\n1,2\n", {}, "two columns are named 'a'"),
        ("a.csv", b'a\n"open\n', {}, "cannot be read"),
        ("a.csv", b"text\nna\xefve\n", {}, "not UTF-8: byte 0xef at offset 7 (line 2)"),
        ("a.csv", b"\xef\xbb\xbftext\nna\xefve\n", {}, "at offset 10 (line 2)"),
        ("a.csv", "text\n".encode("utf-16"), {}, "at offset 0"),
        ("a.jsonl", b'{"a": "b"}\n{oops}\n', {}, "line 2 is not JSON"),
        ("a.jsonl", b"[1]\n", {}, "line 1 holds list"),
        ("a.jsonl", b'{"a": 1}\n', {}, "holds strings to take for texts"),
        ("a.jsonl", b"", {}, "holds no rows"),
        ("a.parquet", b"PAR1", {}, "cannot be read as Parquet"),
        ("a.npy", b"oops", {}, "is no .npy file of numbers"),
        ("a.npz", b"oops", {}, "it is no .npz file"),
        ("a.docx", b"", {}, "'.docx' is not known; expected a folder or one of .csv"),
    ],
)
def test_what_cannot_be_read_is_named_in_one_sentence(tmp_path, name, content, options, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInputError) as error:
        read_table(tmp_path / name, **options)
    assert said in str(error.value)
    assert name in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.zeros(5), "5 of float64, expected real numbers of shape (rows, dimension)"),
        (np.zeros((0, 5)), "holds no rows"),
        (np.array([["a"]]), "expected real numbers"),
        (np.zeros((2, 2), dtype=complex), "expected real numbers"),
        (np.array([[1.0, 2.0], [3.0, np.nan]]), "row 1 holds NaN or infinity"),
        (np.array([[np.inf, 2.0], [-np.inf, 1.0]], dtype=np.float32), "row 0 holds NaN or infinity"),
    ],
)
def test_arrays_that_are_no_embeddings_are_refused(tmp_path, array, said):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(BadInputError, match=r"a\.npy") as error:
        read_table(tmp_path / "a.npy")
    assert said in str(error.value)


def test_names_in_a_place_without_names_are_refused(vectors, labelled, tmp_path):
    (tmp_path / "empty").mkdir()
    for path, options, said in (
        (vectors, {"labels": "team"}, "no named parts"),
        (labelled, {"labels": "colour"}, "no array 'colour' for --labels; it holds z, team"),
        (labelled, {"labels": "z"}, "none of its arrays"),
        (tmp_path / "empty", {}, "no .txt files"),
        (tmp_path / "empty", {"text": "a"}, "has no columns"),
        (tmp_path / "gone.csv", {}, "no such file"),
    ):
        with pytest.raises(BadInputError, match=said):
            read_table(path, **options)
