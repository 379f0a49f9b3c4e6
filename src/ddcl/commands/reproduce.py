"""``ddcl reproduce``: a table or figure of the paper, run again, recorded and drawn."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path

import torch

from ddcl.experiments.reproduce import STUDIES, Run, Study, load_study
from ddcl.experiments.reproduce.running import FOLDER, Place, run_study
from ddcl.experiments.reproduce.study import Done
from ddcl.experiments.reproduce.summary import sentences, table

_LISTED = "\n".join(f"  {name:<11} {entry.purpose}" for name, entry in STUDIES.items())
DESCRIPTION = f"""\
Run a table or figure of the paper again: its recipe, the library's defaults and honest baselines, over seeds, beside
the figures the paper reports.

{_LISTED}

Each run is recorded as it ends (one line of JSON: settings, seed, figures over the epochs, versions, device), so an
interrupted study goes on with --resume. Data come from the folder DDCL_DATA names, or from their public homes; see
docs/data.md.
"""
EPILOG = """\
examples:
  ddcl reproduce debris                          ten minutes on a laptop
  ddcl reproduce --all --quick                   a corner of everything
  ddcl reproduce vq --device cuda --jobs 8       the whole of Table 5 needs a GPU
  ddcl reproduce readout --cases SST-2 --seeds 3
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", metavar="NAME", help="which: " + ", ".join(STUDIES))
    parser.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument("--quick", action="store_true", help="fewer cases, epochs and seeds: under two minutes each")
    parser.add_argument("--seeds", type=int, metavar="N", help="seeds 0 to N - 1 (5; 3 on CIFAR-10; 1 with --quick)")
    parser.add_argument("--cases", nargs="+", metavar="TEXT", help="only cases whose name holds one of these")
    parser.add_argument("--methods", nargs="+", metavar="TEXT", help="only methods whose name holds one of these")
    parser.add_argument("--device", default="cpu", help="cpu (the default) or cuda")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at a time, each in its own process")
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="FOLDER", help=f"records and pictures ({FOLDER})")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="keep what the record has, run the rest; without it a record that is there becomes NAME.before",
    )
    parser.add_argument("--no-figures", action="store_true", help="numbers alone")


def run(arguments: argparse.Namespace) -> int:
    """Run the studies asked for; 2 if something they need is not there."""
    names = list(STUDIES) if arguments.all else list(arguments.names)
    unknown = [name for name in names if name not in STUDIES]
    if unknown or not names:
        said = f"there is no study {unknown[0]!r}" if unknown else "name a study, or --all"
        print(f"ddcl reproduce: {said}; known: {', '.join(STUDIES)}", file=sys.stderr)
        return 2
    if arguments.device.startswith("cuda") and not torch.cuda.is_available():
        print(f"ddcl reproduce: --device: got {arguments.device}, but torch sees no CUDA device here", file=sys.stderr)
        return 2
    for option in ("seeds", "jobs"):
        if getattr(arguments, option) is not None and getattr(arguments, option) < 1:
            given = getattr(arguments, option)
            print(f"ddcl reproduce: --{option}: got {given}, expected at least 1", file=sys.stderr)
            return 2
    return max(_study(name, arguments) for name in names)


def _study(name: str, arguments: argparse.Namespace) -> int:
    try:
        study = load_study(name)
        runs = _chosen(study, arguments)
        if not runs:
            print(f"ddcl reproduce {name}: no run has such a case and method", file=sys.stderr)
            return 2
        place = Place(arguments.out, arguments.device, arguments.jobs)
        finished = run_study(name, runs, place, command(name, arguments), resume=arguments.resume, progress=_Line(name))
    except (FileNotFoundError, ImportError) as missing:
        print(f"ddcl reproduce {name}: {missing}", file=sys.stderr)
        return 2
    shown = page(study, finished)
    (arguments.out / f"{name}.md").write_text(shown + "\n", encoding="utf-8")
    print(shown)
    if not arguments.no_figures:
        _draw(name, arguments.out, finished)
    return 0


def page(study: Study, finished: list[Done]) -> str:
    """The table and what its numbers say."""
    parts = [f"## {study.title} ({study.shows})", table(study, finished), sentences(study, finished)]
    return "\n\n".join(part for part in parts if part)


def command(name: str, arguments: argparse.Namespace) -> str:
    """What was asked for, without the paths of this machine."""
    parts = ["ddcl reproduce", name]
    parts += ["--quick"] if arguments.quick else []
    parts += ["--seeds", str(arguments.seeds)] if arguments.seeds else []
    for option in ("cases", "methods"):
        parts += [f"--{option}", *map(shlex.quote, getattr(arguments, option))] if getattr(arguments, option) else []
    parts += ["--device", arguments.device] if arguments.device != "cpu" else []
    return " ".join(parts)


def _chosen(study: Study, arguments: argparse.Namespace) -> list[Run]:
    seeds = arguments.seeds or (1 if arguments.quick else study.seeds)

    def wanted(name: str, parts: list[str] | None) -> bool:
        return not parts or any(part.lower() in name.lower() for part in parts)

    return [
        run
        for run in study.runs(arguments.quick, seeds)
        if wanted(run.case, arguments.cases) and wanted(run.method, arguments.methods)
    ]


def _draw(name: str, folder: Path, finished: list[Done]) -> None:
    try:
        from ddcl.report.reproduction import draw

        for path in draw(name, folder, finished=finished):
            print(f"drawn: {path}", file=sys.stderr)
    except ImportError as missing:
        print(f"no pictures: {missing}", file=sys.stderr)


class _Line:
    """One line to stderr per run, with the time that is left."""

    def __init__(self, name: str) -> None:
        self.name, self.began = name, time.monotonic()

    def __call__(self, count: int, total: int, one: Done) -> None:
        left = (time.monotonic() - self.began) / count * (total - count)
        shown = ", ".join(f"{key} {value:.4g}" for key, value in list(one.metrics.items())[:4])
        line = f"{self.name} {count} / {total}, {left:.0f} s left: {one.case}; {one.method}; seed {one.seed}: {shown}"
        print(line, file=sys.stderr, flush=True)
