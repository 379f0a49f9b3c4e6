"""Embeddings to a trained bank, with labels to a bank and a head, with levels to banks on top of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Union

import torch
from torch import Tensor

from ddcl.fitting.banks import TrainedBank, Watch, shares_in, train_bank
from ddcl.fitting.batches import Rows
from ddcl.fitting.classes import Classes
from ddcl.fitting.errors import BadInputError
from ddcl.fitting.head import HEAD_ROWS, fit_head
from ddcl.fitting.lessons import lessons_for
from ddcl.fitting.levels import train_upper_levels
from ddcl.fitting.reading import Reading
from ddcl.fitting.settings import Settings
from ddcl.nn import PrototypeBank, PrototypeReadout
from ddcl.shapes import Float
from ddcl.training.progress import Progress

PIECE = 8192

Model = Union[PrototypeBank, PrototypeReadout]


class Trained(NamedTuple):
    """What came of a training."""

    model: Model
    last: Progress
    reading: Reading
    above: list[TrainedBank]
    """Of the levels above the first, finest first."""
    taught: bool
    """Whether the bank has learned from labels, not its head alone."""


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


def train(
    rows: Rows,
    settings: Settings,
    classes: Classes | None,
    *,
    checkpoint: Path,
    resume: bool,
    watch: Watch,
    watch_above: Watch,
    say: Callable[[str], None],
) -> Trained:
    """A bank, with labels a head on it, and the levels above it; rows that are held out have no part in any of it.

    Args:
        rows: what is fitted.
        settings: of the run.
        classes: what a head learns from; None: no head.
        checkpoint: of the first bank. What comes after it is short, and the same again when it is done again.
        resume: go on from that file if it is there.
        watch: told of each epoch of the first bank.
        watch_above: told of each epoch of the levels above.
        say: told what the labels are for, and when a level begins.
    """
    chosen, lessons = None, None
    if classes is not None:
        chosen = classes.seen
        if len(chosen) < settings.prototypes:
            raise BadInputError(
                f"{len(chosen)} rows are left to learn from, fewer than the {settings.prototypes} prototypes"
            )
        lessons = lessons_for(rows, settings, classes)
        say(
            f"labels: {len(classes.held_out)} rows are held out; of the others "
            + (
                "the prototypes learn, each for a class, and the head"
                if lessons is not None
                else f"the head learns alone, as {settings.prototypes} prototypes cannot stand for the classes of "
                f"{len(classes.learned)} labelled rows"
            )
        )
    first = train_bank(rows, settings, chosen, watch=watch, lessons=lessons, checkpoint=checkpoint, resume=resume)
    model = first.bank if classes is None else _with_head(first.bank, rows, settings, classes)
    above = train_upper_levels(first.bank, rows, settings, chosen, watch=watch_above, say=say)
    return Trained(model.eval(), first.last, first.reading, above, lessons is not None)


def _with_head(bank: PrototypeBank, rows: Rows, settings: Settings, classes: Classes) -> PrototypeReadout:
    labelled = classes.learned
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


def mixture(model: Model, z: Float[Tensor, "n m"]) -> Float[Tensor, "n K"]:
    """The share of every prototype in each row."""
    return shares_in(bank_of(model), z)
