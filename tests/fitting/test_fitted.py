"""A run, loaded: mixtures, soft centroids, classes, names; the encoder only for texts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_encoder import write_encoder

import ddcl
from ddcl.cli import main
from ddcl.fitting import BadInputError, fitted

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def fit(data, out, *options):
    assert main(["fit", str(data), "--out", str(out), "--epochs", "4", *map(str, options)]) == 0
    return ddcl.load(out)


@pytest.fixture
def of_vectors(vectors, tmp_path):
    return fit(vectors, tmp_path / "run")


@pytest.fixture
def of_texts(messages, tiny_folder, tmp_path):
    return fit(messages, tmp_path / "run", "--encoder", tiny_folder, "--prototypes", "3")


def test_mixtures_and_centroids_are_those_of_the_readout(of_vectors, vectors):
    z = torch.from_numpy(np.load(vectors))
    expected = ddcl.readout(z, of_vectors.prototypes, of_vectors.temperature)
    torch.testing.assert_close(of_vectors.mixture(z), expected.assignments)
    torch.testing.assert_close(of_vectors.transform(z), expected.centroid)
    assert of_vectors.predict(z) == expected.indices.tolist()
    assert of_vectors.predict(z[0].numpy()) == expected.indices[:1].tolist()


def test_it_finds_the_clusters(of_vectors, vectors):
    found = np.array(of_vectors.predict(np.load(vectors))).reshape(-1, 4)
    assert (found == found[0]).all()
    assert len(set(found[0])) == 4
    assert of_vectors.prototypes.shape == (4, 6)


def test_texts_are_embedded_as_in_the_run_and_not_kept(of_texts, tmp_path):
    shutil.rmtree(tmp_path / "cache")
    texts = of_texts.folder.inputs()["text"].to_pylist()
    torch.testing.assert_close(of_texts.embeddings(texts), of_texts.folder.rows().at(slice(None)), rtol=1e-4, atol=1e-5)
    assert not (tmp_path / "cache").exists()
    assert of_texts.mixture("my card").shape == (1, 3)
    assert of_texts.mixture([]).shape == (0, 3)


def test_the_encoder_is_loaded_only_for_texts(of_texts, monkeypatch):
    monkeypatch.setattr(fitted, "load_encoder", lambda *_: pytest.fail("the encoder was asked for"))
    again = ddcl.load(of_texts.folder.path)
    assert again.mixture(again.folder.rows().at(slice(0, 2))).shape == (2, 3)


def test_an_encoder_that_is_gone_or_changed_is_named(messages, tmp_path):
    moved = write_encoder(tmp_path / "moved")
    found = fit(messages, tmp_path / "run", "--encoder", moved, "--prototypes", "3")
    shutil.rmtree(moved)
    with pytest.raises(BadInputError, match="is no folder"):
        ddcl.load(found.folder.path).predict("my card")
    write_encoder(moved, seed=1)
    with pytest.raises(BadInputError, match="has other weights now"):
        ddcl.load(found.folder.path).predict("my card")


def test_a_head_predicts_classes_and_their_probabilities(labelled, tmp_path):
    found = fit(labelled, tmp_path / "run", "--labels", "team")
    assert found.classes == ("blue", "green", "red")
    z = np.load(labelled)["z"]
    assert found.predict(z[:4]) == ["red", "green", "blue", "red"]
    probabilities = found.probabilities(z)
    assert probabilities.shape == (200, 3)
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(200))
    assert "6 prototypes, 3 classes" in repr(found)


def test_names_are_kept_with_the_run(of_vectors):
    assert of_vectors.names == [None] * 4
    of_vectors.rename(2, "cards <declined> כרטיס")
    of_vectors.rename(0, "x")
    of_vectors.rename(0, None)
    assert ddcl.load(of_vectors.folder.path).names == [None, None, "cards <declined> כרטיס", None]
    with pytest.raises(BadInputError, match="from 0 to 3"):
        of_vectors.rename(4, "beyond")


def test_what_it_cannot_read_is_refused_in_one_sentence(of_vectors):
    for inputs, said in (
        ("a text", "was fitted to embeddings"),
        (torch.zeros(2, 5), r"got embeddings of shape \(2, 5\), expected \(N, 6\)"),
        (torch.full((1, 6), float("nan")), "NaN or infinity"),
        ([1, 2], "something else than texts"),
    ):
        with pytest.raises(BadInputError, match=said):
            of_vectors.mixture(inputs)
    with pytest.raises(BadInputError, match="without labels"):
        of_vectors.probabilities(torch.zeros(1, 6))


def test_the_rows_of_embeddings_are_found_where_they_were_and_checked(of_vectors, vectors):
    np.testing.assert_array_equal(of_vectors.folder.rows().at(slice(0, 3)), np.load(vectors)[:3])
    with pytest.raises(BadInputError, match="holds no texts"):
        of_vectors.folder.inputs()
    np.save(vectors, np.load(vectors) + 1)
    with pytest.raises(BadInputError, match="no longer what they were"):
        of_vectors.folder.rows()


def test_what_is_no_run_folder_is_refused(of_vectors, tmp_path):
    with pytest.raises(BadInputError, match=r"holds no config\.json"):
        ddcl.load(tmp_path)
    path = Path(of_vectors.folder.path, "config.json")
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "format": 99}))
    with pytest.raises(BadInputError, match="has the format 99; this version of ddcl reads 1"):
        ddcl.load(of_vectors.folder.path)
    path.write_text(json.dumps({**config, "settings": {**config["settings"], "more": 1}}))
    with pytest.raises(BadInputError, match="'more'"):
        ddcl.load(of_vectors.folder.path)
    path.write_text("{")
    with pytest.raises(BadInputError, match="cannot be read"):
        ddcl.load(of_vectors.folder.path)
