"""Names that the examples in docstrings may use without importing them."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _doctest_names(request: pytest.FixtureRequest) -> None:
    if isinstance(request.node, pytest.DoctestItem):
        import torch

        import ddcl

        torch.manual_seed(0)
        names: dict[str, Any] = {name: getattr(ddcl, name) for name in ddcl.__all__}
        request.getfixturevalue("doctest_namespace").update(names, torch=torch)
