"""``ddcl bench kernels``: checks, measures, records, judges."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from ddcl.experiments.environment import environment, gpu_environment
from ddcl.experiments.kernels import correctness, record, suite
from ddcl.experiments.kernels.candidates import BACKENDS, candidates, usual
from ddcl.experiments.kernels.layer import (
    CPU_LAYER,
    LAYER,
    QUICK_LAYER,
    TRAINING_STEP,
    Layer,
    layer_name,
    measure_layer,
)
from ddcl.experiments.kernels.measuring import measure, reason
from ddcl.experiments.kernels.memory import release
from ddcl.experiments.kernels.problem import Problem
from ddcl.experiments.kernels.rates import measure_rates
from ddcl.experiments.kernels.shapes import CPU_SHAPES, DTYPES, QUICK_SHAPES, SHAPES, Rates, Shape, parse_shape
from ddcl.experiments.kernels.table import table
from ddcl.experiments.kernels.timing import QUICK, Plan
from ddcl.experiments.kernels.verdicts import verdicts


class Asked(NamedTuple):
    """What a run is to measure."""

    shapes: Sequence[Shape]
    names: Sequence[str]
    dtype: str
    device: torch.device
    quick: bool

    @property
    def plan(self) -> Plan:
        """How often to repeat."""
        return QUICK if self.quick else Plan()

    @property
    def layer(self) -> Layer:
        """Whose training step is looked into."""
        return QUICK_LAYER if self.quick else LAYER if self.device.type == "cuda" else CPU_LAYER

    @property
    def backends(self) -> list[str]:
        """Those of the library among the candidates, layers included."""
        named = {name.partition(":")[2] for name in self.names if ":" in name}
        return [backend for backend in BACKENDS if backend in named]


def run(arguments: argparse.Namespace, command: str) -> int:
    """Run the benchmark; 1 if anything was red, and then nothing is measured."""
    try:
        asked = _asked(arguments)
    except ValueError as error:
        print(f"ddcl bench kernels: {error}", file=sys.stderr)
        return 2
    tests = suite.run_tests()
    print(tests.line, file=sys.stderr)
    troubles = [] if tests.green else [tests.line]
    troubles += _check(asked)
    if troubles:
        print("nothing is measured while this is red:", *troubles, sep="\n  ", file=sys.stderr)
        return 1

    rates = _rates(asked)
    print(f"the machine: {_shown(rates)} in {asked.dtype}", flush=True)
    origin = {**environment(command), **gpu_environment(), "tests": tests.line}
    rows, began = _already_measured(arguments), time.monotonic()

    def keep(found: Sequence[record.Row]) -> None:
        rows.extend(found)
        if arguments.out is not None:
            record.append(found, arguments.out, origin)
        for row in found:
            figure = f"{row.median_ms:.4g} ms by {row.timed_by}" if row.median_ms is not None else row.note
            about = f"{row.shape} {row.candidate} {row.kind} {row.item}: {row.status}, {figure}"
            print(f"{time.monotonic() - began:5.0f} s  {about}", file=sys.stderr, flush=True)

    _measure_all(asked, rates, {_key(row) for row in rows}, keep)
    print(table(rows))
    print(f"\nthe machine again, after all: {_shown(_rates(asked))}\n")
    print(*verdicts(rows), sep="\n")
    return 0


def _rates(asked: Asked) -> Rates:
    return measure_rates(asked.device, DTYPES[asked.dtype], asked.plan, quick=asked.quick)


def _shown(rates: Rates) -> str:
    return f"copy {rates.copy / 1e9:.4g} GB/s, matrix product {rates.matrix / 1e12:.4g} TFLOP/s"


def _asked(arguments: argparse.Namespace) -> Asked:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    known = [*candidates(), *map(layer_name, BACKENDS)]
    usually = usual(device, quick=arguments.quick)
    usually += [layer_name(backend) for backend in BACKENDS if f"readout:{backend}" in usually]
    names = arguments.candidates or usually
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"there is no candidate {unknown[0]!r}; known: {', '.join(known)}")
    dtype = arguments.dtype or ("bfloat16" if device.type == "cuda" else "float32")
    if dtype not in DTYPES:
        raise ValueError(f"dtype: got {dtype!r}, expected one of {', '.join(DTYPES)}")
    shapes: Sequence[Shape] = SHAPES if device.type == "cuda" else CPU_SHAPES
    if arguments.quick:
        shapes = QUICK_SHAPES
    if arguments.shapes:
        shapes = [parse_shape(text) for text in arguments.shapes]
    return Asked(shapes, names, dtype, device, arguments.quick)


def _check(asked: Asked) -> list[str]:
    dtype = DTYPES[asked.dtype]
    found = list(correctness.check_ragged(asked.backends, dtype, asked.device))
    for shape in asked.shapes:
        found += correctness.check_measured(asked.backends, shape, dtype, asked.device)
    return found


def _measure_all(
    asked: Asked, rates: Rates, done: set[tuple[str, Shape, str]], keep: Callable[[Sequence[record.Row]], None]
) -> None:
    """Every candidate at every size, then the layers; rows are kept as they come."""
    known = candidates()
    for shape in asked.shapes:
        missing = [name for name in asked.names if name in known and (name, shape, asked.dtype) not in done]
        if not missing:
            continue
        problem = Problem(shape, DTYPES[asked.dtype], asked.device)
        for name in missing:
            keep(measure(known[name], problem, rates, asked.plan))
        del problem
        release(asked.device)
    sizes = asked.layer
    for backend in asked.backends:
        name = layer_name(backend)
        if name not in asked.names or (name, sizes.shape, "bfloat16") in done:
            continue
        try:
            keep(measure_layer(sizes, backend, asked.device, rates, asked.plan))
        except Exception as error:  # a failure is a row
            failed = {"status": record.FAILED, "note": reason(error)}
            keep([record.blank(name, sizes.shape, "bfloat16", TRAINING_STEP, rates, **failed)])
        release(asked.device)


def _already_measured(arguments: argparse.Namespace) -> list[record.Row]:
    """Rows of the file; without --resume it is begun anew."""
    if arguments.out is None or not arguments.out.exists():
        return []
    if not arguments.resume:
        arguments.out.unlink()
        return []
    return record.read(arguments.out)


def _key(row: record.Row) -> tuple[str, Shape, str]:
    return row.candidate, row.shape, row.dtype
