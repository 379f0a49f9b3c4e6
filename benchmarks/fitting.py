"""``ddcl fit`` on many embeddings in a .npy file, against scikit-learn's MiniBatchKMeans on the same file."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.results import Result, Row, format_table

ROWS, DIM, PROTOTYPES = 1_000_000, 384, 100
QUICK = (3000, 16, 8)
CLUSTERS_PER_PROTOTYPE = 3
"""More than there are prototypes: no method can find them all."""
TURNS = 2
MEMORY_GB, TIMES_SLOWER = 4.0, 3.0

# each in a process of its own, so that the high-water mark of memory is its own; imports are not timed
_MEASURED = """
import json, resource, sys, time, warnings
path, K, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
{imports}
began = time.perf_counter()
{work}
seconds = time.perf_counter() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, KiB elsewhere
print(json.dumps(dict(seconds=seconds, peak_mib=peak / unit, distortion=distortion)))
"""
_METHODS = {
    "ddcl fit": _MEASURED.format(
        imports="from pathlib import Path\nfrom ddcl.fitting.run import Request, Telling, fit",
        work=(
            "request = Request(Path(path), Path(out), prototypes=K)\n"
            "folder = fit(request, Telling(say=lambda said: None, watch=lambda progress, figures: None))\n"
            "distortion = folder.config['result']['distortion']"
        ),
    ),
    "MiniBatchKMeans": _MEASURED.format(
        imports="import numpy\nfrom sklearn.cluster import MiniBatchKMeans",
        work=(
            "z = numpy.load(path, mmap_mode='r')\n"
            "distortion = MiniBatchKMeans(K, random_state=0).fit(z).inertia_ / len(z)"
        ),
    ),
}


def measure(quick: bool) -> Result:
    """Time, memory and distortion of both, which take turns; the shortest time of each counts."""
    rows, dim, prototypes = QUICK if quick else (ROWS, DIM, PROTOTYPES)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "embeddings.npy")
        _write_embeddings(path, rows, dim, CLUSTERS_PER_PROTOTYPE * prototypes)
        turns = [
            {name: _run(code, path, prototypes, Path(folder, f"run-{turn}")) for name, code in _METHODS.items()}
            for turn in range(1 if quick else TURNS)
        ]
    found = {name: min((turn[name] for turn in turns), key=lambda one: one["seconds"]) for name in _METHODS}
    records: list[Row] = [
        {
            "benchmark": "fit",
            "method": name,
            "N": rows,
            "m": dim,
            "K": prototypes,
            "turns": len(turns),
            "seconds": f"{one['seconds']:.2f}",
            "peak_mib": f"{one['peak_mib']:.0f}",
            "distortion": f"{one['distortion']:.6g}",
        }
        for name, one in found.items()
    ]
    header = ["method", "N", "m", "K", "turns", "seconds", "peak MiB", "distortion"]
    return Result(records, format_table(header, [list(row.values())[1:] for row in records]), _verdicts(found))


def _verdicts(found: dict[str, dict[str, float]]) -> list[str]:
    ours, theirs = found["ddcl fit"], found["MiniBatchKMeans"]
    slower = ours["seconds"] / theirs["seconds"]
    worse = ours["distortion"] / theirs["distortion"]
    gigabytes = ours["peak_mib"] / 1024
    return [
        f"under {MEMORY_GB:g} GB: {_answer(gigabytes < MEMORY_GB)} ({gigabytes:.2f} GiB)",
        f"slower by at most {TIMES_SLOWER:g}: {_answer(slower <= TIMES_SLOWER)} (factor {slower:.2f})",
        f"equal or better distortion: {_answer(worse <= 1)} (factor {worse:.4f})",
    ]


def _answer(holds: bool) -> str:
    return "yes" if holds else "no"


def _run(code: str, path: Path, prototypes: int, out: Path) -> dict[str, float]:
    command = [sys.executable, "-c", code, str(path), str(prototypes), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    print(f"{found}", file=sys.stderr, flush=True)
    return found


def _write_embeddings(path: Path, rows: int, dim: int, clusters: int) -> None:
    """Unit vectors about cluster centres of very different weight, as those of texts are; written piece by piece."""
    random = np.random.default_rng(0)
    centers = random.standard_normal((clusters, dim), dtype=np.float32)
    weights = 1 / np.arange(1, clusters + 1)
    whole = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, dim))
    for start in range(0, rows, 2**14):
        piece = whole[start : start + 2**14]
        chosen = random.choice(clusters, len(piece), p=weights / weights.sum())
        z = 0.6 * centers[chosen] + random.standard_normal(piece.shape, dtype=np.float32)
        piece[:] = z / np.linalg.norm(z, axis=1, keepdims=True)
    whole.flush()
