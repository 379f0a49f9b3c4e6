"""The runner: measures one benchmark, prints its table and verdicts, and writes its results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.registry import BENCHMARKS
from ddcl.experiments.environment import environment, load
from ddcl.experiments.records import write_rows

RESULTS = Path(__file__).parent / "results"
BUSY = 0.5  # load average before the first measurement


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``python -m benchmarks NAME [--quick] [--out PATH]``."""
    options = _parser().parse_args(argv)
    # the path of --out is left out: results name no folder of the machine they were made on
    origin = environment(f"python -m benchmarks {options.name}{' --quick' if options.quick else ''}")
    if load() > BUSY:
        # taking turns evens out drift, not contention: threads waiting for a core slow some operations more than others
        print(f"the machine is busy (load {load():.2f}): the ratios may not be those of a quiet one", file=sys.stderr)
    result = BENCHMARKS[options.name].measure(options.quick)
    print(result.table, *result.verdicts, sep="\n")
    out = options.out or (None if options.quick else RESULTS / f"{options.name}.csv")
    if out is not None:
        write_rows(result.rows, out, origin)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog="\n".join(f"{name:8} {benchmark.help}" for name, benchmark in BENCHMARKS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=BENCHMARKS, help="what to measure, see below")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs; writes no results")
    parser.add_argument("--out", type=Path, help="where to write the results (default: benchmarks/results/NAME.csv)")
    return parser
