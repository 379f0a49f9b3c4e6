"""What following the critical temperature and watching for collapse cost in a training step."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

import ddcl
from benchmarks.results import Result, Row, format_table
from benchmarks.timing import Plan, Timing, time_side_by_side

DIM, PROTOTYPES, STEPS = 128, 64, 32
TARGET = 0.02


class _Encoder(nn.Module):
    """Two transformer blocks in front of the layer, all of width 128."""

    def __init__(self) -> None:
        super().__init__()
        block = nn.TransformerEncoderLayer(DIM, nhead=4, dim_feedforward=4 * DIM, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(block, num_layers=2, enable_nested_tensor=False)
        self.layer = ddcl.DDCLAttention(DIM, PROTOTYPES)

    def forward(self, x: Tensor) -> Tensor:
        hidden, readout = self.layer(self.blocks(x))
        loss: Tensor = hidden.square().mean() + readout.loss.total
        return loss


def measure(quick: bool) -> Result:
    """Runs of 32 training steps with and without a schedule and a monitor, taking turns."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows: list[Row] = []
    verdicts = []
    for batch in (2,) if quick else ((256, 4096) if device == "cuda" else (8, 32)):
        timings = _time(batch, device, quick)
        plain = timings["plain"].median
        for name, timing in timings.items():
            rows.append(
                {
                    "benchmark": "watching",
                    "batch": batch,
                    "length": 128,
                    "m": DIM,
                    "K": PROTOTYPES,
                    "watched": name,
                    "step_ms": f"{timing.median / STEPS:.4g}",
                    "p10_ms": f"{timing.p10 / STEPS:.4g}",
                    "p90_ms": f"{timing.p90 / STEPS:.4g}",
                    "cost": f"{timing.median / plain - (name != 'schedule alone'):+.4f}",
                    "runs_on": torch.cuda.get_device_name() if device == "cuda" else "cpu",
                }
            )
        # where a step waits for the host, runs differ by more than following costs: its own time is the sharper figure
        cost, difference = timings["schedule alone"].median / plain, timings["schedule"].median / plain - 1
        answer = "yes" if cost < TARGET else "no"
        verdicts.append(
            f"schedule under {TARGET:.0%} of a step, batch {batch}: {answer} ({cost:.2%} by itself; steps with and "
            f"without it differ by {difference:+.2%})"
        )
    body = [[row[key] for key in ("batch", "watched", "step_ms", "p10_ms", "p90_ms", "cost")] for row in rows]
    return Result(rows, format_table(["batch", "watched", "step ms", "p10", "p90", "cost"], body), verdicts)


def _time(batch: int, device: str, quick: bool) -> dict[str, Timing]:
    torch.manual_seed(0)
    x = torch.randn(batch, 128, DIM, device=device)
    model = _Encoder().to(device)
    optimiser = torch.optim.AdamW(ddcl.param_groups(model, lr=1e-3))
    # one model for all: two of them differ by more than what is measured, if only in where their memory lies
    candidates = {name: partial(_run, name, model, optimiser, x) for name in ("plain", "schedule", "monitor", "both")}
    candidates["schedule alone"] = partial(_follow, model, x)
    plan = Plan(warmup=1, least=1, most=1) if quick else Plan(warmup=2, least=7, most=60, seconds=8)
    return time_side_by_side(candidates, lambda: None, plan)


def _follow(model: _Encoder, x: Tensor) -> None:
    """What the schedule does in 32 steps, without the steps."""
    bank, tokens = model.layer.bank, x
    schedule = ddcl.CriticalSchedule(steps=10_000)
    schedule.time = 1000
    schedule.attach(model).step()
    (hook,) = bank._forward_pre_hooks.values()
    for _ in range(STEPS):
        hook(bank, (tokens,), {})
        schedule.step()
    schedule.detach()
    if x.device.type == "cuda":
        torch.cuda.synchronize()


def _run(name: str, model: _Encoder, optimiser: torch.optim.Optimizer, x: Tensor) -> None:
    """32 steps of the model, watched or not, far into a run; waits for the device once, at the end."""
    on_gpu = x.device.type == "cuda"
    schedule = ddcl.CriticalSchedule(steps=10_000) if name in ("schedule", "both") else None
    monitor = ddcl.CollapseMonitor() if name in ("monitor", "both") else None
    if schedule is not None:
        schedule.time = 1000  # past the first steps, which are all looked at
        schedule.attach(model).step()
    if monitor is not None:
        monitor.attach(model, optimiser=optimiser)
    for _ in range(STEPS):
        with torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=on_gpu):
            loss = model(x)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        if schedule is not None:
            schedule.step()
    for follower in (schedule, monitor):
        if follower is not None:
            follower.detach()
    if on_gpu:
        torch.cuda.synchronize()
