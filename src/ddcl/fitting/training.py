"""Embeddings to a trained bank, or with labels to a bank and a head."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Union

import numpy as np
import torch
from torch import Tensor

from ddcl.fitting.batches import Rows, ShuffledBatches
from ddcl.fitting.errors import BadInputError
from ddcl.fitting.head import HEAD_ROWS, fit_head
from ddcl.fitting.reading import Reading, reading_temperature
from ddcl.fitting.settings import Settings
from ddcl.functional import assignments, distinct_prototypes, kmeans
from ddcl.nn import PrototypeBank, PrototypeReadout
from ddcl.shapes import Float
from ddcl.training import CollapseWarning, Recipe, Trainer
from ddcl.training.progress import Progress

READING_ROWS = 4096
"""Rows that the temperature of the reading is chosen by."""
LOOKS = 5
"""Exact measurements over a run; each costs more than an epoch."""
PIECE = 8192
UNLABELLED = -100
"""The class number of rows without a label."""

Model = Union[PrototypeBank, PrototypeReadout]
Watch = Callable[[Progress, dict[str, float]], None]
"""Called after every epoch with where the run stands and the means over the epoch's steps."""


class Trained(NamedTuple):
    """What came of a training."""

    model: Model
    last: Progress
    reading: Reading


class Classes(NamedTuple):
    """What a head learns from."""

    numbers: Tensor
    """(N,), the class of each row, :data:`UNLABELLED` where it has none."""
    held_out: np.ndarray
    """Rows whose labels the head never sees."""


def make_model(settings: Settings) -> Model:
    """A bank alone; with labels a bank and a linear head on the shares of its prototypes."""
    if settings.classes is None:
        return PrototypeBank(settings.prototypes, settings.dim)
    return PrototypeReadout(
        settings.dim,
        settings.prototypes,
        output="bag",
        head="classification",
        num_outputs=len(settings.classes),
    )


def bank_of(model: Model) -> PrototypeBank:
    """The one bank of either model."""
    return model if isinstance(model, PrototypeBank) else model.bank


def split_classes(labels: list[str | None], classes: tuple[str, ...], share: float, seed: int) -> Classes:
    """Class numbers, and a share of the labelled rows to hold out; every class keeps a row to learn from."""
    place = {name: number for number, name in enumerate(classes)}
    numbers = torch.tensor([UNLABELLED if label is None else place[label] for label in labels])
    left = torch.bincount(numbers[numbers >= 0], minlength=len(classes)).tolist()
    wanted = round(share * sum(left))
    held: list[int] = []
    for row in torch.randperm(len(numbers), generator=torch.Generator().manual_seed(seed)).tolist():
        number = int(numbers[row])
        if len(held) < wanted and number >= 0 and left[number] > 1:
            left[number] -= 1
            held.append(row)
    return Classes(numbers, np.sort(np.array(held, dtype=np.int64)))


def train(
    rows: Rows,
    settings: Settings,
    classes: Classes | None,
    *,
    checkpoint: Path,
    resume: bool,
    watch: Watch,
) -> Trained:
    """Start a bank from a sample of the rows, train it by the default recipe, choose how warm it is read; then a head.

    Rows that are held out have no part in any of it.
    """
    chosen = None if classes is None else np.setdiff1d(np.arange(len(rows)), classes.held_out)
    sample = rows.sample(settings.rows_started, settings.seed, chosen).to(settings.device)
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)  # what it says is in the progress too
        torch.manual_seed(settings.seed)
        bank = PrototypeBank(settings.prototypes, settings.dim, device=settings.device)
        if not (resume and checkpoint.exists()):
            _start(bank, sample, settings)
        sizes = (settings.rows_per_epoch, settings.rows_measured)
        batches, measured = (ShuffledBatches(rows, settings.batch_size, size, chosen=chosen) for size in sizes)
        trainer = Trainer(
            bank,
            Recipe(epochs=settings.epochs, init=None, seed=settings.seed),
            measure_every=max(1, settings.epochs // LOOKS),
            callback=lambda progress: watch(progress, _figures(trainer, bank)),
        )
        history = trainer.fit(batches, measured=measured, checkpoint=checkpoint, resume=resume)
    some = rows.sample(READING_ROWS, settings.seed, chosen).to(settings.device)
    reading = reading_temperature(some, bank.prototypes[0].detach())
    bank.set_temperature(reading.temperature)
    model = bank if classes is None else _with_head(bank, rows, settings, classes)
    return Trained(model.eval(), history[-1], reading)


@torch.no_grad()
def _start(bank: PrototypeBank, sample: Tensor, settings: Settings) -> None:
    """Prototypes to where k-means finds the cells of a sample."""
    if len(sample) < settings.prototypes:
        raise BadInputError(
            f"{len(sample)} rows are left to learn from, fewer than the {settings.prototypes} prototypes"
        )
    if not bool((sample != sample[0]).any()):
        raise BadInputError("all rows are the same, so there is nothing to tell apart")
    random = torch.Generator().manual_seed(settings.seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="z has only")
        try:
            found = kmeans(
                sample,
                settings.prototypes,
                restarts=settings.restarts,
                iterations=settings.start_steps,
                generator=random,
            )
        except UserWarning as few:
            raise BadInputError(f"the data have {str(few).removeprefix('z has ')}; ask for fewer prototypes") from few
    bank.move_to(found.centers[None])
    bank.initialised.fill_(True)


def _with_head(bank: PrototypeBank, rows: Rows, settings: Settings, classes: Classes) -> PrototypeReadout:
    labelled = np.setdiff1d(np.flatnonzero(classes.numbers.numpy() != UNLABELLED), classes.held_out)
    random = torch.Generator().manual_seed(settings.seed)
    learned = labelled[torch.randperm(len(labelled), generator=random)[:HEAD_ROWS].sort().values.numpy()]
    parts = [rows.at(learned[start : start + PIECE]) for start in range(0, len(learned), PIECE)]
    mixtures = torch.cat([mixture(bank, part) for part in parts])
    numbers = classes.numbers[torch.from_numpy(learned)].to(mixtures.device)
    model = make_model(settings)
    assert isinstance(model, PrototypeReadout), "settings with classes ask for a head"
    model.bank = bank
    model.head = fit_head(mixtures, numbers, len(settings.classes or ()))
    return model


@torch.no_grad()
def mixture(model: Model, z: Float[Tensor, "n m"]) -> Float[Tensor, "n K"]:
    """The share of every prototype in each row."""
    bank = bank_of(model)
    return assignments(z.to(bank.prototypes.device), bank.prototypes[0], bank.temperature[0])


def _figures(trainer: Trainer, bank: PrototypeBank) -> dict[str, float]:
    """Means over the epoch's steps, which cost nothing more, and how many prototypes stand apart."""
    figures = trainer.monitor.read()
    figures["distinct"] = float(distinct_prototypes(bank.prototypes[0].detach(), figures["trace"]))
    return figures
