"""The quantisers of the table behind one face: tokens in, values, codes, loss and, where there is one, a soft value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ddcl.functional import resolving_temperature
from ddcl.functional.criticality import critical_temperature
from ddcl.nn import PrototypeQuantizer
from ddcl.rivals.quantisers import RivalQuantizer
from ddcl.training import CriticalSchedule, ExponentialSchedule, SoftKMeans
from ddcl.training.soft_kmeans import Burden

PAPER_WEIGHT = 0.1
"""Of L_q in the paper's loss."""


class Coded(NamedTuple):
    """What became of a batch of tokens."""

    value: Tensor
    """What the decoder gets, (N, m)."""
    indices: Tensor
    """The code of each token, (N,)."""
    loss: Tensor
    """To be added to the reconstruction's."""
    soft: Tensor | None = None
    """The soft centroid; None where there is no such thing."""
    soft_mass: Tensor | None = None
    """Mean assignment of each code, for the paper's figure."""
    gap: Tensor | None = None
    """What the library calls the soft-hard gap."""


class Quantiser(nn.Module):
    """What the loop asks of a quantiser."""

    num_codes: int
    slow_rate: float | None = None
    """Learning rate of encoder and decoder if the method prescribes it; it is constant then."""
    fast_rate: float | None = None
    """That of :meth:`fast_parameters`."""

    def start(self, tokens: Tensor, steps: int, steps_per_epoch: int) -> None:
        """Called once before training, with tokens of the encoder as it begins."""

    def after_step(self, done: float) -> None:
        """Called after each step of the optimiser, with the share of the run that is over."""

    def after_epoch(self) -> None:
        """Called after each epoch."""

    def forward(self, z: Tensor) -> Coded:
        """Tokens (N, m)."""
        raise NotImplementedError

    def hard(self, z: Tensor) -> Coded:
        """The same with hard values, for evaluation."""
        found: Coded = self(z)
        return found

    def fast_parameters(self) -> Iterator[nn.Parameter]:
        """Those that move at a rate of their own."""
        return iter(())


class Rival(Quantiser):
    """One of vector-quantize-pytorch's."""

    def __init__(self, kind: str, num_codes: int, dim: int, **options: Any) -> None:
        super().__init__()
        self.quantiser = RivalQuantizer(kind, num_codes, dim, **options)
        self.num_codes = self.quantiser.num_codes

    def forward(self, z: Tensor) -> Coded:
        """Tokens (N, m)."""
        return Coded(*self.quantiser(z))


class _Ours(Quantiser):
    """A PrototypeQuantizer and what is read off it."""

    def __init__(self, quantizer: PrototypeQuantizer) -> None:
        super().__init__()
        self.quantizer = quantizer
        self.num_codes = quantizer.num_prototypes

    def forward(self, z: Tensor) -> Coded:
        """Tokens (N, m)."""
        found = self.quantizer(z)
        if self.training:
            return Coded(found.quantized, found.indices, found.loss)
        soft = found.readout.centroid
        mass = found.readout.assignments.mean(0)
        return Coded(found.quantized, found.indices, found.loss, soft, mass, found.gap)

    def hard(self, z: Tensor) -> Coded:
        """Values from the nearest prototypes."""
        found: Coded = self(z)
        return found._replace(value=self.quantizer.codes(found.indices))


