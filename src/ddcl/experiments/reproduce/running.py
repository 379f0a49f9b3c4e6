"""Runs the runs of a study: one after the other or in processes, recorded as they end."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ddcl.experiments.environment import environment, gpu_environment
from ddcl.experiments.reproduce import record
from ddcl.experiments.reproduce.registry import load_study
from ddcl.experiments.reproduce.study import Done, Run

FOLDER = Path("runs") / "reproduce"
"""Where records go unless told otherwise, and where they are looked for."""


class Place(NamedTuple):
    """Where to run and where to write."""

    folder: Path
    device: str = "cpu"
    jobs: int = 1
    threads: int | None = None
    """Of each process; None leaves torch's own choice to one process and gives each of several one thread."""


def run_study(
    name: str,
    runs: Sequence[Run],
    place: Place,
    command: str,
    *,
    resume: bool = False,
    progress: Callable[[int, int, Done], None] | None = None,
) -> list[Done]:
    """Do the runs that are not recorded yet; returns all of them in the order given."""
    path = record_file(place.folder, name)
    if path.exists() and not resume:
        os.replace(path, path.with_suffix(".before"))  # nothing that took hours is lost to a slip
    finished = record.those_of(runs, record.read(path)) if path.exists() else []
    left = record.without(runs, finished)
    for count, one in enumerate(_all(name, left, place, command), start=1):
        record.append(one, path)
        finished.append(one)
        if progress is not None:
            progress(count, len(left), one)
    if place.jobs > 1 and left:
        record.sort(path, runs)
    return in_order(runs, finished)


def in_order(runs: Sequence[Run], finished: Sequence[Done]) -> list[Done]:
    """Finished runs as they were asked for, whoever ended first."""
    position = {(run.case, run.method, run.seed): i for i, run in enumerate(runs)}
    return sorted(finished, key=lambda one: position[one.case, one.method, one.seed])


def record_file(folder: Path, name: str) -> Path:
    """Where a study's record is."""
    return folder / f"{name}.jsonl"


def _all(name: str, runs: Sequence[Run], place: Place, command: str) -> Iterator[Done]:
    if place.jobs == 1:
        for run in runs:
            yield _one(name, run, place, command)
        return
    threads = place._replace(threads=place.threads or 1)
    # a fresh interpreter each: a process with CUDA or threads in it cannot be forked
    with ProcessPoolExecutor(place.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = [pool.submit(_one, name, run, threads, command) for run in runs]
        try:
            for one in as_completed(waiting):
                yield one.result()
        except BaseException:
            # those that have begun end, the others would be done for nothing
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _one(name: str, run: Run, place: Place, command: str) -> Done:
    """One run, its arrays kept, ready for the record."""
    if place.threads is not None:
        torch.set_num_threads(place.threads)
    study = load_study(name)
    origin: dict[str, Any] = environment(command)
    if place.device != "cpu":
        origin |= gpu_environment()
    began = time.monotonic()
    result = study.execute(run, place.device)
    record.save_arrays(run, result, place.folder / f"{name}-arrays")
    return record.done(run, result, time.monotonic() - began, origin)
