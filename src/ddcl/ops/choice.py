"""Which backend runs, and why."""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from ddcl.ops.types import BACKENDS, Backend
from ddcl.shapes import Float

LARGEST_DIM = 1024  # of the fused kernels
OLDEST_GPU = 8  # major compute capability with bfloat16 and TF32 matrix units


class Choice(NamedTuple):
    """A backend and why it was taken."""

    backend: str
    reason: str


def choose(
    backend: Backend = "auto",
    z: Float[Tensor, "N H m"] | None = None,
    prototypes: Float[Tensor, "H K m"] | None = None,
) -> Choice:
    """The backend that ``readout`` takes for these tokens and this bank, and why.

    Without tensors: what it takes for tokens in bfloat16 on the current GPU, if there is one.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend: got {backend!r}, expected one of {', '.join(map(repr, BACKENDS))}")
    if backend not in ("auto", "triton"):
        return Choice(backend, "asked for by name")
    if backend == "auto" and z is not None and z.device.type != "cuda":  # before Triton is loaded
        return Choice("eager", f"fused kernels run on NVIDIA GPUs, and z is on {z.device.type}")
    hindrance = _hindrance(z, prototypes)
    if backend == "triton":
        if hindrance is not None:
            raise RuntimeError(f"backend 'triton' cannot run this: {hindrance}; backend='auto' takes what can")
        return Choice("triton", "asked for by name")
    if hindrance is not None:
        return Choice("eager", hindrance)
    return Choice("triton", "fused kernels: one pass over the tokens")


def _hindrance(z: Tensor | None, prototypes: Tensor | None) -> str | None:
    """Why the fused kernels cannot run here, None if they can."""
    device = torch.device("cuda") if z is None else z.device
    if (missing := _no_kernels()) is not None:
        return missing
    if (unfit := _unfit_device(device)) is not None:
        return unfit
    if z is None or prototypes is None:
        return None
    if torch.float64 in (z.dtype, prototypes.dtype):
        return "fused kernels compute in float32, and this is float64"
    if prototypes.shape[-1] > LARGEST_DIM:
        return f"fused kernels take at most {LARGEST_DIM} dimensions, and tokens have {prototypes.shape[-1]}"
    if kernels().Tiles.choose(z, prototypes) is None:
        return f"{prototypes.shape[-1]} dimensions do not fit the shared memory of this GPU"
    return None


@lru_cache  # asking the driver at every call would take longer than launching a kernel
def _unfit_device(device: torch.device) -> str | None:
    if device.type == "cpu":
        return None if kernels().INTERPRETED.value else "fused kernels run on NVIDIA GPUs, and z is on cpu"
    if device.type != "cuda":
        return f"fused kernels run on NVIDIA GPUs, and z is on {device.type}"
    if not torch.cuda.is_available():
        return "there is no GPU"
    if torch.version.cuda is None:
        return "fused kernels are written for NVIDIA GPUs"
    major, minor = torch.cuda.get_device_capability(device)
    if major < OLDEST_GPU:
        return f"fused kernels want compute capability {OLDEST_GPU}.0 or newer, and this GPU has {major}.{minor}"
    return None


@lru_cache
def _no_kernels() -> str | None:
    if importlib.util.find_spec("triton") is None:
        return "the package triton is not installed"
    try:
        kernels()
    except Exception as error:  # whatever keeps Triton from loading, there is another backend
        return f"triton does not load ({type(error).__name__}: {error})"
    return None


def kernels() -> ModuleType:
    """The fused kernels, loaded when first used: loading Triton takes a while, and not every machine has it."""
    return importlib.import_module("ddcl.ops.triton")
