"""How long ``import ddcl`` takes beyond the import of torch."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.results import Result, Row, format_table
from benchmarks.timing import summarise

TARGET_SECONDS = 0.5

_SCRIPT = """
import json, time
start = time.perf_counter()
import torch
loaded = time.perf_counter()
import ddcl
print(json.dumps({"torch": loaded - start, "ddcl beyond torch": time.perf_counter() - loaded}))
"""


def measure(quick: bool) -> Result:
    """Import times in fresh processes."""
    if not quick:
        _import_once()  # fills the file cache and, where Python may, writes byte code
    runs = [_import_once() for _ in range(1 if quick else 7)]
    timings = {name: summarise([run[name] for run in runs]) for name in runs[0]}
    rows: list[Row] = [
        {
            "benchmark": "import",
            "module": name,
            "median_s": f"{timing.median:.4f}",
            "p10_s": f"{timing.p10:.4f}",
            "p90_s": f"{timing.p90:.4f}",
            "repeats": timing.repeats,
        }
        for name, timing in timings.items()
    ]
    table = format_table(["module", "median s", "p10", "p90"], [list(row.values())[1:-1] for row in rows])
    median = timings["ddcl beyond torch"].median
    answer = "yes" if median < TARGET_SECONDS else "no"
    return Result(rows, table, [f"imported within {TARGET_SECONDS} s beyond torch: {answer} ({median:.3f} s)"])


def _import_once() -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True)
    times: dict[str, float] = json.loads(done.stdout)
    return times
