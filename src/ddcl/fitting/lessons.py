r"""How a bank learns from labels: each prototype stands for a class, and a row's class should hold its shares.

.. math:: L = -\log \sum_{k \in c(z)} q_k(z) + \lambda\, L_q(z) / \operatorname{tr} C

which is robust soft learning vector quantisation (Seo and Obermayer, 2003) with the quantisation loss beside it, so
that prototypes stay among the rows they stand for. docs/lab/0013-head.md tells what else was tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ddcl.fitting.batches import LabelledBatches, Rows
from ddcl.fitting.classes import UNLABELLED, Classes
from ddcl.fitting.errors import BadInputError
from ddcl.fitting.settings import Settings
from ddcl.functional import kmeans
from ddcl.nn import PrototypeBank
from ddcl.ops.centring import bank_center
from ddcl.shapes import Float
from ddcl.training import Critical, Recipe

TEMPERATURE = 0.3
"""In units of T_c, held through the training and kept for reading."""
QUANTISATION = 0.3
"""The weight of the quantisation loss, counted as a share of the rows' variance."""


class Lessons:
    """What a bank with classes starts from, learns from and descends.

    Args:
        rows: all rows.
        settings: of the run.
        classes: of all rows.
        samples: some rows of each class to start from.
        shares: prototypes for each class.

    Attributes:
        of_prototypes: (K,), the class each prototype stands for, in ascending order.
    """

    def __init__(
        self, rows: Rows, settings: Settings, classes: Classes, samples: list[Tensor], shares: list[int]
    ) -> None:
        self.rows, self.settings, self.classes = rows, settings, classes
        self.samples, self.shares = samples, shares
        self.of_prototypes = torch.arange(len(shares)).repeat_interleave(torch.tensor(shares)).to(settings.device)
        self.trace = float(torch.cat(samples).var(0, unbiased=False).sum())

    def recipe(self) -> Recipe:
        """By gradient, at one temperature."""
        settings = self.settings
        plan = Critical(TEMPERATURE, TEMPERATURE)
        return Recipe(epochs=settings.epochs, init=None, seed=settings.seed, temperature=plan, move="gradient")

    def batches(self, rows_per_walk: int) -> LabelledBatches:
        """Rows that are not held out, with their classes."""
        numbers, seen = self.classes.numbers, self.classes.seen
        return LabelledBatches(self.rows, self.settings.batch_size, rows_per_walk, chosen=seen, numbers=numbers)

    @torch.no_grad()
    def start(self, bank: PrototypeBank) -> None:
        """Prototypes to where k-means finds the cells of each class."""
        settings, random = self.settings, torch.Generator().manual_seed(self.settings.seed)
        centers = [
            kmeans(
                sample.to(settings.device),
                size,
                restarts=settings.restarts,
                iterations=settings.start_steps,
                generator=random,
            ).centers
            for sample, size in zip(self.samples, self.shares, strict=True)
        ]
        bank.move_to(torch.cat(centers)[None])
        bank.initialised.fill_(True)

    def loss(self, bank: nn.Module, batch: Any) -> Float[Tensor, ""]:
        """Of a batch of rows and classes; rows without a label count for the quantisation alone."""
        assert isinstance(bank, PrototypeBank), "lessons are for a bank alone"
        z, numbers = batch
        quantisation = bank(z).loss.total
        labelled = numbers != UNLABELLED
        own = numbers[labelled, None] == self.of_prototypes
        shares = _log_shares(z[labelled], bank.prototypes[0], bank.temperature[0])
        missed = -shares.masked_fill(~own, -torch.inf).logsumexp(-1)
        found: Tensor = missed.sum() / labelled.sum().clamp_min(1) + QUANTISATION * quantisation / self.trace
        return found


def lessons_for(rows: Rows, settings: Settings, classes: Classes) -> Lessons | None:
    """What a bank can learn from labels; None where prototypes would be left without a class or classes without one.

    That is where there are fewer prototypes than classes, or fewer different rows with a label than prototypes.
    """
    if not may_learn(settings.prototypes, settings.classes, len(classes.learned)):
        return None
    random = torch.Generator().manual_seed(settings.seed)
    numbers, learned, number = classes.numbers.numpy(), classes.learned, len(settings.classes or ())
    most = max(64, settings.rows_started // number)
    of_class = [learned[numbers[learned] == one] for one in range(number)]
    drawn = [own[torch.randperm(len(own), generator=random)[:most].sort().values.numpy()] for own in of_class]
    samples = [rows.at(places) for places in drawn]
    if not any(bool((sample != samples[0][0]).any()) for sample in samples):
        raise BadInputError("all rows are the same, so there is nothing to tell apart")
    distinct = [len(np.unique(sample.numpy(), axis=0)) for sample in samples]
    if settings.prototypes > sum(distinct):
        return None
    shares = share_out(settings.prototypes, [len(own) for own in of_class], distinct)
    return Lessons(rows, settings, classes, samples, shares)


def may_learn(prototypes: int, classes: Sequence[str] | None, labelled: int) -> bool:
    """Whether so many prototypes can stand for the classes of so many rows with a label."""
    return classes is not None and len(classes) <= prototypes <= labelled


def forward(bank: nn.Module, batch: Any) -> Any:
    """The bank's readout of a batch of rows and classes."""
    return bank(batch[0])


def share_out(prototypes: int, counts: list[int], most: list[int]) -> list[int]:
    """Prototypes for classes of so many rows: one for each, the rest by size, in no class more than ``most`` of it.

    Example:
        >>> from ddcl.fitting.lessons import share_out
        >>> share_out(6, [10, 10, 10], [10, 10, 10]), share_out(6, [90, 9, 1], [90, 9, 1]), share_out(4, [9, 9], [1, 9])
        ([2, 2, 2], [4, 1, 1], [1, 3])
    """
    given, sizes = np.ones(len(counts), dtype=int), np.asarray(counts, dtype=float)
    for _ in range(prototypes - len(counts)):
        given[int(np.where(given < most, sizes / given, -1.0).argmax())] += 1
    return [int(one) for one in given]


def _log_shares(z: Float[Tensor, "n m"], prototypes: Float[Tensor, "K m"], temperature: Tensor) -> Float[Tensor, "n K"]:
    """ln q, where q itself would be 0 for prototypes far away."""
    middle = bank_center(prototypes)  # far from the origin the products below would have no digits left
    z, prototypes = z - middle, prototypes - middle
    return ((2 * z @ prototypes.T - prototypes.square().sum(-1)) / temperature).log_softmax(-1)
