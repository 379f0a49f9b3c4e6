"""Encoder and bank together: the time-scale rule, and whether S(P) grows."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, partial
from itertools import pairwise

import torch
from torch import Tensor

from ddcl.experiments.claims.ledger import Claim, MissingError, Numbers, Verdict, fails, holds, holds_if
from ddcl.experiments.claims.problems import blobs, descend, generator, tiny
from ddcl.functional import covariance, critical_temperature, kmeans, readout, separation
from ddcl.rivals.accuracy import accuracy
from ddcl.training import ExponentialSchedule

SLOW, FAST = (0.001, 0.01, 0.1), (0.5, 1.0)
EPOCHS, LONGER = 300, 1000
ALIVE = 0.01
"""S(P) / trace C above which a bank counts as separated."""


@cache
def _digits() -> tuple[Tensor, Tensor]:
    """The 1,797 digits of scikit-learn, centred, in [0, 1], with their labels."""
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise MissingError(
            "needs the digits of scikit-learn, which is not installed: pip install scikit-learn"
        ) from None
    data = load_digits()
    x = torch.tensor(data.data / 16, dtype=torch.float32)
    return x - x.mean(0), torch.tensor(data.target)


@dataclass
class _Run:
    """What became of an encoder and a bank trained together, at the epochs asked for."""

    accuracy: dict[int, float] = field(default_factory=dict)
    separation: dict[int, float] = field(default_factory=dict)
    """S(P) / trace C."""
    trace: dict[int, float] = field(default_factory=dict)
    """trace C over its value at the start."""
    falls: int = 0
    """Epochs of the first 300 in which S(P) fell."""


@cache
def _train(epsilon: float, epochs: int) -> _Run:
    """The paper's ablation: K = 10, PCA to 32 dimensions as linear encoder, T from 2.0 to 0.3, Adam, loss L_q alone."""
    x, labels = _digits()
    encoder = torch.linalg.svd(x, full_matrices=False)[2][:32].T.contiguous().requires_grad_()
    z = (x @ encoder).detach()
    first_trace = float(covariance(z).trace)
    bank = kmeans(z, 10, generator=generator(0)).centers.requires_grad_()
    optimiser = torch.optim.Adam([{"params": [bank], "lr": 0.01}, {"params": [encoder], "lr": 0.01 * epsilon}])
    schedule = ExponentialSchedule(2.0, 0.3, tau=20)
    run, before = _Run(), float(separation(bank.detach()))
    for epoch in range(1, epochs + 1):
        optimiser.zero_grad()
        readout(x @ encoder, bank, schedule.at(epoch - 1)).loss.total.backward()
        optimiser.step()
        now = float(separation(bank.detach()))
        run.falls += now < before and epoch <= EPOCHS
        before = now
        if epoch in (EPOCHS, LONGER):
            z = (x @ encoder).detach()
            trace = float(covariance(z).trace)
            run.accuracy[epoch] = accuracy(readout(z, bank.detach(), 0.3).indices.tolist(), labels.tolist())
            run.separation[epoch] = now / trace
            run.trace[epoch] = trace / first_trace
    return run


def measure_time_scales() -> Numbers:
    """Accuracy and separation at five ratios after 300 epochs, and at 0.1 after 1,000."""
    numbers: dict[str, float] = {}
    for epsilon in (*SLOW, *FAST):
        run = _train(epsilon, LONGER if epsilon == 0.1 else EPOCHS)
        numbers[f"accuracy_{epsilon}"] = run.accuracy[EPOCHS]
        numbers[f"separation_{epsilon}"] = run.separation[EPOCHS]
        if epsilon == 0.1:
            numbers["accuracy_0.1_later"] = run.accuracy[LONGER]
            numbers["separation_0.1_later"] = run.separation[LONGER]
            numbers["trace_0.1_later"] = run.trace[LONGER]
    return numbers


