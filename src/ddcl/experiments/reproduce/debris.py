"""Table 3 and Figure 1: four orbital regimes from seven features, without labels; then real satellites."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ddcl.experiments.reproduce.debris_notes import notes
from ddcl.experiments.reproduce.dynamics import Watch, best, thinned
from ddcl.experiments.reproduce.orbits import REGIMES, Orbits, catalogued_orbits, synthetic_orbits
from ddcl.experiments.reproduce.projection import principal_components, standardised
from ddcl.experiments.reproduce.study import Column, Paper, Result, Run, Study
from ddcl.experiments.shuffling import Shuffled
from ddcl.nn import PrototypeBank
from ddcl.rivals.clusters import RESTARTS, cluster_scores, kmeans_baseline, recalls
from ddcl.training import CollapseMonitor, CollapseWarning, Exponential, Recipe, Trainer, paper_recipe

DIM, BATCH = 5, 256
LEARNING_RATE, TAU, CLIP = 0.05, 120.0, 2.0
"""The paper's; it clips gradients, each number by itself."""
SYNTHETIC, SATELLITES = "synthetic", "UCS satellites"
VARIANTS = {
    "synthetic, LEO at 98 degrees": Orbits(leo_inclination=98.0),
    "synthetic, one node for all": Orbits(nodes="one"),
    "synthetic, one RCS for all": Orbits(cross_sections="equal"),
}
"""Other answers to what the paper leaves open."""
TOLERANCE = 1e-4
"""Share of L by which a sum may miss it before the identity counts as violated: above float32, below a real gap."""

Way = Literal["k-means", "paper", "default"]


@dataclass(frozen=True)
class Setting:
    """What one run is made of."""

    way: Way
    orbits: Orbits | None
    """None: the satellites of the UCS catalogue."""
    dim: int | None = DIM
    """Principal components of the standardised features; None: all features, standardised."""
    prototypes: int = len(REGIMES)
    epochs: int = 0
    measure_every: int = 1


def runs(quick: bool, seeds: int) -> list[Run]:
    """All runs; quick: the synthetic objects alone, with a tenth of the epochs."""
    paper, default = (50, 5) if quick else (500, Recipe().epochs)
    twice = 2 * len(REGIMES)
    orbits = {SYNTHETIC: Orbits(), **VARIANTS, SATELLITES: None}
    found = [(SYNTHETIC, "k-means, d = 7", Setting("k-means", Orbits(), dim=None))]
    for case in [SYNTHETIC] if quick else orbits:
        of_case = orbits[case]
        # every epoch where the paper reports its best one
        every = 1 if case == SYNTHETIC else 5
        found += [
            (case, "k-means, m = 5", Setting("k-means", of_case)),
            (case, "the paper's recipe", Setting("paper", of_case, epochs=paper, measure_every=every)),
            (case, "default", Setting("default", of_case, epochs=default)),
        ]
        if case in (SYNTHETIC, SATELLITES) and not quick:
            found += [
                (case, f"k-means, K = {twice}", Setting("k-means", of_case, prototypes=twice)),
                (case, f"default, K = {twice}", Setting("default", of_case, prototypes=twice, epochs=default)),
            ]
    return [Run(case, method, seed, setting) for case, method, setting in found for seed in range(seeds)]


def execute(run: Run, device: str) -> Result:
    """One run; the seed draws the objects too, so the spread over seeds has that of the data in it."""
    setting: Setting = run.settings
    objects = catalogued_orbits() if setting.orbits is None else synthetic_orbits(setting.orbits, run.seed)
    features = standardised(torch.from_numpy(objects.features))
    plane = features @ principal_components(features, 2).components.mT
    explained = 1.0
    if setting.dim is not None:
        projection = principal_components(features, setting.dim)
        features, explained = features @ projection.components.mT, projection.explained
    tokens, labels = features.float(), objects.labels
    if setting.way == "k-means":
        clusters = kmeans_baseline(tokens, setting.prototypes, run.seed)
        found, centers = clusters.labels_, clusters.cluster_centers_
        metrics: dict[str, float] = {}
        epochs: Mapping[str, Sequence[float]] = {}
    else:
        found, centers, epochs = _train(tokens.to(device), labels, setting, run.seed)
        metrics = _ending(epochs) | _violations(epochs)
    metrics = cluster_scores(found, labels) | _recalls(found, labels) | metrics | {"explained": explained}
    arrays: dict[str, np.ndarray] = {}
    if run.seed == 0 and setting.way != "k-means":
        # the first two components are the plane itself
        arrays = {
            "points": plane.numpy().astype(np.float16),
            "labels": labels.astype(np.uint8),
            "found": found.astype(np.uint8),
            "prototypes": centers[:, :2].astype(np.float32),
        }
    return Result(metrics, thinned(epochs) if epochs else {}, arrays)


