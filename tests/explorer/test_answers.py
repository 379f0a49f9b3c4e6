"""What the page is told: of the run, of a text or a row, of names."""

from __future__ import annotations

import json
import math
import mimetypes
import shutil

import numpy as np
import pytest
import torch
from explored_runs import HOSTILE, TEXTS, label_of

import ddcl
from ddcl.explorer import explored
from ddcl.explorer.turns import GivenUpError

CONTENT = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def fitted(texts_folder):
    return ddcl.load(texts_folder)


def explain(client, **asked):
    response = client.post("/api/explain", json=asked)
    assert response.status_code == 200, response.text
    return response.json()


def softmax(squared_distances, temperature):
    weights = np.exp(-(np.array(squared_distances) - min(squared_distances)) / temperature)
    return weights / weights.sum()


def test_the_page_and_its_parts_are_served(client):
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert '<script type="module" src="main.js"></script>' in page.text
    assert "//" not in page.text.replace("<!--", "")  # nothing from elsewhere
    assert client.get("/main.js").headers["content-type"].startswith("text/javascript")
    assert client.get("/style.css").headers["content-type"].startswith("text/css")


def test_the_run_is_told_with_its_cards(client, fitted):
    run = client.get("/api/run").json()
    assert run["name"] == "messages"
    assert run["settings"]["classes"] == ["<i>home</i>", "bank"]
    assert [card["number"] for card in run["cards"]] == list(range(5))
    assert sum(card["size"] for card in run["cards"]) == len(TEXTS)
    assert run["names"] == [None] * 5
    assert run["titles"] == [card.title for card in fitted.vocabulary().cards]
    assert run["result"]["healthy"] is fitted.config["result"]["healthy"]


@pytest.mark.parametrize("text", ["my card", *HOSTILE, "no word it knows", "\ud800 half a pair", "😀 card"])
def test_a_text_is_read_as_the_run_reads_it(client, fitted, text):
    found = json.loads(client.post("/api/explain", content=json.dumps({"text": text}), headers=CONTENT).text)
    sound = text.encode("utf-8", "replace").decode()
    shares = fitted.mixture(sound)[0]
    np.testing.assert_allclose(softmax(found["squared_distances"], fitted.temperature), shares, atol=2e-5)
    assert found["predicted"] == fitted.predict(sound)[0]
    assert found["probability"] == pytest.approx(float(fitted.probabilities(sound).max()), abs=1e-5)
    assert found["entropy"] == pytest.approx(float(torch.special.entr(shares).sum()), abs=1e-5)
    assert found["milliseconds"] > 0
    assert [set(one) >= {"row", "text", "similarity"} for one in found["examples"]] == [True] * explored.EXAMPLES


def test_the_rows_most_like_a_text_of_the_data_begin_with_it(client):
    nearest = explain(client, text=TEXTS[0])["examples"][0]
    assert nearest["text"] == TEXTS[0]
    assert nearest["similarity"] == pytest.approx(1, abs=1e-5)
    assert nearest["label"] == label_of(TEXTS[0])


def test_a_row_is_read_and_is_not_its_own_neighbour(vectors_client, vectors_folder):
    fitted = ddcl.load(vectors_folder)
    found = explain(vectors_client, row=4)
    z = fitted.folder.rows().at(slice(4, 5))
    np.testing.assert_allclose(softmax(found["squared_distances"], fitted.temperature), fitted.mixture(z)[0], atol=1e-5)
    assert found["predicted"] is None
    assert 4 not in [one["row"] for one in found["examples"]]
    assert {one["row"] % 3 for one in found["examples"]} == {1}  # of its own cluster


def test_words_are_weighed_where_they_stand(client):
    text = "😀 my card was declined"
    response = client.post("/api/words", json={"text": text, "prototype": 2}).json()
    assert response["prototype"] == 2
    assert [text[one["start"] : one["end"]] for one in response["words"]] == [one["word"] for one in response["words"]]
    assert {"my", "card", "was", "declined"} <= {one["word"] for one in response["words"]}


@pytest.mark.parametrize("words", [3, 32, 33, 200])
def test_words_weigh_what_the_run_says_they_do(client, fitted, words):
    text = " ".join(["card", "cat", "declined"][number % 3] for number in range(words))
    response = client.post("/api/words", json={"text": text, "prototype": 1})
    expected = fitted.explainer.words(text, 1)
    assert response.status_code == 200
    assert [one["word"] for one in response.json()["words"]] == [one.word for one in expected]
    weights = [one["weight"] for one in response.json()["words"]]
    np.testing.assert_allclose(weights, [one.weight for one in expected], atol=1e-5)


