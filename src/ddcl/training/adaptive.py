"""A bank that finds its own size: as many prototypes as the temperature supports, no more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ddcl import ops
from ddcl.functional import CRITICAL_FACTOR, assignments, covariance, soft_kmeans_step, split_modes
from ddcl.functional.checks import check_count, check_float_tensor
from ddcl.nn import PrototypeBank, banks_of
from ddcl.ops import squared_distances
from ddcl.shapes import Bool, Float, Int
from ddcl.training.following import FollowsBanks, carried_rows
from ddcl.training.monitor.repair import idle_prototypes, partings

RELAXING_STEPS = 30
"""Steps of soft k-means before a bank is judged; one that has trained is near rest when it begins."""

RESTING = 1e-8
"""Squared length of a step, in units of T, under which a bank is at rest."""

DOUBT = 2.0
"""Standard errors by which a split margin must be negative."""


class SizeChange(NamedTuple):
    """What was done to a bank."""

    pruned: int
    """Prototypes taken out because they won no token, as an exact copy of another does."""
    merged: int
    """Prototypes taken out because another one does the same at this temperature."""
    split: int
    """Prototypes that became two."""


@dataclass(frozen=True)
class AdaptiveSize:
    r"""How a bank of one head grows and shrinks between bounds while it trains.

    At the temperature of the moment, one look at the bank

    - takes out prototypes that win no token, and all but one of those that coincide;
    - merges two neighbours closer than T resolves if the one in their place would not split again;
    - splits every prototype with a negative split margin (:func:`ddcl.split_margins`) along its unstable direction,
      if a direction found on half of the tokens is unstable on the other half too, by two standard errors: in many
      dimensions a few tokens always have a direction in which they seem wide.

    So the size it comes to rest at is :math:`K_{\mathrm{eff}}(T)`: what the final temperature supports. A cell with
    the largest variance :math:`\lambda` splits below :math:`T = 4\lambda` (2 in mode stop), so at
    :math:`T = a\,T_c` a cluster whose own largest variance is below the share a of that of all tokens stays whole,
    and two clusters that one prototype holds part if together they have more. That share is ``resolution``.

    Pass it as ``Recipe(adapt=...)``, or call :meth:`adapt` in a loop of your own after each epoch.

    Args:
        minimum: fewest prototypes.
        maximum: most prototypes.
        resolution: the multiple of T_c at which a run with the default temperatures ends. Lower finds finer structure.

    Example:
        >>> centers = 10 * torch.eye(8)
        >>> z = centers[torch.randint(8, (512,))] + torch.randn(512, 8)
        >>> bank = PrototypeBank(num_prototypes=2, dim=8)
        >>> history = Trainer(bank, Recipe(epochs=20, adapt=AdaptiveSize(maximum=64))).fit(z.split(128))
        >>> bank.num_prototypes
        8
    """

    minimum: int = 2
    maximum: int = 64
    resolution: float = 0.1

    def __post_init__(self) -> None:
        check_count("minimum", self.minimum)
        check_count("maximum", self.maximum, minimum=self.minimum)
        if not 0 < self.resolution < 1:
            raise ValueError(f"resolution: got {self.resolution}, expected a multiple of T_c between 0 and 1")

    def check(self, model: nn.Module) -> None:
        """Refuse a model with a bank whose size cannot follow."""
        for name, bank in banks_of(model).items():
            if bank.num_heads != 1:
                raise ValueError(f"bank {name!r}: it has {bank.num_heads} heads, expected 1: all heads share one K")
            if not bank.resizable:
                raise ValueError(
                    f"bank {name!r}: it is not resizable, expected one on whose size no other parameter depends"
                )
            if not self.minimum <= bank.num_prototypes <= self.maximum:
                raise ValueError(
                    f"bank {name!r}: it has {bank.num_prototypes} prototypes, expected from {self.minimum} to "
                    f"{self.maximum}, the bounds of its size"
                )

    @torch.no_grad()
    def adapt(
        self,
        bank: PrototypeBank,
        tokens: Float[Tensor, "*batch m"],
        *,
        optimiser: Optimizer | None = None,
        followers: Iterable[Any] = (),
        grow: bool = True,
    ) -> SizeChange:
        """Change the size of a bank once, from a sample of the tokens that enter it.

        Args:
            bank: a bank of one head.
            tokens: unmasked tokens (..., m); a few thousand are enough.
            optimiser: what it has gathered about a prototype that stays goes along, one that is new or moved starts
                at zero.
            followers: the schedule, mover and monitor that are attached to the bank; likewise.
            grow: False only takes prototypes out, as at the end of a run.
        """
        self.check(bank)
        check_float_tensor("tokens", tokens)
        points = bank.prototypes[0].detach().double()
        x = tokens.detach().reshape(-1, bank.dim).to(points)
        if not len(x) or not bool(torch.isfinite(x).all() and torch.isfinite(points).all()):
            return SizeChange(0, 0, 0)
        # judged by the free energy, at the temperature at which it splits like the bank does
        temperature = float(bank.temperature[0]) * CRITICAL_FACTOR["stop"] / CRITICAL_FACTOR[bank.splits_like]
        rows = _Rows(points)
        pruned = rows.drop((_counts(x, points) <= 0).nonzero().flatten())
        rows.relax(x, temperature)
        merged = _merge(rows, x, temperature)
        rows.relax(x, temperature)
        split = _split(rows, x, temperature, self.maximum) if grow else 0
        merged -= rows.restore(min(self.minimum - len(rows), merged))
        pruned -= rows.restore(self.minimum - len(rows))
        change = SizeChange(pruned, merged, split)
        if any(change):
            before = bank.num_prototypes
            bank.resize_to(rows.points.unsqueeze(0))
            for parameter in bank.learned if optimiser is not None else []:
                _carry_state(optimiser.state.get(parameter, {}), before, rows.origin)  # type: ignore[union-attr]
            for follower in followers:
                if isinstance(follower, FollowsBanks):
                    follower.resized(bank, rows.origin)
        return change


class _Rows:
    """Prototypes on their way to another number.

    Each has a place, the place where it would come to rest by soft k-means, and the row it was before, -1 where it is
    new or moved. What is dropped can be brought back, the last first.
    """

    def __init__(self, points: Float[Tensor, "K m"]) -> None:
        self.points, self.resting = points.clone(), points.clone()
        self.origin = torch.arange(len(points), device=points.device)
        self._dropped: list[tuple[Tensor, Tensor, Tensor]] = []

    def __len__(self) -> int:
        return len(self.points)

    def relax(self, x: Tensor, temperature: float) -> None:
        """Let them come to rest."""
        for _ in range(RELAXING_STEPS):
            before, self.resting = self.resting, soft_kmeans_step(x, self.resting, temperature)
            if float((self.resting - before).square().sum(-1).max()) <= RESTING * temperature:
                break

    def drop(self, places: Tensor) -> int:
        """Take some out; all but one if it is all of them. How many."""
        places = places[: len(self) - 1]
        kept = torch.ones(len(self), dtype=torch.bool, device=self.points.device)
        kept[places] = False
        self._dropped += [(self.points[one], self.resting[one], self.origin[one]) for one in places.tolist()]
        self.points, self.resting, self.origin = self.points[kept], self.resting[kept], self.origin[kept]
        return len(places)

    def restore(self, count: int) -> int:
        """Bring some back that were dropped; how many."""
        back = [self._dropped.pop() for _ in range(min(max(count, 0), len(self._dropped)))]
        for point, resting, origin in back:
            self.points = torch.cat([self.points, point[None]])
            self.resting = torch.cat([self.resting, resting[None]])
            self.origin = torch.cat([self.origin, origin[None]])
        return len(back)

    def part(self, place: int, one: Tensor, other: Tensor) -> None:
        """Put one at a place of its own and a new one at another."""
        self.points[place], self.resting[place], self.origin[place] = one, one, -1
        self.points = torch.cat([self.points, other[None]])
        self.resting = torch.cat([self.resting, other[None]])
        self.origin = torch.cat([self.origin, self.origin.new_full((1,), -1)])


def _merge(rows: _Rows, x: Tensor, temperature: float) -> int:
    """Take out what does the same as another at this temperature; how many."""
    before = len(rows)
    rows.drop(
        idle_prototypes(rows.resting, _counts(x, rows.resting).clamp_min(1), float(covariance(x).trace))
        .nonzero()
        .flatten()
    )
    while len(rows) > 1:
        # two groups of tokens so far apart would part at T, see resolving_temperature
        first, second = _close_pairs(rows.resting, 2 * temperature)
        if not len(first):
            break
        # all at once, each pair in the presence of the others: a look at every pair alone would cost as many passes
        trial, kept = rows.resting.clone(), torch.ones(len(rows), dtype=torch.bool, device=x.device)
        trial[first], kept[second] = (rows.resting[first] + rows.resting[second]) / 2, False
        parts = torch.zeros_like(kept)
        parts[kept] = _unstable(x, trial[kept], temperature)
        stays = ~parts[first]
        if not bool(stays.any()):
            break
        rows.resting[first[stays]] = trial[first[stays]]
        rows.drop(second[stays])
    return before - len(rows)


def _split(rows: _Rows, x: Tensor, temperature: float, maximum: int) -> int:
    """Make two of every prototype that would part, the most distorted first; how many there were."""
    unstable = _unstable(x, rows.resting, temperature)
    found = partings(x, rows.resting, temperature, "stop", at_rest=True)
    found = [parting for parting in found if bool(unstable[parting[0]])][: max(maximum - len(rows), 0)]
    for place, one, other in found:
        rows.part(place, one, other)
    return len(found)


def _unstable(x: Float[Tensor, "N m"], points: Float[Tensor, "K m"], temperature: float) -> Bool[Tensor, " K"]:
    """Whose split margin is negative beyond doubt: along a direction that other tokens have chosen.

    The largest of m variances of a few tokens is larger than any they were drawn with. So the direction is found on one
    half of the tokens and the margin measured on the other, both ways round.
    """
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).to(x.device)
    halves = x[order].tensor_split(2)
    margins, squares = torch.zeros_like(points[:, 0]), torch.zeros_like(points[:, 0])
    for known, unseen in (halves, halves[::-1]) if len(x) > 1 else ():
        directions = split_modes(known, points, temperature, gradient="stop").directions
        along = unseen @ directions.mT - (points * directions).sum(-1)
        terms = assignments(unseen, points, temperature) * (1 - 2 / temperature * along.square())
        margins += terms.sum(0)
        squares += terms.square().sum(0)
    return margins < -DOUBT * squares.sqrt()


def _counts(x: Float[Tensor, "N m"], points: Float[Tensor, "K m"]) -> Float[Tensor, " K"]:
    return torch.bincount(ops.nearest(x, points)[0], minlength=len(points)).to(points.dtype)


def _close_pairs(points: Float[Tensor, "K m"], reach: float) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"]]:
    """Pairs that are each other's nearest, closer than the squared distance ``reach``; the closest first."""
    distances = squared_distances(points, points).fill_diagonal_(float("inf"))
    distance, nearest = distances.min(-1)
    own = torch.arange(len(points), device=points.device)
    first = ((nearest[nearest] == own) & (own < nearest) & (distance < reach)).nonzero().flatten()
    first = first[distance[first].argsort()]
    return first, nearest[first]


def _carry_state(state: dict[str, Any], before: int, origin: Tensor) -> None:
    """What an optimiser keeps for each prototype to the new rows."""
    for name, value in state.items():
        if isinstance(value, Tensor) and value.dim() == 3 and value.shape[1] == before:
            state[name] = carried_rows(value, origin)
