"""A few seconds of what the library promises, run on this machine and judged by numbers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from ddcl.experiments.claims.problems import extent, normal, stretched
from ddcl.experiments.health.findings import ChosenBackend
from ddcl.functional import critical_temperature, readout, soft_kmeans_step
from ddcl.ops import Gradient, TokenTerms

Outcome = Literal["ok", "FAILED", "not run"]
SECONDS = 10.0
"""No check begins later than this."""
MODES: tuple[Gradient, ...] = ("full", "stop")
TERMS = TokenTerms._fields[1:-1]  # the losses: without the centroid, which comes first, and the indices
# as far as the backends' own tests let them err
LARGEST_ERROR = {"float32": 1e-4, "bfloat16": 2e-2, "float64": 1e-10}
# losses of tokens in bfloat16 are computed in float32
LARGEST_GAP = {"float32": 1e-4, "bfloat16": 1e-4, "float64": 1e-10}


@dataclass(frozen=True)
class Check:
    """One promise and what became of it."""

    name: str
    outcome: Outcome
    value: float | None
    """What was measured; None if nothing was, or nothing finite."""
    said: str
    """The number beside its limit, or what went wrong."""
    seconds: float


@dataclass(frozen=True)
class Trial:
    """How a promise is put to the test: a number and its limit."""

    name: str
    quantity: str
    """What the number is."""
    measure: Callable[[], float]
    limit: float
    at_least: bool = False
    """Whether the number must reach the limit; otherwise it must not pass it."""

    def run(self) -> Check:
        """Measure and judge; an error is a failure, with its message."""
        began = time.monotonic()
        try:
            value = self.measure()
        except Exception as error:  # whatever it is, the remaining checks are worth running
            first = (str(error).splitlines() or [""])[0]
            return Check(self.name, "FAILED", None, f"{type(error).__name__}: {first}", time.monotonic() - began)
        passed = value >= self.limit if self.at_least else value <= self.limit  # NaN is neither
        said = f"{self.quantity} {value:.2g}, {'at least' if self.at_least else 'at most'} {self.limit:g}"
        shown = value if math.isfinite(value) else None
        return Check(self.name, "ok" if passed else "FAILED", shown, said, time.monotonic() - began)


def self_test(backends: Iterable[ChosenBackend], seconds: float = SECONDS) -> Iterator[Check]:
    """The checks, one after the other as they are done.

    On a GPU the first call of a kernel compiles it, so what runs there comes last; what would begin after ``seconds``
    is not run, and says so.
    """
    began = time.monotonic()
    for trial in trials(backends):
        if time.monotonic() - began < seconds:
            yield trial.run()
        else:
            yield Check(trial.name, "not run", None, f"the {seconds:g} seconds were over", 0.0)


def trials(backends: Iterable[ChosenBackend]) -> list[Trial]:
    """What is tested where these backends were chosen."""
    chosen = sorted(backends, key=lambda one: one.device != "cpu")
    on_cpu = [one for one in chosen if one.device == "cpu"]
    theory = [
        Trial("a merged bank opens at 0.9 T_c", "growth", partial(growth, 0.9), 10.0, at_least=True),
        Trial("a merged bank closes at 1.1 T_c", "growth", partial(growth, 1.1), 0.1),
        Trial("soft k-means finds planted clusters", "distance", planted_distance, 1.0),
    ]
    return [*_on(on_cpu), *theory, *_on(chosen[len(on_cpu) :])]


def _on(backends: list[ChosenBackend]) -> list[Trial]:
    found = []
    for one in backends:
        place = f"{one.backend}, {one.device}, {one.dtype}"
        found += [
            Trial(f"L = R + V ({place})", "error", partial(identity_error, one), LARGEST_GAP[one.dtype]),
            Trial(f"gradients ({place})", "error", partial(gradient_error, one), LARGEST_ERROR[one.dtype]),
        ]
    return found


def identity_error(chosen: ChosenBackend) -> float:
    """The largest of :math:`|L - R - V| / L` over tokens."""
    z, prototypes = _problem(chosen)
    loss = readout(z, prototypes, 2.0).per_token
    return float(((loss.total - loss.reconstruction - loss.variance).abs() / loss.total).max())


def gradient_error(chosen: ChosenBackend) -> float:
    """How far every loss, centroid and gradient is from the definition's, relative, at worst; both modes, a mask."""
    z, prototypes = _problem(chosen)
    worst = []
    for mode in MODES:
        found = _outputs(z, prototypes, mode, "auto")
        exact = _outputs(z.double(), prototypes.double(), mode, "reference")
        for one, other in zip(found, exact, strict=True):
            size = other.norm().clamp_min(1e-12)  # in mode stop nothing depends on T: that gradient is 0
            worst.append((one.double() - other).norm() / size)
    return float(torch.stack(worst).max())  # NaN if one is


def growth(multiple: float) -> float:
    """By what factor a bank opens that descends, at a multiple of T_c, from almost all in one point."""
    z = stretched(300, seed=1)
    temperature = multiple * float(critical_temperature(z))
    start = z.mean(0) + 1e-4 * normal(4, z.shape[1], seed=3)
    bank = start
    for _ in range(60):  # by hand: loading torch's optimisers can take longer than all checks together
        bank = bank.detach().requires_grad_()
        bank = bank - 3.0 * torch.autograd.grad(readout(z, bank, temperature).loss.total, bank)[0]
    return math.sqrt(extent(bank.detach()) / extent(start))


def planted_distance() -> float:
    """From a planted centre to the nearest prototype, at worst, in units of the clusters' spread.

    The bank begins merged and is cooled, so that it has to split into the clusters by itself.
    """
    clusters, dim = 6, 8
    centers = 6 * normal(clusters, dim, seed=0)
    z = centers[torch.arange(100 * clusters) % clusters] + normal(100 * clusters, dim, seed=1)
    warmest = float(critical_temperature(z, gradient="stop"))  # where soft k-means begins to split
    bank = z.mean(0).expand(clusters, dim)
    for step in range(60):
        bank = bank + 0.01 * normal(clusters, dim, seed=step + 2)
        for _ in range(3):
            bank = soft_kmeans_step(z, bank, warmest * 10 ** (-step / 30))
    return float(torch.cdist(centers, bank).min(1).values.max())


def _problem(chosen: ChosenBackend) -> tuple[Tensor, Tensor]:
    place = {"device": chosen.device, "dtype": getattr(torch, chosen.dtype)}
    return normal(129, 13, seed=0).to(**place), normal(17, 13, seed=1).to(**place)


def _outputs(z: Tensor, prototypes: Tensor, mode: Gradient, backend: Literal["auto", "reference"]) -> list[Tensor]:
    """Centroids, losses and the gradients of a weighted sum of them all."""
    temperature = torch.tensor(2.0, device=z.device, dtype=torch.float64 if z.dtype == torch.float64 else torch.float32)
    inputs = [x.detach().requires_grad_() for x in (z, prototypes, temperature)]
    mask = torch.arange(len(z), device=z.device) % 7 > 0
    found = readout(inputs[0], inputs[1], inputs[2], mask=mask, gradient=mode, backend=backend)
    outputs = [found.centroid, *(getattr(found.per_token, name) for name in TERMS)]
    weighted = [
        (output.double() * normal(*output.shape, seed=number).to(z.device)).sum()
        for number, output in enumerate(outputs)
    ]
    gradients = torch.autograd.grad(torch.stack(weighted).sum(), inputs, materialize_grads=True)
    return [output.detach() for output in outputs] + list(gradients)