def test_words_that_nobody_waits_for_are_given_up_half_done(fitted, monkeypatch):
    run, scored, left = explored.ExploredRun(fitted), [], iter([True, False])
    mixture = fitted.mixture
    monkeypatch.setattr(fitted, "mixture", lambda texts: scored.extend(texts) or mixture(texts))
    with pytest.raises(GivenUpError):
        run.words("my card " * 10, 0, lambda: next(left))
    assert len(scored) == explored.PIECE


@pytest.mark.parametrize(
    ("path", "asked", "said"),
    [
        ("explain", b"{", "the request is no JSON"),
        ("explain", b"\xff", "the request is no JSON"),
        ("explain", b"[" * 100_000, "the request is no JSON"),
        ("explain", b"[1]", "the request must be a JSON object"),
        ("explain", b"{}", "text: expected a string"),
        ("explain", b'{"text": 3}', "text: expected a string"),
        ("explain", b'{"row": 1.5}', "row: expected a whole number from 0 on"),
        ("explain", b'{"row": true}', "row: expected a whole number from 0 on"),
        ("explain", b'{"row": 60}', "row: got 60, expected a number from 0 to 59"),
        ("words", b'{"text": "my card"}', "prototype: expected a whole number from 0 on"),
        ("words", b'{"text": "my card", "prototype": 5}', "prototype: got 5, expected a number from 0 to 4"),
    ],
)
def test_a_question_that_makes_no_sense_is_one_sentence(client, path, asked, said):
    response = client.post(f"/api/{path}", content=asked, headers=CONTENT)
    assert (response.status_code, response.json()) == (400, {"error": said})


def test_texts_mean_nothing_to_a_run_of_embeddings(vectors_client):
    response = vectors_client.post("/api/explain", json={"text": "my card"})
    assert response.status_code == 400
    assert "was fitted to embeddings" in response.json()["error"]


@pytest.mark.parametrize("name", ["lost cards", "<script>alert('x')</script>", "כרטיס", "x" * 1000, '"\\'])
def test_a_name_is_kept_in_the_run_folder(own_folder, name, client_of):
    client = client_of(own_folder)
    response = client.put("/api/prototypes/3/name", json={"name": f"  {name}\n"})
    assert response.json()["names"] == [None, None, None, name, None]
    again = client_of(own_folder)  # as after a restart
    assert again.get("/api/run").json()["names"][3] == name
    assert ddcl.load(own_folder).names[3] == name
    assert json.loads((own_folder / "names.json").read_text(encoding="utf-8")) == {"3": name}
    assert again.put("/api/prototypes/3/name", json={"name": " \t"}).json()["names"] == [None] * 5
    assert ddcl.load(own_folder).names == [None] * 5


@pytest.mark.parametrize("kept", ["{bad", "[1, 2]", '{"three": "x"}', None])
def test_names_that_cannot_be_read_are_one_sentence(own_folder, client_of, kept):
    client = client_of(own_folder)
    assert client.get("/api/run").status_code == 200
    names = own_folder / "names.json"
    names.mkdir() if kept is None else names.write_text(kept)
    for response in (client.put("/api/prototypes/0/name", json={"name": "x"}), client.get("/api/run")):
        assert response.status_code == 400
        assert response.json()["error"].startswith(f"{names} cannot be read: put it right or remove it (")


def test_a_name_that_cannot_be_written_is_one_sentence(own_folder, client_of):
    client = client_of(own_folder)
    assert client.get("/api/run").status_code == 200
    shutil.rmtree(own_folder)
    own_folder.write_text("a file where the folder was")
    response = client.put("/api/prototypes/0/name", json={"name": "x"})
    assert response.status_code == 500
    assert response.json()["error"].startswith("the run folder cannot be read or written (")


def test_scripts_are_scripts_whatever_the_machine_calls_them(vectors_folder, client_of):
    mimetypes.add_type("text/plain", ".js")
    assert client_of(vectors_folder).get("/main.js").headers["content-type"].startswith("text/javascript")


def test_a_name_that_cannot_be_given_is_one_sentence(client):
    long = client.put("/api/prototypes/0/name", json={"name": "x" * 1001})
    assert long.json() == {"error": "name: got 1001 characters, expected at most 1000"}
    nobody = client.put("/api/prototypes/5/name", json={"name": "x"})
    assert (nobody.status_code, nobody.json()["error"]) == (400, "prototype: got 5, expected a number from 0 to 4")
    assert client.put("/api/prototypes/0/name", json={"name": None}).status_code == 400


def test_every_number_the_page_is_told_is_finite(client):
    for path in ("run", "map", "phases", "rows"):

        def refuse(constant, path=path):
            pytest.fail(f"{path}: {constant}")

        json.loads(client.get(f"/api/{path}").text, parse_constant=refuse)
    assert math.isfinite(client.get("/api/run").json()["result"]["reading"]["critical"])
