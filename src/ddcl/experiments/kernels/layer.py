"""A whole training step of the layer behind cached tokens, and what its time goes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import nn
from torch.profiler import record_function

from ddcl import ops
from ddcl.experiments.kernels.profiling import GROUPS, READOUT, group_times, trace
from ddcl.experiments.kernels.record import Row, blank
from ddcl.experiments.kernels.shapes import Rates, Shape
from ddcl.experiments.kernels.timing import Plan, time_calls
from ddcl.nn import DDCLAttention
from ddcl.training import param_groups

TRAINING_STEP = "training step"
_STEPS = 5


class Layer(NamedTuple):
    """Sizes of the layer and of what goes into it."""

    batch: int
    length: int
    dim: int
    proto_dim: int
    num_prototypes: int

    @property
    def shape(self) -> Shape:
        """Of the readout in it."""
        return Shape(self.batch * self.length, self.proto_dim, self.num_prototypes)


LAYER = Layer(256, 512, 768, 64, 64)
CPU_LAYER = Layer(8, 128, 768, 64, 64)
QUICK_LAYER = Layer(2, 12, 16, 8, 5)


def layer_name(backend: str) -> str:
    """What the rows of a layer with that backend are called."""
    return f"layer:{backend}"


def measure_layer(sizes: Layer, backend: str, device: torch.device, rates: Rates, plan: Plan) -> list[Row]:
    """Time of a step, and of each group of its kernels."""
    step = training_step(sizes, backend, device)
    whole = time_calls(lambda _: step(), [None], plan, device)
    row: dict[str, Any] = {
        "timed_by": "events" if device.type == "cuda" else "clock",
        "median_ms": whole.median,
        "p10_ms": whole.p10,
        "p90_ms": whole.p90,
        "repeats": whole.repeats,
    }
    rows = [blank(layer_name(backend), sizes.shape, "bfloat16", TRAINING_STEP, rates, note=str(sizes), **row)]
    groups = group_times(trace(step, _STEPS, device), _STEPS)
    for group in GROUPS:
        row = {"item": group, "timed_by": "profile", "median_ms": groups[group], "repeats": _STEPS}
        rows.append(blank(layer_name(backend), sizes.shape, "bfloat16", TRAINING_STEP, rates, **row))
    return rows


def training_step(sizes: Layer, backend: str, device: torch.device) -> Callable[[], None]:
    """From cached tokens to moved parameters: bfloat16 by autocast, AdamW; the gradient of the hidden states is given.

    No task is added on top: its cost would make the readout look small.
    """
    torch.manual_seed(0)
    layer = DDCLAttention(
        sizes.dim,
        sizes.num_prototypes,
        proto_dim=sizes.proto_dim,
        temperature=2 * sizes.proto_dim / 8,
        backend=cast(ops.Backend, backend),
        device=device,
    )
    _annotate(layer.bank, READOUT)
    optimiser = torch.optim.AdamW(param_groups(layer, lr=1e-3))
    tokens = torch.randn(sizes.batch, sizes.length, sizes.dim, device=device).bfloat16()
    upstream, one = torch.randn_like(tokens, dtype=torch.float32) / tokens.numel(), torch.ones((), device=device)

    def step() -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            hidden, readout = layer(tokens)
        torch.autograd.backward((hidden, readout.loss.total), (upstream.to(hidden.dtype), one))
        optimiser.step()
        optimiser.zero_grad()

    return step


def _annotate(module: nn.Module, name: str) -> None:
    """Let the profiler see where the module's forward begins and ends."""
    forward = module.forward

    def annotated(*args: Any, **kwargs: Any) -> Any:
        with record_function(name):
            return forward(*args, **kwargs)

    module.forward = annotated  # type: ignore[method-assign]
