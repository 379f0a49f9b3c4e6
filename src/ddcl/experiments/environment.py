"""Where and with what a result was measured, without naming the machine or its folders."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import torch

from ddcl.version import __version__


def environment(command: str) -> dict[str, str | int]:
    """What every row of a result file ends with."""
    return {
        "command": command,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "device": cpu_name(),
        "cores": os.cpu_count() or 0,
        "threads": torch.get_num_threads(),
        "load": f"{load():.2f}",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "ddcl": __version__,
        "commit": commit(),
    }


def gpu_environment() -> dict[str, str]:
    """What a result measured on a GPU adds; empty entries without one."""
    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = ""
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return {"gpu": name, "cuda": torch.version.cuda or "", "triton": triton}


def load() -> float:
    """How many processes kept the machine busy over the last minute."""
    return os.getloadavg()[0]


def cpu_name() -> str:
    """The processor's name as the system tells it, at worst its architecture."""
    found = _output("lscpu") or ""  # /proc/cpuinfo has no name on ARM
    names = [line.partition(":")[2].strip() for line in found.splitlines() if line.startswith("Model name:")]
    return names[0] if names else _output("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()


def commit() -> str:
    """The commit measured, with ``-dirty`` where the working tree differs from it.

    A copy of the tree without its history is told by the variable DDCL_COMMIT.
    """
    if told := os.environ.get("DDCL_COMMIT"):
        return told
    # results do not change what is measured: writing one must not make the next one dirty
    excluded = (":(top,exclude)benchmarks/results", ":(top,exclude)results")
    changed = _output("git", "status", "--porcelain", "--", ":/", *excluded)
    if changed is None:
        return "unknown"
    return (_output("git", "rev-parse", "--short=12", "HEAD") or "none") + ("-dirty" if changed else "")


def _output(*command: str) -> str | None:
    """What a command prints, None if there is no such command or it fails."""
    if shutil.which(command[0]) is None:
        return None
    done = subprocess.run(
        command, cwd=Path(__file__).parent, env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True
    )
    return done.stdout.strip() if done.returncode == 0 else None
