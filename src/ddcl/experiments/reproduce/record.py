"""Records of studies: one line of JSON per run, written as it ends, with all it takes to do it again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ddcl.experiments.reproduce.study import Done, Result, Run

_DIGITS = 6
"""Significant digits kept: more than any spread over seeds, and a record stays small."""


def done(run: Run, result: Result, seconds: float, origin: Mapping[str, Any]) -> Done:
    """A finished run as its record will give it back."""
    epochs = {name: [_short(value) for value in values] for name, values in result.epochs.items()}
    metrics = {name: _short(value) for name, value in result.metrics.items()}
    return Done(_plain(run.described()), metrics, epochs, round(seconds, 2), dict(origin))


def append(finished: Done, path: Path) -> None:
    """Add a line to the record, begun if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # what an interruption cut off must not take this line with it
    broken = path.exists() and not path.read_bytes().endswith(b"\n")
    with path.open("a", encoding="utf-8") as file:
        file.write(("\n" if broken else "") + _line(finished))


def sort(path: Path, runs: Sequence[Run]) -> None:
    """Bring a record that several processes wrote into the order the runs were asked for, others after them."""
    place = {_key(run.described()): i for i, run in enumerate(runs)}
    ordered = sorted(read(path), key=lambda one: place.get(_key(one.run), len(place)))
    partial = path.with_suffix(".partial")
    partial.write_text("".join(map(_line, ordered)), encoding="utf-8")
    os.replace(partial, path)


def _line(finished: Done) -> str:
    found = {
        "run": finished.run,
        "metrics": finished.metrics,
        "epochs": finished.epochs,
        "seconds": finished.seconds,
        "origin": finished.origin,
    }
    return json.dumps(found, allow_nan=True) + "\n"


def read(path: Path) -> list[Done]:
    """All runs of a record; a line cut off by an interruption is left out."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(Done(**json.loads(line)))
        except json.JSONDecodeError:
            continue
    return found


def without(runs: Sequence[Run], finished: Iterable[Done]) -> list[Run]:
    """The runs that no finished one answers, all settings compared."""
    known = {_key(one.run) for one in finished}
    return [run for run in runs if _key(run.described()) not in known]


def those_of(runs: Sequence[Run], finished: Iterable[Done]) -> list[Done]:
    """The finished ones that answer one of these runs."""
    asked = {_key(run.described()) for run in runs}
    return [one for one in finished if _key(one.run) in asked]


def save_arrays(run: Run, result: Result, folder: Path) -> None:
    """What pictures need, one file per run."""
    if result.arrays:
        folder.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, Any] = dict(result.arrays)
        np.savez_compressed(folder / array_file(run.case, run.method, run.seed), **arrays)


def load_arrays(folder: Path, case: str, method: str, seed: int = 0) -> dict[str, np.ndarray]:
    """What :func:`save_arrays` kept; empty if there is none."""
    path = folder / array_file(case, method, seed)
    if not path.exists():
        return {}
    with np.load(path) as stored:
        return {name: stored[name] for name in stored.files}


def array_file(case: str, method: str, seed: int) -> str:
    """A file's name for a run."""
    plain = "".join(c if c.isalnum() else "-" for c in f"{case}--{method}--{seed}".lower())
    return f"{plain}.npz"


def _key(run: Mapping[str, Any]) -> str:
    return json.dumps(_plain(run), sort_keys=True)


def _plain(run: Mapping[str, Any]) -> dict[str, Any]:
    """Through JSON and back: a tuple and the list it comes back as are the same setting."""
    plain: dict[str, Any] = json.loads(json.dumps(run))
    return plain


def _short(value: float) -> float:
    return float(f"{float(value):.{_DIGITS}g}")
