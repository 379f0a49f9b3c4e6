"""A cache of each test's own, no network, and an encoder small enough to be made on the spot."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from tiny_encoder import write_encoder


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    monkeypatch.setenv("DDCL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    if find_spec("transformers") is None:
        pytest.skip("needs transformers (the extra ddcl[text])")
    return write_encoder(tmp_path_factory.mktemp("encoders") / "tiny")


@pytest.fixture
def tiny(tiny_folder):
    from ddcl.data import load_encoder

    return load_encoder(tiny_folder)
