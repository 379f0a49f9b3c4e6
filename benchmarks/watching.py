"""What following the critical temperature and watching for collapse cost in a training step."""

from __future__ import annotations

from collections.abc import Callable

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
    for batch in (2,) if quick else ((256, 1024) if device == "cuda" else (8, 32)):
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
                    "cost": f"{timing.median / plain - 1:+.4f}",
                    "runs_on": torch.cuda.get_device_name() if device == "cuda" else "cpu",
                }
            )
        cost = timings["schedule"].median / plain - 1
        answer = "yes" if cost < TARGET else "no"
        verdicts.append(f"schedule under {TARGET:.0%} of a step, batch {batch}: {answer} ({cost:+.2%})")
    body = [[row[key] for key in ("batch", "watched", "step_ms", "p10_ms", "p90_ms", "cost")] for row in rows]
    return Result(rows, format_table(["batch", "watched", "step ms", "p10", "p90", "cost"], body), verdicts)


def _time(batch: int, device: str, quick: bool) -> dict[str, Timing]:
    torch.manual_seed(0)
    x = torch.randn(batch, 128, DIM, device=device)
    candidates = {name: _candidate(name, x, device) for name in ("plain", "schedule", "monitor", "both")}
    plan = Plan(warmup=1, least=1, most=1) if quick else Plan(warmup=1, least=7, most=30, seconds=6)
    return time_side_by_side(candidates, lambda: None, plan)


def _candidate(name: str, x: Tensor, device: str) -> Callable[[], None]:
    """32 steps of one model, watched or not; waits for the device once, at the end."""
    model = _Encoder().to(device)
    optimiser = torch.optim.AdamW(ddcl.param_groups(model, lr=1e-3))
    schedule = ddcl.CriticalSchedule(steps=10_000).attach(model) if name in ("schedule", "both") else None
    if name in ("monitor", "both"):
        ddcl.CollapseMonitor().attach(model, optimiser=optimiser)

    def run() -> None:
        for _ in range(STEPS):
            with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
                loss = model(x)
            loss.backward()
            optimiser.step()
            optimiser.zero_grad()
            if schedule is not None:
                schedule.step()
        if device == "cuda":
            torch.cuda.synchronize()

    return run
