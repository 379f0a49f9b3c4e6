"""Heating a trained bank: which of its prototypes become one at which temperature."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ddcl.functional.separation import prototype_groups
from ddcl.shapes import Float, Int

HEATED_ROWS, DIRECTIONS = 2048, 128
"""Rows the bank is heated in, and the leading principal directions of them that are kept."""
HOTTEST, COLDER = 1.6, 3.0
"""It ends at this multiple of T_c, above 1 as a trained bank can hold out there, and begins so many times colder than
it is read."""
POINTS, STEPS = 40, 40
"""Temperatures, and the most steps at each."""
MOST_HEATED = 1024
"""Prototypes; a larger bank would take minutes."""
STRETCH = 1.7
"""Of a soft k-means step: below 2 it still descends, and near a merge it saves half of the way."""
AT_REST = 1e-3
"""A step of no prototype longer than this, in units of the root of T, is rest."""
MET = 0.05
"""Prototypes closer than this, in the same units, are one from there on."""
_LOOK = 10
"""Steps between two looks at who has met."""
_SHARES, _PRODUCTS = 2**31, 2**37
"""Shares that are computed in all, and products of numbers: with many prototypes there are fewer temperatures and
directions."""


@dataclass(frozen=True, eq=False)
class Heating:
    """Where the prototypes of a trained bank are as it warms; n temperatures, K prototypes."""

    critical: float
    """T_c."""
    temperatures: Float[Tensor, " n"]
    """Rising, by the same factor at each step."""
    groups: Int[Tensor, "n K"]
    """For each prototype the lowest number among those it is one with."""
    positions: Float[Tensor, "n K m"]
    rows: int
    """How many it was heated in."""

    @property
    def distinct(self) -> Int[Tensor, " n"]:
        """How many places the prototypes are in."""
        return torch.tensor([len(row.unique()) for row in self.groups])


@torch.no_grad()
def heat(
    rows: Float[Tensor, "N m"],
    prototypes: Float[Tensor, "K m"],
    *,
    reading: float,
    critical: float,
) -> Heating:
    r"""Warm a trained bank from a cold start to above T_c, letting it come to rest by soft k-means at each step.

    Prototypes that meet are held together from there on, so what is recorded is a tree with the run's prototypes as
    its leaves. :func:`ddcl.phase_diagram` goes the other way, from the merged bank down, and is exact where this is
    quick: a step that is no longer than :data:`AT_REST`, or the last of :data:`STEPS`, counts as rest.

    Args:
        rows: embeddings of the kind the bank was trained on, in any order; the first :data:`HEATED_ROWS` count, along
            their :data:`DIRECTIONS` leading directions. Of a bank beyond 512 four for each prototype count, and
            there are fewer temperatures and directions.
        prototypes: the trained bank, of no more than :data:`MOST_HEATED`.
        reading: the temperature the bank is read at; the heating begins :data:`COLDER` times colder.
        critical: T_c of the data.

    Example:
        >>> from ddcl.fitting.heating import heat
        >>> rows = torch.tensor([[0.0], [1.0], [9.0], [10.0]])
        >>> found = heat(rows, rows, reading=0.1, critical=41.0)
        >>> found.distinct[[0, -1]].tolist(), found.groups[-1].tolist()
        ([4, 1], [0, 0, 0, 0])
    """
    sample = rows[: heated_rows(len(prototypes))].float()
    mean = sample.mean(0)
    a_step = len(sample) * len(prototypes) * STEPS
    points = min(POINTS, max(12, _SHARES // a_step))
    kept = min(DIRECTIONS, max(32, _PRODUCTS // (a_step * points)))
    directions = torch.linalg.svd(sample - mean, full_matrices=False)[2][:kept]
    unit = critical**0.5  # in units in which T_c = 1 the data's scale cannot enter
    bath = _Bath((sample - mean) @ directions.mT / unit, (prototypes.float() - mean) @ directions.mT / unit)
    coldest = min(reading / critical, 1.0) / COLDER
    grid = torch.logspace(math.log10(coldest), math.log10(HOTTEST), points, dtype=torch.float64)
    labels, places = [], []
    for temperature in grid.tolist():
        bath.rest(temperature)
        labels.append(bath.groups)
        places.append(bath.centers[bath.place])
    positions = torch.stack(places) @ directions * unit + mean
    return Heating(critical, grid * critical, torch.stack(labels), positions, len(sample))


def heated_rows(num_prototypes: int) -> int:
    """How many rows a bank is heated in: with fewer than a few for each, prototypes would be alone with their rows."""
    return max(HEATED_ROWS, 4 * num_prototypes)


class _Bath:
    """A bank among rows, with prototypes that met kept as one that weighs as many as it is made of."""

    def __init__(self, z: Tensor, bank: Tensor) -> None:
        self.z, self.centers = z, bank
        self.counts = torch.ones(len(bank), device=bank.device)
        self.place = torch.arange(len(bank), device=bank.device)
        """(K,), which center each prototype is in."""

    @property
    def groups(self) -> Tensor:
        """(K,), the lowest number among those a prototype is one with."""
        members = torch.arange(len(self.place), device=self.place.device)
        lowest = torch.full((len(self.centers),), len(self.place), device=members.device)
        return lowest.scatter_reduce(0, self.place, members, "amin")[self.place]

    def rest(self, temperature: float) -> None:
        """To where the next step is short, joining what meets on the way."""
        reach = temperature**0.5
        for step in range(1, STEPS + 1):
            move = self._to_means(temperature)
            self.centers = self.centers + STRETCH * move
            at_rest = float(move.norm(dim=-1).max()) <= AT_REST * reach
            if at_rest or step % _LOOK == 0:
                joined = self._join((MET * reach) ** 2)
                if at_rest and not joined:
                    return

    def _to_means(self, temperature: float) -> Tensor:
        """From every center to the mean of its soft cell; those without any mass stay."""
        centers = self.centers
        logits = self.z @ centers.mT * (2 / temperature) + (self.counts.log() - centers.square().sum(-1) / temperature)
        q = logits.softmax(-1)
        mass = q.sum(0)[:, None]
        return (q.mT @ self.z - mass * centers) / mass.clamp_min(torch.finfo(q.dtype).tiny)

    def _join(self, threshold: float) -> bool:
        """Centers closer than the root of the threshold become one, in the mean of their prototypes."""
        kept, to = prototype_groups(self.centers, threshold).unique(return_inverse=True)
        if len(kept) == len(self.centers):
            return False
        counts = self.counts.new_zeros(len(kept)).index_add(0, to, self.counts)
        sums = self.centers.new_zeros(len(kept), self.centers.shape[1])
        self.centers = sums.index_add(0, to, self.counts[:, None] * self.centers) / counts[:, None]
        self.counts, self.place = counts, to[self.place]
        return True
