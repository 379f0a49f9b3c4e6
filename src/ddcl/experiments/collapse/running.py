"""One case run to its end, and whether it collapsed."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ddcl import ops
from ddcl.experiments.collapse.cases import Case
from ddcl.experiments.collapse.models import Clusterer, make_encoder, mixture
from ddcl.experiments.shuffling import Shuffled
from ddcl.functional import covariance, distinct_prototypes, kmeans
from ddcl.rivals import HardQuantizer
from ddcl.training import CollapseMonitor, CollapseWarning, GuardWarning, Recipe, Trainer, paper_recipe

EPOCHS, BATCH = 40, 256
LEARNING_RATE = 1e-2

UNIFORM, DISTINCT, USED, TRACE = 0.95, 0.9, 0.9, 0.01
"""Collapsed means: H above 0.95 ln K, or fewer than 0.9 K distinct prototypes, or hard usage under 0.9 of what k-means
on the same embeddings reaches, or trace C under 1 % of its start."""


@dataclass(frozen=True)
class Outcome:
    """What became of a case."""

    relative_entropy: float
    """H / ln K; 0 for hard quantisers."""
    distinct_share: float
    usage: float
    kmeans_usage: float
    relative_trace: float
    seconds: float

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it counts as collapsed; empty if it does not. A figure that is not a number counts against the run."""
        failed = {
            "uniform": not self.relative_entropy <= UNIFORM,
            "merged": not self.distinct_share >= DISTINCT,
            "unused": not self.usage >= USED * self.kmeans_usage,
            "shrunk": not self.relative_trace >= TRACE,
        }
        return tuple(name for name, bad in failed.items() if bad)


def run(case: Case) -> Outcome:
    """Train and judge one case; the same seed gives the same outcome."""
    began = time.monotonic()
    torch.manual_seed(case.seed)
    x = mixture(case.scale, case.seed)
    run_one = _run_rival if case.method in ("straight-through VQ", "EMA VQ") else _run_ours
    found = run_one(case, x)
    return replace(found, seconds=time.monotonic() - began)


def _run_ours(case: Case, x: Tensor) -> Outcome:
    normalised = case.encoder != "frozen" and case.method != "paper"
    model = Clusterer(case.encoder, case.prototypes, "standard" if normalised else "none")
    if case.encoder == "frozen":
        model.encoder.requires_grad_(False)
    if case.method.startswith("paper"):
        recipe = paper_recipe(EPOCHS, lr=LEARNING_RATE, epsilon=case.ratio, seed=case.seed)
        monitor = CollapseMonitor()
    else:
        recipe = Recipe(epochs=EPOCHS, lr=LEARNING_RATE, epsilon=case.ratio, seed=case.seed)
        if case.method == "default by gradient":
            recipe = replace(recipe, move="gradient")
        monitor = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        warnings.simplefilter("ignore", GuardWarning)
        history = Trainer(model, recipe, monitor=monitor).fit(Shuffled(x, batch=BATCH, seed=case.seed))
    last = history[-1].metrics
    with torch.no_grad():
        z = model.norm(model.encoder(x))
    return Outcome(
        relative_entropy=last["relative_entropy"],
        distinct_share=last["distinct_share"],
        usage=last["usage"],
        kmeans_usage=_kmeans_usage(z, case),
        relative_trace=last["relative_trace"],
        seconds=0.0,
    )


def _run_rival(case: Case, x: Tensor) -> Outcome:
    encoder, dim = make_encoder(case.encoder)
    quantizer = HardQuantizer("ema" if case.method == "EMA VQ" else "straight-through", case.prototypes, dim)
    model = nn.ModuleList([encoder, quantizer])
    groups = [
        {"params": list(quantizer.parameters()), "lr": LEARNING_RATE},
        {"params": list(encoder.parameters()), "lr": case.ratio * LEARNING_RATE},
    ]
    groups = [group for group in groups if group["params"]]
    optimiser = torch.optim.Adam(groups) if groups else None
    with torch.no_grad():
        start = float(covariance(encoder(x)).trace)
    model.train()
    batches = Shuffled(x, batch=BATCH, seed=case.seed)
    for _ in range(EPOCHS):
        for batch in batches:
            loss = quantizer(encoder(batch))[2]
            if optimiser is not None:
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
    model.eval()
    with torch.no_grad():
        z = encoder(x)
    if not bool(torch.isfinite(z).all() and torch.isfinite(quantizer.codes).all()):
        return Outcome(0.0, math.nan, math.nan, math.nan, math.nan, 0.0)
    trace = float(covariance(z).trace)
    used = len(ops.nearest(z, quantizer.codes)[0].unique())
    return Outcome(
        relative_entropy=0.0,
        distinct_share=int(distinct_prototypes(quantizer.codes, trace)) / case.prototypes,
        usage=used / case.prototypes,
        kmeans_usage=_kmeans_usage(z, case),
        relative_trace=trace / start,
        seconds=0.0,
    )


def _kmeans_usage(z: Tensor, case: Case) -> float:
    """Share of K centres that k-means on the same embeddings keeps in use; nothing if the embeddings are not finite."""
    if not bool(torch.isfinite(z).all()):
        return math.nan
    centers = kmeans(z, case.prototypes, restarts=3, generator=torch.Generator().manual_seed(case.seed)).centers
    return len(ops.nearest(z, centers)[0].unique()) / case.prototypes
