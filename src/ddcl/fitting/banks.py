"""Rows to one trained bank, and the temperature it is read at."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddcl.fitting.batches import Rows, ShuffledBatches
from ddcl.fitting.errors import BadInputError
from ddcl.fitting.reading import Reading, reading_temperature
from ddcl.fitting.settings import Settings
from ddcl.functional import assignments, distinct_prototypes, kmeans
from ddcl.nn import PrototypeBank
from ddcl.shapes import Float
from ddcl.training import CollapseWarning, Recipe, Trainer
from ddcl.training.progress import Progress

READING_ROWS = 4096
"""Rows that the temperature of the reading is chosen by."""
LOOKS = 5
"""Exact measurements over a run; each costs more than an epoch."""

Watch = Callable[[Progress, dict[str, float]], None]
"""Called after every epoch with where the run stands and the means over the epoch's steps."""


class TrainedBank(NamedTuple):
    """A bank at the temperature it is read at."""

    bank: PrototypeBank
    last: Progress
    reading: Reading


def train_bank(
    rows: Rows,
    settings: Settings,
    chosen: np.ndarray | None,
    *,
    watch: Watch,
    checkpoint: Path | None = None,
    resume: bool = False,
) -> TrainedBank:
    """Start a bank from a sample of the rows, train it by the default recipe, choose how warm it is read.

    Args:
        rows: what the bank is to stand for.
        settings: of the run; ``settings.prototypes`` is the size of the bank.
        chosen: which rows have a part in it; None: all.
        watch: told of each epoch.
        checkpoint: written after each epoch.
        resume: go on from that file if it is there.
    """
    sample = rows.sample(settings.rows_started, settings.seed, chosen).to(settings.device)
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)  # what it says is in the progress too
        torch.manual_seed(settings.seed)
        bank = PrototypeBank(settings.prototypes, settings.dim, device=settings.device)
        if not (resume and checkpoint is not None and checkpoint.exists()):
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
    return TrainedBank(bank, history[-1], reading)


@torch.no_grad()
def shares_in(bank: PrototypeBank, z: Float[Tensor, "n m"]) -> Float[Tensor, "n K"]:
    """The share of every prototype of a bank in each row."""
    return assignments(z.to(bank.prototypes.device), bank.prototypes[0], bank.temperature[0])


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


def _figures(trainer: Trainer, bank: PrototypeBank) -> dict[str, float]:
    """Means over the epoch's steps, which cost nothing more, and how many prototypes stand apart."""
    figures = trainer.monitor.read()
    figures["distinct"] = float(distinct_prototypes(bank.prototypes[0].detach(), figures["trace"]))
    return figures
