"""``ddcl bench``: measurements that take minutes and leave a record."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ddcl.experiments.environment import environment

if TYPE_CHECKING:
    from ddcl.experiments.collapse.battery import Row
    from ddcl.experiments.collapse.cases import Case

DESCRIPTION = """\
Measure and record. Each benchmark prints a table and, with --out, writes one row per run with the command, versions and
device that made it.

  collapse     the battery: how many runs collapse, by recipe, encoder, data scale, K and learning-rate ratio
  newsgroups   default settings on 20 Newsgroups against k-means with 10 restarts (needs ddcl[text])
  kernels      the operation against what the machine allows: its copy rate and matrix rate, then for each size the
               floor they set, and times and peak memory of the library's backends, of the formula in plain PyTorch and
               by torch.compile, of attention in its place, and of other mechanisms (where installed: ddcl[rivals]),
               forward and as a training step; last, what a training step of DDCLAttention spends its time on. On a GPU
               if there is one; memory is measured there alone. "Timed by" says how: events around calls include what
               the host does, replays of a CUDA graph are the device alone. First the backends are held against the
               definition, and the tests of the operation run where there is a checkout: if anything is red, nothing is
               measured.
"""
EPILOG = """\
examples:
  ddcl bench collapse --quick                         a corner of the grid, a minute or two
  ddcl bench collapse --jobs 16 --out results/collapse.csv
  ddcl bench newsgroups --seeds 20 --out results/newsgroups.csv
  ddcl bench kernels --out results/kernels.csv
  ddcl bench kernels --shapes 2^20,64,16 2^18,256,1024 --candidates plain readout:eager
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("name", choices=("collapse", "newsgroups", "kernels"), help="which benchmark")
    parser.add_argument("--quick", action="store_true", help="a small part of it, to see that it runs")
    parser.add_argument("--methods", nargs="+", metavar="METHOD", help="collapse: these recipes alone")
    parser.add_argument("--seeds", type=int, metavar="N", help="seeds 0 to N - 1 (collapse: 2, newsgroups: 5)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="collapse: processes of one thread each")
    parser.add_argument("--resume", action="store_true", help="not newsgroups: keep the rows in FILE, run the others")
    parser.add_argument("--shapes", nargs="+", metavar="N,m,K", help="kernels: these sizes alone, such as 2^20,64,16")
    parser.add_argument("--candidates", nargs="+", metavar="NAME", help="kernels: these alone; a wrong name lists them")
    parser.add_argument("--dtype", help="kernels: bfloat16 (on a GPU), float16 or float32 (on a CPU)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the rows to this CSV file")


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark asked for."""
    return {"collapse": _collapse, "newsgroups": _newsgroups, "kernels": _kernels}[arguments.name](arguments)


def _collapse(arguments: argparse.Namespace) -> int:
    from ddcl.experiments.collapse import METHODS, battery, grid, quick_grid

    methods = arguments.methods or list(METHODS)
    unknown = [name for name in methods if name not in METHODS]
    if unknown:
        print(f"ddcl bench collapse: there is no method {unknown[0]!r}; known: {', '.join(METHODS)}", file=sys.stderr)
        return 2
    seeds = range(arguments.seeds or 2)
    cases = quick_grid(methods) if arguments.quick else grid(methods, seeds=tuple(seeds))
    done = _already_run(arguments, set(cases))
    cases = [case for case in cases if case not in {row.case for row in done}]
    origin, began = environment(_command("collapse", arguments)), time.monotonic()

    def progress(count: int, row: battery.Row) -> None:
        if arguments.out is not None:
            battery.append(row, arguments.out, origin)
        if sys.stderr.isatty() or count % 100 == 0:
            left = (time.monotonic() - began) / count * (len(cases) - count)
            bad = " ".join(row.outcome.reasons)
            print(f"{count} / {len(cases)}, about {left:.0f} s left: {row.case} {bad}", file=sys.stderr)

    print(battery.summary([*done, *battery.run_all(cases, jobs=arguments.jobs, progress=progress)]))
    return 0


def _already_run(arguments: argparse.Namespace, asked: set[Case]) -> list[Row]:
    """Rows of the file that need no second run; without --resume the file is begun anew."""
    from ddcl.experiments.collapse import battery

    if arguments.out is None or not arguments.out.exists():
        return []
    if not arguments.resume:
        arguments.out.unlink()
        return []
    return [row for row in battery.read(arguments.out) if row.case in asked]


def _newsgroups(arguments: argparse.Namespace) -> int:
    from ddcl.experiments import newsgroups
    from ddcl.experiments.records import write_rows

    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # everything comes from this machine
    seeds = range(1 if arguments.quick else arguments.seeds or 5)
    origin = environment(_command("newsgroups", arguments))
    try:
        found = newsgroups.run_all(seeds, progress=lambda one: print(one, file=sys.stderr))
    except (FileNotFoundError, ImportError) as missing:
        print(f"ddcl bench newsgroups: {missing}", file=sys.stderr)
        return 2
    if not arguments.quick:
        print(newsgroups.summary(found))
    if arguments.out is not None:
        write_rows(newsgroups.rows(found), arguments.out, origin)
    return 0


def _kernels(arguments: argparse.Namespace) -> int:
    from ddcl.experiments.kernels import command

    return command.run(arguments, _command("kernels", arguments))


def _command(name: str, arguments: argparse.Namespace) -> str:
    """What was asked for, without the paths of this machine."""
    parts = ["ddcl bench", name]
    parts += ["--quick"] if arguments.quick else []
    parts += ["--methods", *(repr(one) for one in arguments.methods)] if arguments.methods else []
    parts += ["--seeds", str(arguments.seeds)] if arguments.seeds else []
    for option in ("shapes", "candidates"):
        parts += [f"--{option}", *getattr(arguments, option)] if getattr(arguments, option) else []
    parts += ["--dtype", arguments.dtype] if arguments.dtype else []
    return " ".join(parts)
