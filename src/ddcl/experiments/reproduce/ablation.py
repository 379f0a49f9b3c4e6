"""Figure 6: how fast may the encoder be, against the bank? Digits and MNIST, five ratios of the learning rates."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ddcl.data import load_images
from ddcl.experiments.reproduce.ablation_notes import notes
from ddcl.experiments.reproduce.dynamics import Watch, best, thinned
from ddcl.experiments.reproduce.projection import principal_components
from ddcl.experiments.reproduce.study import Column, Result, Run, Study
from ddcl.functional import separation
from ddcl.nn import PrototypeBank, TokenNorm
from ddcl.rivals.clusters import cluster_scores
from ddcl.training import CollapseMonitor, CollapseWarning, Critical, GuardWarning, Recipe, Trainer, paper_recipe

PROTOTYPES, DIM, RESTARTS, EPOCHS = 10, 32, 10, 300
RATIOS = (0.001, 0.01, 0.1, 0.5, 1.0)
LEARNING_RATE = 1e-2
"""Of the prototypes; the paper does not say. Pixels lie between 0 and 1: in those units its temperatures, 2.0 to 0.3,
begin just below T_c on the digits."""

Arm = Literal["paper's T", "critical T", "default"]
ARMS: tuple[Arm, ...] = ("paper's T", "critical T", "default")
"""The paper's temperature; the critical one, with nothing else changed; the library's default by gradient: the critical
one, tokens normalised, rates in units of the tokens' spread, and repair."""


@dataclass(frozen=True)
class Setting:
    """What one run is made of."""

    images: Literal["digits", "mnist"]
    count: int | None
    """The first so many of the training split; None: all."""
    inputs: int | None
    """Principal components that the encoder sees; None: the pixels."""
    arm: Arm
    ratio: float
    """The encoder's learning rate over the bank's."""
    epochs: int = EPOCHS
    measure_every: int = 5


class Pictures(NamedTuple):
    """What the encoder sees, and the classes."""

    x: Tensor
    """Centred, (N, d)."""
    labels: np.ndarray
    start: Tensor
    """The first principal components, (m, d): where the encoder starts."""


def runs(quick: bool, seeds: int) -> list[Run]:
    """All runs; quick: the digits alone, the smallest and the largest ratio, a tenth of the epochs."""
    if quick:
        chosen = {"digits": Setting("digits", None, None, "paper's T", 1.0, EPOCHS // 10)}
    else:
        chosen = {
            "digits": Setting("digits", None, None, "paper's T", 1.0),
            # 64 of 784 components: any projection inside their span is still the encoder's to find, in a tenth of the
            # time; 10,000 of 60,000 pictures, in a sixth
            "MNIST": Setting("mnist", 10_000, 64, "paper's T", 1.0, measure_every=10),
        }
    ratios = (RATIOS[0], RATIOS[-1]) if quick else RATIOS
    return [
        Run(case, f"{arm}, ratio {ratio:g}", seed, replace(base, arm=arm, ratio=ratio))
        for case, base in chosen.items()
        # what the default adds shows on the digits; MNIST, ten times their number, has the two temperatures
        for arm in (ARMS if case == "digits" else ARMS[:2])
        for ratio in ratios
        for seed in range(seeds)
    ]


def execute(run: Run, device: str) -> Result:
    """One run; the seed is that of the bank's k-means start, the data are the same for all."""
    setting: Setting = run.settings
    pictures = load(setting.images, setting.count, setting.inputs)
    x = pictures.x.to(device)
    torch.manual_seed(run.seed)
    encoder = linear_encoder(pictures.start, normalised=setting.arm == "default")
    bank = PrototypeBank(PROTOTYPES, DIM)
    model = nn.Sequential(encoder, bank).to(device)

    def scores() -> dict[str, float]:
        with torch.no_grad():
            return cluster_scores(model(x).indices.cpu().numpy(), pictures.labels)

    with torch.no_grad():
        # in training mode a normalisation takes the moments of what it is given, here of all
        bank.init_from(encoder(x), restarts=RESTARTS, generator=torch.Generator().manual_seed(run.seed))
        found = bank(encoder(x)).indices.cpu().numpy()
    beginning = {
        "acc_start": cluster_scores(found, pictures.labels)["acc"],
        "separation_start": float(separation(bank.prototypes.detach())),
    }
    watch = Watch(scores)
    monitor = None if setting.arm == "default" else CollapseMonitor()
    trainer = Trainer(
        model,
        recipe(setting, run.seed),
        monitor=monitor,
        measure_every=setting.measure_every,
        callback=watch,
    )
    with warnings.catch_warnings():
        # collapse, unguarded encoders and high ratios are what is studied here
        warnings.simplefilter("ignore", CollapseWarning)
        warnings.simplefilter("ignore", GuardWarning)
        trainer.fit([x])
    return Result(beginning | _ending(watch.epochs), thinned(watch.epochs))


@lru_cache(maxsize=1)
def load(name: str, count: int | None, inputs: int | None) -> Pictures:
    """Pixels from 0 to 1, centred, as they are or as their first principal components."""
    found = load_images(name)
    x = found.images[:count].flatten(1).float() / found.white
    x = x - x.mean(0)
    if inputs is not None:
        x = x @ principal_components(x, inputs).components.mT
    return Pictures(x, found.labels[:count].numpy(), principal_components(x, DIM).components)


def linear_encoder(start: Tensor, *, normalised: bool) -> nn.Module:
    """A linear encoder that begins as a PCA."""
    encoder = nn.Linear(start.shape[1], start.shape[0])
    with torch.no_grad():
        encoder.weight.copy_(start)
        encoder.bias.zero_()
    return nn.Sequential(encoder, TokenNorm(start.shape[0])) if normalised else encoder


def recipe(setting: Setting, seed: int) -> Recipe:
    """The recipe of an arm; the bank has its start already."""
    if setting.arm == "default":
        base = Recipe(epochs=setting.epochs, move="gradient", lr=LEARNING_RATE, epsilon=setting.ratio, seed=seed)
        return replace(base, init=None)
    base = paper_recipe(setting.epochs, lr=LEARNING_RATE, epsilon=setting.ratio, seed=seed)
    return replace(base, init=None, temperature=base.temperature if setting.arm == "paper's T" else Critical())


def _ending(epochs: Mapping[str, Sequence[float]]) -> dict[str, float]:
    figures = ("separation", "relative_separation", "relative_trace", "relative_entropy", "relative_temperature")
    kept = ("acc", "nmi", "ari", "distinct", *figures)
    top, when = best(epochs, "acc")
    return {"acc_best": top, "epoch_best": when, **{name: epochs[name][-1] for name in kept}}


STUDY = Study(
    name="ablation",
    title="The ratio of the learning rates",
    shows="Figure 6",
    runs=runs,
    execute=execute,
    columns=(
        Column("acc_start", "ACC of the start"),
        Column("acc_best", "ACC, best epoch"),
        Column("acc", "ACC"),
        Column("nmi", "NMI"),
        Column("ari", "ARI"),
        Column("separation", "S(P)"),
        Column("relative_separation", "S / trace C"),
        Column("relative_trace", "trace C over its start"),
        Column("distinct", "distinct", 1),
        Column("relative_entropy", "H / ln K", 2),
        Column("relative_temperature", "T / T_c", 2),
    ),
    needs="the extra text (scikit-learn, which has the digits); MNIST needs mnist in the data folder",
    notes=notes,
)
