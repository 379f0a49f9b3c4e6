"""The two ceilings of a machine, measured: how fast it copies and how fast it multiplies matrices."""

from __future__ import annotations

import torch

from ddcl.experiments.kernels.shapes import Rates
from ddcl.experiments.kernels.timing import Plan, time_calls


def measure_rates(device: torch.device, dtype: torch.dtype, plan: Plan, *, quick: bool) -> Rates:
    """A copy far larger than any cache, and a product of square matrices of random numbers (zeros would run faster)."""
    on_gpu = device.type == "cuda" and not quick
    count, side = (2**30, 8192) if on_gpu else (2**20, 128) if quick else (2**26, 1024)
    source = torch.empty(count, dtype=torch.uint8, device=device).random_(256)
    target = torch.empty_like(source)
    copying = time_calls(lambda _: target.copy_(source), [None], plan, device)
    left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    product = torch.empty_like(left)
    multiplying = time_calls(lambda _: torch.mm(left, right, out=product), [None], plan, device)
    return Rates(copy=2 * count / (1e-3 * copying.median), matrix=2 * side**3 / (1e-3 * multiplying.median))
