"""Every benchmark by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from benchmarks import blocks, core, exploring, exporting, fitting, import_time, watching
from benchmarks.results import Result


class Benchmark(NamedTuple):
    """What a benchmark is for, and how to run it (quickly, or in earnest)."""

    help: str
    measure: Callable[[bool], Result]


BENCHMARKS = {
    "core": Benchmark("time and memory of the readout on the CPU, against plain PyTorch", core.measure),
    "import": Benchmark("time of `import ddcl` beyond torch's own import", import_time.measure),
    "watching": Benchmark("cost of temperature schedule and collapse monitor in a training step", watching.measure),
    "fit": Benchmark("`ddcl fit` on a million embeddings, against scikit-learn's MiniBatchKMeans", fitting.measure),
    "explorer": Benchmark("how long `ddcl explore` takes to answer for a typed sentence", exploring.measure),
    "export": Benchmark(
        "exported programs on the CPU, against the fitted model they were made from", exporting.measure
    ),
    "blocks": Benchmark("time of the readout by block size, for the constant in ddcl.ops.blocks", blocks.measure),
}
