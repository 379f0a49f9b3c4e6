"""Fixtures every test sees: a fixed seed, names for the examples in docstrings, optional shape checks."""

from __future__ import annotations

import os

import pytest
import torch

if not torch.cuda.is_available():
    # before anything loads Triton: the fused kernels are tested everywhere, without a GPU by interpreting them
    os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--check-shapes", action="store_true", help="check jaxtyping annotations at every call")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--check-shapes"):
        from jaxtyping import install_import_hook

        install_import_hook("ddcl", "typechecker.check").__enter__()


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
