"""What is on this machine: versions, packages, devices, backends, encoders, data, cache; nothing is fetched."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ddcl.data import available, available_encoders
from ddcl.data.folder import data_folder
from ddcl.data.shards import cache_folder
from ddcl.experiments.environment import cpu_name
from ddcl.experiments.health.packages import Group, package_groups
from ddcl.functional import backend_for
from ddcl.version import __version__

DTYPES = (torch.float32, torch.bfloat16, torch.float64)


@dataclass(frozen=True)
class Gpu:
    """A CUDA device."""

    index: int
    name: str
    memory_bytes: int
    capability: str


@dataclass(frozen=True)
class Devices:
    """What can compute."""

    cpu: str
    cores: int
    usable_cores: int
    """Of them, those this process may use."""
    threads: int
    """That torch takes."""
    gpus: tuple[Gpu, ...]
    no_gpu: str
    """Why there is no CUDA device; empty if there is one."""


@dataclass(frozen=True)
class ChosenBackend:
    """What runs a readout of such tokens."""

    device: str
    dtype: str
    backend: str
    reason: str


@dataclass(frozen=True)
class FoundEncoder:
    """As ``ddcl.data.available_encoders`` tells it."""

    name: str
    where: str
    folder: str
    dimension: int | None
    weight_bytes: int


@dataclass(frozen=True)
class FoundSet:
    """As ``ddcl.data.available`` tells it."""

    name: str
    where: str | None
    splits: tuple[str, ...]


@dataclass(frozen=True)
class Data:
    """The user's data folder, and the sets in it and elsewhere."""

    folder: str | None
    exists: bool
    sets: tuple[FoundSet, ...]


@dataclass(frozen=True)
class Cache:
    """Where embeddings are kept."""

    folder: str
    files: int
    bytes: int
    free_bytes: int
    """On its disk."""


@dataclass(frozen=True)
class Findings:
    """Everything there is to know before the self-test."""

    versions: dict[str, str]
    packages: tuple[Group, ...]
    devices: Devices
    backends: tuple[ChosenBackend, ...]
    encoders: tuple[FoundEncoder, ...]
    data: Data
    cache: Cache


def examine() -> Findings:
    """Look at everything once."""
    devices = find_devices()
    return Findings(
        versions=_versions(),
        packages=tuple(package_groups()),
        devices=devices,
        backends=tuple(chosen_backends(devices)),
        encoders=tuple(
            FoundEncoder(one.name, one.where, str(one.folder), one.dimension, one.weight_bytes)
            for one in available_encoders()
        ),
        data=_data(),
        cache=_cache(),
    )


def find_devices() -> Devices:
    """The processor and every CUDA device."""
    gpus, no_gpu = _gpus()
    cores = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores  # Linux alone can tell
    return Devices(cpu_name(), cores, usable, torch.get_num_threads(), gpus, no_gpu)


def chosen_backends(devices: Devices) -> list[ChosenBackend]:
    """The backend of a small problem on every device, in every dtype."""
    found = []
    for device in ["cpu", *(f"cuda:{gpu.index}" for gpu in devices.gpus)]:
        for dtype in DTYPES:
            tokens = torch.zeros(64, 16, device=device, dtype=dtype)
            found.append(ChosenBackend(device, _name(dtype), *backend_for(tokens, tokens[:8])))
    return found


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _versions() -> dict[str, str]:
    return {
        "ddcl": f"{__version__} in {Path(__file__).parents[2]}",
        "Python": f"{platform.python_version()}, {sys.executable}",
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "CUDA": torch.version.cuda or "none",
        "system": platform.platform(),
    }


def _gpus() -> tuple[tuple[Gpu, ...], str]:
    with warnings.catch_warnings(record=True) as said:  # torch tells of an unfit driver by a warning
        warnings.simplefilter("always")
        there = torch.cuda.is_available()
    if there:
        return tuple(_gpu(index) for index in range(torch.cuda.device_count())), ""
    if said:
        return (), str(said[0].message).partition("\n")[0]
    if torch.version.cuda is None:
        return (), "this torch is built without CUDA"
    return (), f"torch is built for CUDA {torch.version.cuda} and finds no device"


def _gpu(index: int) -> Gpu:
    properties = torch.cuda.get_device_properties(index)
    return Gpu(index, properties.name, properties.total_memory, f"{properties.major}.{properties.minor}")


def _data() -> Data:
    folder = data_folder()
    sets = tuple(FoundSet(one.name, one.where, one.splits) for one in available())
    return Data(None if folder is None else str(folder), folder is not None and folder.is_dir(), sets)


def _cache() -> Cache:
    folder = cache_folder()
    sizes = []
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append(os.stat(os.path.join(place, name)).st_size)
            except OSError:  # another process has just put it in its place
                continue
    there = next((path for path in (folder, *folder.absolute().parents) if path.is_dir()), Path.cwd())
    return Cache(str(folder), len(sizes), sum(sizes), shutil.disk_usage(there).free)