class Default(_Ours):
    """The library's: hard codes, straight-through to the encoder, the bank by running soft k-means, T below T_K.

    Tokens are held to their codes in inverse proportion to how much their code is used: the encoder spreads out what
    crowds into one cell, and codes are used evenly without a force that the reconstruction would pay for.
    """

    REST = 0.9
    """From this share of a run on nothing is revived any more."""
    LIGHTEST = 1e-3
    """Of the mean mass: cells lighter than that hold their tokens no harder."""

    def __init__(
        self,
        num_codes: int,
        dim: int,
        momentum: float = 0.97,
        revive: float = 0.5,
        relieve: Burden = "mass",
        from_data: bool = True,
    ) -> None:
        super().__init__(PrototypeQuantizer(dim, num_codes, backward="identity", init_on_first_batch=False))
        self.momentum, self.revive, self.relieve, self.from_data = momentum, revive, relieve, from_data

    def start(self, tokens: Tensor, steps: int, steps_per_epoch: int) -> None:  # noqa: ARG002
        """k-means on the first tokens; temperatures in units of what the bank resolves, as the Recipe has them."""
        bank = self.quantizer.bank
        self.quantizer.init_from(tokens, restarts=1)
        if not self.from_data:
            bank.move_to(torch.randn_like(bank.prototypes) * tokens.std())
        self.mover = SoftKMeans(self.momentum, revive=self.revive, relieve=self.relieve).attach(self.quantizer)
        apart = resolving_temperature(bank.prototypes.detach(), gradient=bank.splits_like)
        unit = float(apart.mean() / critical_temperature(tokens, gradient=bank.splits_like))
        self.schedule = CriticalSchedule(
            min(0.1 * unit, 0.5), min(0.01 * unit, 0.05), steps=max(1, int(0.7 * steps)), resolved=0.1
        ).attach(self.quantizer)

    def forward(self, z: Tensor) -> Coded:
        """Tokens (N, m)."""
        coded = super().forward(z)
        if not self.training:
            return coded
        mass = self.mover.mass(self.quantizer.bank)[0]
        hold = (mass.mean() / mass.clamp_min(self.LIGHTEST * mass.mean()))[coded.indices]
        apart = (z - self.quantizer.codes(coded.indices).detach()).square().mean(-1)
        return coded._replace(loss=self.quantizer.commitment * (hold / hold.mean() * apart).mean())

    def after_step(self, done: float) -> None:
        """The bank to its cells' means, the temperature down."""
        self.mover.step()
        self.schedule.step()
        if done > self.REST:
            self.mover.revive = 0.0


class Paper(_Ours):
    """The paper's recipe: soft codes, T from 2.0 to 0.3 with a time constant of 20 epochs, the bank by gradient."""

    slow_rate, fast_rate = 1e-4, 1e-3

    def __init__(self, num_codes: int, dim: int) -> None:
        # L_q is a sum over coordinates, the quantizer's loss a mean
        soft = PrototypeQuantizer(
            dim, num_codes, mode="soft", commitment=PAPER_WEIGHT * dim, temperature=2.0, init_on_first_batch=False
        )
        super().__init__(soft)

    def start(self, tokens: Tensor, steps: int, steps_per_epoch: int) -> None:  # noqa: ARG002
        """k-means on the first tokens."""
        self.quantizer.init_from(tokens, restarts=1)
        self.schedule = ExponentialSchedule(2.0, 0.3, 20.0).attach(self.quantizer)

    def after_epoch(self) -> None:
        """The temperature down."""
        self.schedule.step()

    def fast_parameters(self) -> Iterator[nn.Parameter]:
        """The prototypes."""
        return self.quantizer.bank.parameters()


METHODS: dict[str, Callable[[int, int], Quantiser]] = {
    "straight-through VQ": lambda K, dim: Rival("straight-through", K, dim),
    "EMA, k-means start, restarts": lambda K, dim: Rival("ema", K, dim),
    "EMA with the rotation trick": lambda K, dim: Rival("rotation", K, dim),
    "SimVQ": lambda K, dim: Rival("simvq", K, dim),
    "FSQ": lambda K, dim: Rival("fsq", K, dim),
    "LFQ": lambda K, dim: Rival("lfq", K, dim),
    "the paper's recipe": Paper,
    "ddcl, default": Default,
}

VARIANTS: dict[str, Callable[[int, int], Quantiser]] = {
    "straight-through VQ, k-means start": lambda K, dim: Rival("straight-through", K, dim, kmeans_init=True),
    "EMA, random start": lambda K, dim: Rival("ema", K, dim, kmeans_init=False, threshold_ema_dead_code=0),
    "EMA, k-means start": lambda K, dim: Rival("ema", K, dim, threshold_ema_dead_code=0),
    "ddcl, random start, nothing revived": lambda K, dim: Default(K, dim, revive=0.0, from_data=False),
    "ddcl, random start": lambda K, dim: Default(K, dim, from_data=False),
    "ddcl, k-means start, nothing revived": lambda K, dim: Default(K, dim, revive=0.0),
}
"""The same quantisers begun otherwise, so that they differ in how many codes they use in their first epoch."""


def build(name: str, num_codes: int, dim: int, device: torch.device | str) -> Quantiser:
    """A quantiser by the name the table gives it."""
    known = METHODS | VARIANTS
    if name not in known:
        raise ValueError(f"quantiser: got {name!r}, expected one of {', '.join(known)}")
    return known[name](num_codes, dim).to(device)
