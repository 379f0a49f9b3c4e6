"""Texts of the readout study as one vector each: both poolings of a frozen encoder, training and test split."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ddcl.data import embed, load_texts
from ddcl.data.embeddings import Pooling


class Vectors(NamedTuple):
    """One split of a set."""

    x: Tensor
    """As the encoder gave them, (N, dim)."""
    labels: Tensor
    """(N,)."""


@lru_cache(maxsize=4)
def load_vectors(name: str, split: str, encoder: str, pooling: Pooling, max_tokens: int, count: int | None) -> Vectors:
    """The vectors of a split, or of ``count`` texts drawn from it, always the same ones."""
    texts = load_texts(name, split)
    rows = drawn(len(texts.texts), count)
    chosen = [texts.texts[i] for i in rows]
    x = embed(chosen, encoder=encoder, pooling=pooling, normalise=False, max_tokens=max_tokens)
    return Vectors(x, torch.tensor(texts.labels)[torch.from_numpy(rows)])


def drawn(total: int, count: int | None) -> np.ndarray:
    """Which texts of a split are taken, in their order there: sets come sorted by class, so not the first ones.

    Example:
        >>> len(drawn(100, 10)), len(drawn(5, None)), len(drawn(5, 10))
        (10, 5, 5)
    """
    return np.sort(np.random.default_rng(0).permutation(total)[:count])


def standardised_by(train: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """All in units of the first one's spread about its mean, coordinate by coordinate; what never changes becomes 0.

    Example:
        >>> train, test = standardised_by(torch.tensor([[1.0, 5.0], [3.0, 5.0]]), torch.tensor([[4.0, 5.0]]))
        >>> test
        tensor([[2., 0.]])
    """
    mean = train.mean(0)
    spread = train.std(0, correction=0)
    scale = torch.where(spread > 0, 1 / spread, 0.0)
    return tuple((x - mean) * scale for x in (train, *others))


def unit(x: Tensor) -> Tensor:
    """Each vector at length 1, as sentence encoders are meant to be compared."""
    return F.normalize(x, dim=-1)
