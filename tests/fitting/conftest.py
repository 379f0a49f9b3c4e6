"""A cache of each test's own, no network, an encoder made on the spot, and small data with structure."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
from tiny_encoder import write_encoder


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    for package in ("pyarrow", "safetensors"):
        pytest.importorskip(package)
    monkeypatch.setenv("DDCL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("DDCL_DATA", raising=False)
    if find_spec("huggingface_hub") is not None:  # it may have read the variable before
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    if find_spec("transformers") is None:
        pytest.skip("needs transformers (the extra ddcl[text])")
    return write_encoder(tmp_path_factory.mktemp("encoders") / "tiny")


def blobs(rows=200, clusters=4, dim=6, seed=0):
    """Clusters far apart, and which one each row is of."""
    random = np.random.default_rng(seed)
    centers = 8 * np.eye(clusters, dim) + random.normal(size=(clusters, dim))
    of = np.arange(rows) % clusters
    return (centers[of] + 0.3 * random.normal(size=(rows, dim))).astype(np.float32), of


@pytest.fixture
def vectors(tmp_path):
    """A .npy file of four clusters in six dimensions."""
    path = tmp_path / "vectors.npy"
    np.save(path, blobs()[0])
    return path


@pytest.fixture
def labelled(tmp_path):
    """An .npz file of the same with a label for each row."""
    path = tmp_path / "labelled.npz"
    z, of = blobs()
    np.savez(path, z=z, team=np.array(["red", "green", "blue", "red"])[of])
    return path


@pytest.fixture
def messages(tmp_path):
    """A .csv file of short texts from the tiny encoder's few words."""
    path = tmp_path / "messages.csv"
    texts = ["my card was declined", "the cat sat", "my card", "the cats sat the cats"] * 4
    rows = [f"{number},{'bank' if 'card' in text else 'home'},{text}" for number, text in enumerate(texts)]
    path.write_text("\n".join(["number,place,message", *rows]) + "\n", encoding="utf-8")
    return path