def judge_time_scales(n: Numbers) -> Verdict:
    """Fails if slow and fast encoders do not differ; holds if they do and the slow bank also stands a longer run."""
    shown = [(e, n[f"accuracy_{e}"], n[f"separation_{e}"]) for e in (*SLOW, *FAST)]
    number = f"after {EPOCHS} epochs, ratio: ACC, S / trace C - " + "; ".join(
        f"{e:g}: {a:.2f}, {tiny(s) if s < 0.01 else f'{s:.2f}'}" for e, a, s in shown
    )
    slow = min(n[f"separation_{e}"] for e in SLOW)
    fast = max(n[f"separation_{e}"] for e in FAST)
    worse = max(n[f"accuracy_{e}"] for e in FAST) < min(n[f"accuracy_{e}"] for e in SLOW)
    if slow < ALIVE or fast > ALIVE or not worse:
        return fails(number, "the 1,797 digits, linear encoder")
    example = (
        f"ratio 0.1 for {LONGER:,} epochs: ACC {n['accuracy_0.1_later']:.2f}, S / trace C "
        f"{tiny(n['separation_0.1_later'])}, trace C "
        f"down to {n['trace_0.1_later']:.0%}. A slow encoder puts the collapse off"
    )
    if n["separation_0.1_later"] > ALIVE:
        return holds(number)
    return holds_if("the run is short: at ratio 0.1 the bank collapses too, only later", number, example)


def _loss(z: Tensor, temperature: float, bank: Tensor) -> Tensor:
    return readout(z, bank, temperature).loss.total


def measure_monotone() -> Numbers:
    """Steps at which S(P) falls, with a frozen encoder (ratio 0, the most stable), at fixed T and while T falls."""
    z = blobs(400, centres=8, dim=4, seed=0)
    critical = float(critical_temperature(z))
    numbers: dict[str, float] = {"steps": 200}
    for name, first, last in (("fixed", 0.1, 0.1), ("annealed", 0.5, 0.02)):
        bank = kmeans(z, 8, generator=generator(0)).centers
        values = [float(separation(bank))]
        for step in range(200):
            T = critical * first * (last / first) ** (step / 199)
            bank, _ = descend(partial(_loss, z, T), bank, steps=1, lr=0.5)
            values.append(float(separation(bank)))
        numbers[f"falls_{name}"] = sum(after < before * (1 - 1e-9) for before, after in pairwise(values))
        numbers[f"lowest_{name}"] = min(values) / values[0]
    return numbers


def judge_monotone(n: Numbers) -> Verdict:
    """Holds if S(P) falls at no step, else fails."""
    number = (
        f"with a frozen encoder S(P) falls in {n['falls_fixed']:.0f} of {n['steps']:.0f} steps at 0.1 T_c, and in "
        f"{n['falls_annealed']:.0f} while T falls from 0.5 to 0.02 T_c"
    )
    if not n["falls_fixed"] and not n["falls_annealed"]:
        return holds(number)
    return fails(
        number,
        f"eight groups, K = 8, k-means start: S(P) goes down to {n['lowest_annealed']:.2g} of its start "
        "while the loss falls as "
        "it should. How far apart prototypes should be depends on T",
    )


CLAIMS = (
    Claim(
        "time-scale-rule",
        "An encoder at most 0.1 times as fast as the bank keeps the prototypes apart; at 0.5 or more they collapse.",
        "Thm. 1; Remark 2; Sec. 7.6",
        "fails unless S(P) > 0.01 trace C at ratios up to 0.1 and below from 0.5 on, with lower ACC; "
        "holds if ratio 0.1 also "
        "stands 1,000 epochs; else holds if the run is short",
        measure_time_scales,
        judge_time_scales,
    ),
    Claim(
        "separation-grows-monotonically",
        "In the stable regime S(P) grows monotonically.",
        "Sec. 3.3; Algorithm 1; Sec. 7.6",
        "holds if S(P) falls at no step with the encoder frozen",
        measure_monotone,
        judge_monotone,
    ),
)
