"""The tests of the operation, run where the sources lie next to them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import ddcl

ROOT = Path(ddcl.__file__).parents[2]
TESTS = ("tests/ops", "tests/gpu/test_kernels_on_gpu.py")


class Verdict(NamedTuple):
    """Whether nothing was red, and a line on it."""

    green: bool
    line: str


def run_tests(root: Path = ROOT) -> Verdict:
    """Run them in a process of their own; where there is no checkout, or no pytest, there are none to run."""
    found = [name for name in TESTS if (root / name).exists()]
    if not found:
        return Verdict(True, "tests not run: this is no checkout")
    if importlib.util.find_spec("pytest") is None:
        return Verdict(True, "tests not run: pytest is not installed")
    path = os.pathsep.join(filter(None, [str(root / "src"), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *found],
        cwd=root,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    lines = done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or ["pytest said nothing"]
    return Verdict(done.returncode == 0, f"{' '.join(found)}: {lines[-1].strip('= ')}")