def _train(
    tokens: Tensor, labels: np.ndarray, setting: Setting, seed: int
) -> tuple[np.ndarray, np.ndarray, dict[str, list[float]]]:
    """A bank on fixed tokens: assignments, prototypes, and figures over the epochs."""
    torch.manual_seed(seed)
    bank = PrototypeBank(setting.prototypes, tokens.shape[1]).to(tokens.device)

    def assigned() -> np.ndarray:
        with torch.no_grad():
            return np.asarray(bank(tokens).indices.cpu())

    watch = Watch(lambda: cluster_scores(assigned(), labels))
    if setting.way == "paper":
        paper = paper_recipe(setting.epochs, lr=LEARNING_RATE, seed=seed)
        recipe = replace(paper, temperature=Exponential(tau=TAU), restarts=RESTARTS)
        batches: Iterable[Tensor] = [tokens]
        monitor = CollapseMonitor()  # looks on: the paper repairs nothing
        bank.prototypes.register_hook(lambda gradient: gradient.clamp(-CLIP, CLIP))
    else:
        recipe = Recipe(epochs=setting.epochs, seed=seed)
        batches, monitor = Shuffled(tokens, batch=BATCH, seed=seed), None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        trainer = Trainer(bank, recipe, monitor=monitor, measure_every=setting.measure_every, callback=watch)
        trainer.fit(batches)
    return assigned(), bank.prototypes[0].detach().cpu().numpy(), watch.epochs


def _ending(epochs: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The best epoch by ACC with NMI and ARI there, and the bank's health at the end."""
    top, when = best(epochs, "acc")
    there = list(epochs["epoch"]).index(when)
    health = ("distinct", "usage", "relative_entropy", "relative_temperature", "separation", "relative_separation")
    return {
        "acc_best": top,
        "nmi_best": epochs["nmi"][there],
        "ari_best": epochs["ari"][there],
        "epoch_best": when,
        "hottest": max(epochs["relative_temperature"]),
        **{name: epochs[name][-1] for name in health},
    }


def _violations(epochs: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Epochs in which L is not R + V, and not min d + V as the paper writes it."""
    total, variance = np.array(epochs["total"]), np.array(epochs["variance"])
    found = {"epochs": float(len(total))}
    for name, term in (("violations", "reconstruction"), ("paper_violations", "quantization")):
        found[name] = float((np.abs(np.array(epochs[term]) + variance - total) > TOLERANCE * total).sum())
    return found


def _recalls(found: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    return {f"recall_{name}": share for name, share in zip(REGIMES, recalls(found, labels), strict=True)}


STUDY = Study(
    name="debris",
    title="Orbital regimes",
    shows="Table 3, Figure 1",
    runs=runs,
    execute=execute,
    columns=(
        Column("acc_best", "ACC, best epoch"),
        Column("nmi_best", "NMI there"),
        Column("ari_best", "ARI there"),
        Column("acc", "ACC"),
        Column("nmi", "NMI"),
        Column("ari", "ARI"),
        *(Column(f"recall_{name}", f"recall {name}", 2) for name in REGIMES),
        Column("distinct", "distinct", 0),
        Column("usage", "used", 2),
        Column("relative_entropy", "H / ln K", 3),
        Column("relative_temperature", "T / T_c", 3),
    ),
    paper=(
        Paper(SYNTHETIC, "k-means, d = 7", {"acc": 0.756, "nmi": 0.751, "ari": 0.667}),
        Paper(SYNTHETIC, "k-means, m = 5", {"acc": 0.756, "nmi": 0.751, "ari": 0.667}),
        Paper(SYNTHETIC, "DDCL-Attention", {"acc_best": 0.772, "nmi_best": 0.752, "ari_best": 0.669}),
    ),
    needs="the extra text (scikit-learn); the satellites need ucs_satellites in the data folder",
    notes=notes,
)
