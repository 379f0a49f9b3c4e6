"""One run of texts and one of embeddings for all tests; a test that names prototypes has a copy of its own."""

from __future__ import annotations

import shutil
import warnings
from importlib.util import find_spec

import pytest

import ddcl

NEEDED = ("pyarrow", "safetensors", "transformers", "starlette", "uvicorn", "httpx", "sklearn")
if missing := [package for package in NEEDED if find_spec(package) is None]:
    collect_ignore_glob = ["test_*.py"]
else:
    from explored_runs import text_run, vector_run

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions of it would rather have another package than httpx
        from starlette.testclient import TestClient

    from ddcl.explorer import ExploredRun, application


@pytest.fixture(scope="session")
def texts_folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("explored")
        patch.setenv("DDCL_CACHE", str(folder / "cache"))
        return text_run(folder)


@pytest.fixture(scope="session")
def vectors_folder(tmp_path_factory):
    return vector_run(tmp_path_factory.mktemp("explored-vectors"))


@pytest.fixture(scope="session")
def client_of():
    """A server newly started over a run folder."""
    return lambda folder: TestClient(application(ExploredRun(ddcl.load(folder))), base_url="http://127.0.0.1:8321")


@pytest.fixture(scope="session")
def client(texts_folder, client_of):
    return client_of(texts_folder)


@pytest.fixture(scope="session")
def vectors_client(vectors_folder, client_of):
    return client_of(vectors_folder)


@pytest.fixture
def own_folder(texts_folder, tmp_path):
    return shutil.copytree(texts_folder, tmp_path / "copy")
