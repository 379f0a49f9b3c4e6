"""``ddcl doctor`` where there is a GPU: it is named, its backends are tested, the ten seconds hold."""

from __future__ import annotations

import json

import pytest
import torch

from ddcl.cli import main
from ddcl.experiments.health.checks import SECONDS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # PyTorch's own modules warn about each other while compiling
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def test_the_gpu_is_named_and_its_backends_tested(capsys):
    main(["doctor", "--json"])  # compiles the kernels, which may take more than the ten seconds
    capsys.readouterr()
    assert main(["doctor", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["devices"]["gpus"][0]["name"] == torch.cuda.get_device_name(0)
    on_gpu = [check for check in facts["self_test"]["checks"] if "cuda:0" in check["name"]]
    assert len(on_gpu) == 6
    assert all(check["outcome"] == "ok" for check in on_gpu)
    assert facts["self_test"]["seconds"] < SECONDS
