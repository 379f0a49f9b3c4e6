"""The tests of the operation, run where the sources lie next to them."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import ddcl

ROOT = Path(ddcl.__file__).parents[2]
TESTS = ("tests/ops", "tests/gpu/test_kernels_on_gpu.py")
MOST_WORKERS = 14


class Verdict(NamedTuple):
    """Whether nothing was red, and a line on it."""

    green: bool
    line: str


def run_tests(root: Path = ROOT) -> Verdict:
    """Run them in processes of their own; where there is no checkout, or no pytest, there are none to run.

    On a GPU compiling the kernels takes most of the time, so the tests are dealt out to as many processes as there are
    cores.
    """
    found = [name for name in TESTS if (root / name).exists()]
    if not found:
        return Verdict(True, "tests not run: this is no checkout")
    if importlib.util.find_spec("pytest") is None:
        return Verdict(True, "tests not run: pytest is not installed")
    names = _collected(root, found)
    if not names:
        return Verdict(False, f"{' '.join(found)}: no test could be collected")
    workers = max(1, min(os.cpu_count() or 1, MOST_WORKERS, len(names)))
    with ThreadPoolExecutor(workers) as pool:
        done = list(pool.map(lambda first: _pytest(root, "-x", *names[first::workers]), range(workers)))
    red = [line for one in done if one.returncode for line in _told(one) if line.startswith(("FAILED", "ERROR"))]
    if any(one.returncode for one in done):
        return Verdict(False, f"{' '.join(found)}: " + ("; ".join(red) or _told(done[0])[-1]))
    skipped = sum(int(count) for one in done for count in re.findall(r"(\d+) skipped", _told(one)[-1]))
    return Verdict(True, f"{' '.join(found)}: {len(names) - skipped} passed, {skipped} skipped")


def _collected(root: Path, files: list[str]) -> list[str]:
    return [line for line in _told(_pytest(root, "--collect-only", *files)) if "::" in line]


def _pytest(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(root / "src"), os.environ.get("PYTHONPATH", "")]))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )


def _told(done: subprocess.CompletedProcess[str]) -> list[str]:
    return done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or ["pytest said nothing"]
