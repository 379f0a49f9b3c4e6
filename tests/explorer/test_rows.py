"""Rows, searched, filtered, sorted and paged."""

from __future__ import annotations

import math
import tracemalloc

import pytest
from explored_runs import HOSTILE, LONG, QUOTED, RIGHT_TO_LEFT, SCRIPT, TEXTS

from ddcl.explorer.rows import LABEL_CHARACTERS, SHOWN_CHARACTERS, Question, RowTable, clipped
from ddcl.fitting import RunFolder


def found(client, **parameters):
    response = client.get("/api/rows", params=parameters)
    assert response.status_code == 200, response.text
    return response.json()


def everything(client, **parameters):
    whole, page = [], found(client, limit=7, **parameters)
    while page["rows"]:
        whole += page["rows"]
        page = found(client, limit=7, offset=len(whole), **parameters)
    assert len(whole) == page["total"]
    return whole


def test_pages_together_are_all_rows_once(client):
    rows = everything(client)
    assert [row["row"] for row in rows] == list(range(60))
    assert [row["text"] for row in rows] == [text[:SHOWN_CHARACTERS] for text in TEXTS]


def test_search_ignores_case_and_finds_parts_of_words(client):
    expected = [number for number, text in enumerate(TEXTS) if "eclin" in text]
    assert expected
    assert [row["row"] for row in everything(client, search="ECLIN")] == expected


@pytest.mark.parametrize("search", [".*", "(", "%", "\\d", "no such text", "card\u0001"])
def test_a_search_is_for_the_characters_themselves(client, search):
    assert [row["row"] for row in everything(client, search=search)] == [
        number for number, text in enumerate(TEXTS) if search in text
    ]


@pytest.mark.parametrize("text", [SCRIPT, RIGHT_TO_LEFT, QUOTED])
def test_hostile_texts_are_found_and_come_back_as_they_are(client, text):
    (row,) = everything(client, search=text[:30])
    assert row["text"] == text
    assert client.get(f"/api/rows/{row['row']}").json()["text"] == text


def test_a_long_text_is_cut_in_lists_and_whole_alone(client):
    row = found(client, offset=59, limit=1)["rows"][0]
    assert row["text"] == LONG[:SHOWN_CHARACTERS]
    assert row["characters"] == len(LONG)
    assert client.get("/api/rows/59").json()["text"] == LONG == HOSTILE[-1]


def test_long_labels_are_cut_and_still_told_apart():
    long = "x" * 50_000
    for predicted, wrong in ((long, False), (f"{long}y", True)):
        found = clipped({"row": 1, "text": None, "label": long, "predicted": predicted})
        assert found["label"] == found["predicted"] == "x" * LABEL_CHARACTERS + "…"
        assert found["wrong"] is wrong
    assert clipped({"row": 1, "text": None, "label": None, "predicted": long})["wrong"] is False


def test_filters_keep_what_they_say(client):
    rows = everything(client)
    for prototype in range(5):
        assert everything(client, prototype=prototype) == [row for row in rows if row["prototype"] == prototype]
    assert everything(client, label="<i>home</i>") == [row for row in rows if row["label"] == "<i>home</i>"]
    held = everything(client, held_out="true")
    assert held == [row for row in rows if row["held_out"]]
    assert len(held) == 6
    assert everything(client, wrong="true") == [row for row in rows if row["label"] != row["predicted"]]


@pytest.mark.parametrize("measure", ["confidence", "entropy"])
def test_rows_are_filtered_by_how_sure_the_bank_is(client, measure):
    rows = everything(client)
    middle = sorted(row[measure] for row in rows)[30]
    assert everything(client, **{f"most_{measure}": middle}) == [row for row in rows if row[measure] <= middle]
    assert everything(client, **{f"least_{measure}": middle}) == [row for row in rows if row[measure] >= middle]
    neither = {f"least_{measure}": middle, f"most_{measure}": middle - 1e-3}
    assert everything(client, **neither) == []


@pytest.mark.parametrize("sort", ["confidence", "entropy", "prototype", "row"])
@pytest.mark.parametrize("descending", [False, True])
def test_rows_are_sorted_with_ties_in_the_order_of_the_data(client, sort, descending):
    rows = everything(client)
    sign = -1 if descending else 1
    expected = sorted(rows, key=lambda row: (sign * row[sort], row["row"]))
    assert everything(client, sort=sort, descending=str(descending).lower()) == expected


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"sort": "text"}, "sort: got 'text', expected row, confidence, entropy, prototype"),
        ({"limit": 100_000}, "limit: got 100000, expected 1 to 200"),
        ({"offset": -1}, "offset: expected a whole number from 0 on"),
        ({"prototype": "three"}, "prototype: expected a whole number from 0 on"),
        ({"least_entropy": "nan"}, "least_entropy: expected a number"),
        ({"wrong": "yes"}, "wrong: expected true or false"),
        ({"sorted": "row"}, "rows: 'sorted' is not known"),
        ({"search": "a" * 1001}, "search: got 1001 characters, expected at most 1000"),
    ],
)
def test_a_question_that_makes_no_sense_is_one_sentence(client, parameters, said):
    response = client.get("/api/rows", params=parameters)
    assert response.status_code == 400
    assert response.json()["error"].startswith(said)


def test_a_row_that_is_not_there_is_one_sentence(client):
    response = client.get("/api/rows/60")
    assert (response.status_code, response.json()) == (400, {"error": "row: got 60, expected a number from 0 to 59"})


def test_embeddings_have_rows_without_texts(vectors_client):
    rows = everything(vectors_client)
    assert len(rows) == 90
    assert "text" not in rows[0]
    assert {row["prototype"] for row in rows} == {0, 1, 2}
    assert everything(vectors_client, search="card") == []


@pytest.fixture
def many_rows(tmp_path):
    import numpy as np
    import pyarrow
    from pyarrow import parquet

    rows, random = 300_000, np.random.default_rng(0)
    share = random.random(rows, dtype=np.float32)
    columns = {
        "row": np.arange(rows),
        "id": pyarrow.nulls(rows, pyarrow.string()),
        "prototype": random.integers(0, 100, rows, dtype=np.int32),
        "confidence": share,
        "entropy": -np.log(share),
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "assignments.parquet")
    return RowTable(RunFolder(tmp_path))


def test_a_page_of_many_rows_makes_no_python_object_of_the_others(many_rows):
    tracemalloc.start()
    page = many_rows.page(Question(sort="entropy", descending=True, most_confidence=0.9), offset=0, limit=50)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert page["total"] == pytest.approx(0.9 * 300_000, rel=0.01)
    entropies = [row["entropy"] for row in page["rows"]]
    assert entropies == sorted(entropies, reverse=True)
    assert page["rows"][0]["confidence"] == pytest.approx(math.exp(-entropies[0]), rel=1e-4)
    assert peak < 2**20
