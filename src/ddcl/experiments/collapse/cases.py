"""The grid of the battery: what is varied, and which recipes run on it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Method = Literal["default", "default by gradient", "paper", "paper normalised", "straight-through VQ", "EMA VQ"]
METHODS: tuple[str, ...] = get_args(Method)
ABOUT: dict[str, str] = {
    "default": "T as a multiple of T_c, bank by running soft k-means, trainable encoders end in TokenNorm('standard')",
    "default by gradient": "the same with the bank moved by gradient at its own learning rate",
    "paper": "T from 2.0 to 0.3 (tau = 20 epochs), bank by gradient, k-means start, the encoder as it is",
    "paper normalised": "the paper's recipe behind TokenNorm('standard')",
    "straight-through VQ": "vector-quantize-pytorch, learnable codebook, commitment loss",
    "EMA VQ": "vector-quantize-pytorch, its defaults",
}
"""One line on each."""

Encoder = Literal["frozen", "linear", "mlp", "transformer"]
ENCODERS: tuple[str, ...] = get_args(Encoder)
SCALES = (0.01, 1.0, 100.0)
SIZES = (4, 16, 64, 256)
RATIOS = (0.001, 0.01, 0.1, 1.0)


@dataclass(frozen=True)
class Case:
    """One run."""

    method: Method
    encoder: Encoder
    scale: float
    """Of the data."""
    prototypes: int
    ratio: float
    """Learning rate of the encoder over that of the bank."""
    seed: int


def grid(
    methods: Iterable[Method],
    *,
    encoders: Sequence[Encoder] = ("frozen", "linear", "mlp", "transformer"),
    scales: Sequence[float] = SCALES,
    sizes: Sequence[int] = SIZES,
    ratios: Sequence[float] = RATIOS,
    seeds: Sequence[int] = (0,),
) -> list[Case]:
    """Every combination; a frozen encoder has no learning rate and runs once."""
    found = []
    for method, encoder, scale, size, seed in itertools.product(methods, encoders, scales, sizes, seeds):
        for ratio in ratios[-1:] if encoder == "frozen" else ratios:
            found.append(Case(method, encoder, scale, size, ratio, seed))
    return found


def quick_grid(methods: Iterable[Method]) -> list[Case]:
    """A corner of the grid where recipes differ, small enough for the tests."""
    return grid(methods, encoders=("frozen", "linear", "mlp"), scales=(0.01, 100.0), sizes=(16,), ratios=(0.1, 1.0))
