"""What the interpreter cannot see: whether the fused kernels compile for a GPU. None is needed for that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the fused kernels need the package triton")

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "capability"), [("bf16", 90), ("fp32", 80)])
def test_every_kernel_compiles_for_gpus_that_are_not_here(dtype, capability, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/support/compile_kernels.py"), dtype, str(capability)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    compiled = done.stdout.splitlines()
    assert len(compiled) == (11 if capability == 90 and dtype != "fp32" else 6), compiled
