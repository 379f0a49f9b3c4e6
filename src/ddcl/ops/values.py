"""Looking at the values of a temperature, where that is possible at all."""

from __future__ import annotations

import torch
from torch import Tensor


def check_positive(temperature: Tensor, *, everywhere: bool) -> None:
    """Refuse a temperature that is not positive and finite; off the CPU only if ``everywhere``, as it waits there.

    While a compiler traces there are no values, and while a CUDA graph is recorded none may be read.
    """
    if torch.compiler.is_compiling() or temperature.is_meta:
        return
    on_cpu = temperature.device.type == "cpu"
    if not on_cpu and (not everywhere or (temperature.is_cuda and torch.cuda.is_current_stream_capturing())):
        return
    good = torch.isfinite(temperature) & (temperature > 0)
    if not bool(good.all()):
        bad = temperature[~good].flatten()[0].item()
        raise ValueError(f"temperature: got {bad}, expected positive finite numbers")
