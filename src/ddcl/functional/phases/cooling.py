"""Cooling a bank from rest to rest: which groups of coincident prototypes part, and where exactly."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ddcl.functional.phases.resting import JITTER, MERGED, NUDGE, Groups, State, come_to_rest
from ddcl.ops import Gradient

SPLIT_ACCURACY = 1e-4
"""Of the temperature of a split, relative."""


class Split(NamedTuple):
    """A group of coincident prototypes that parted in two as the bank cooled; groups are named by their members."""

    parent: tuple[int, ...]
    children: tuple[tuple[int, ...], tuple[int, ...]]
    temperature: float
    """Where the group's margin changed sign; the grid's temperature if it was born on the wrong side of it."""
    relative: float
    """In units of T_c."""


class Merge(NamedTuple):
    """Groups that met as the bank cooled."""

    parts: tuple[tuple[int, ...], ...]
    group: tuple[int, ...]
    temperature: float
    """The first of the grid at which they are one."""
    relative: float


class Bath:
    """The tokens a bank is cooled in, and the splits and merges seen so far; temperatures are in units of T_c.

    Args:
        z: tokens (N, m) in units in which T_c = 1.
        critical: T_c in the user's units.
        gradient: the mode, which says what is descended.
        steps: the most steps of descent to a resting place.
    """

    def __init__(self, z: Tensor, critical: float, gradient: Gradient, steps: int) -> None:
        self.z, self.critical, self.gradient, self.steps = z, critical, gradient, steps
        self.splits: list[Split] = []
        self.merges: list[Merge] = []
        self._noise = torch.Generator().manual_seed(0)

    def cool(self, groups: Groups, before: float, temperature: float) -> tuple[Groups, State, float]:
        """From rest at one temperature to rest at a lower one; also the state there and the step that was left."""
        start = groups
        found = self._rest(self._shaken(groups, temperature), temperature)
        self._note_merges(start, found[0], temperature)
        held: set[tuple[int, ...]] = set()  # tried, and came back together
        while (unstable := self._most_unstable(found[0], temperature, held)) is not None:
            place, direction = unstable
            parent = found[0].members[place]
            halved, parted = self._part(found[0], place, direction, temperature)
            if parent in parted[0].members or parted[1].energy >= found[1].energy:
                held.add(parent)
                continue
            at = self._crossing(start, parent, before, temperature)
            self.splits.append(
                Split(parent, (halved.members[place], halved.members[place + 1]), at * self.critical, at)
            )
            # a half may end its way in another group
            self._note_merges(halved, parted[0], temperature)
            found = parted
        return found

    def _shaken(self, groups: Groups, temperature: float) -> Groups:
        """Symmetric data can hold groups on a saddle that is none for any of them alone; noise takes them off it."""
        if len(groups.members) == 1:
            return groups
        noise = torch.randn(groups.centers.shape, dtype=torch.float64, generator=self._noise).to(groups.centers)
        return groups.at(groups.centers + JITTER * temperature**0.5 * noise)

    def _rest(self, groups: Groups, temperature: float) -> tuple[Groups, State, float]:
        """At rest, with groups that met joined."""
        groups, state, left = come_to_rest(self.z, groups, temperature, self.gradient, self.steps)
        joined = groups.merged(MERGED * temperature**0.5)
        if len(joined.members) < len(groups.members):
            return self._rest(joined, temperature)
        return groups, state, left

    def _note_merges(self, before: Groups, after: Groups, temperature: float) -> None:
        for group in after.members:
            parts = tuple(part for part in before.members if set(part) < set(group))
            if parts:
                self.merges.append(Merge(parts, group, temperature * self.critical, temperature))

    def _most_unstable(
        self, groups: Groups, temperature: float, held: set[tuple[int, ...]]
    ) -> tuple[int, Tensor] | None:
        margins, directions = groups.margins(self.z, temperature, self.gradient)
        able = torch.tensor([len(group) > 1 and group not in held for group in groups.members])
        margins = torch.where(able.to(margins.device), margins, float("inf"))
        place = int(margins.argmin())
        # closer to its own split than this a group would take forever to part, and the temperature is known anyway
        return (place, directions[place]) if float(margins[place]) < -SPLIT_ACCURACY else None

    def _part(
        self, groups: Groups, place: int, direction: Tensor, temperature: float
    ) -> tuple[Groups, tuple[Groups, State, float]]:
        """A group in halves, and the bank at rest; of an odd group the larger half goes where the energy ends lower."""
        length = NUDGE * temperature**0.5
        ways = (True, False) if len(groups.members[place]) % 2 else (True,)
        halves = [groups.halved(place, direction, length, larger_first=way) for way in ways]
        tried = [(parted, self._rest(self._shaken(parted, temperature), temperature)) for parted in halves]
        return min(tried, key=lambda outcome: outcome[1][1].energy)

    def _crossing(self, start: Groups, group: tuple[int, ...], before: float, after: float) -> float:
        """Where the group's margin changed sign between two temperatures, by false position in ln T."""
        if group not in start.members:
            return after
        high, low = math.log(before), math.log(after)
        above, below = self._margin(start, group, before), self._margin(start, group, after)
        if above <= 0 or below >= 0:  # within the accuracy of the margins of one of the two
            return before if above <= 0 else after
        middle, side = low, 0.0
        for _ in range(30):
            last, middle = middle, high + (low - high) * above / (above - below)
            if abs(middle - last) < SPLIT_ACCURACY / 10:
                break
            found = self._margin(start, group, math.exp(middle))
            # an end that stays twice running counts half, or false position creeps (the Illinois rule)
            again, side = found * side > 0, found
            if found > 0:
                high, above, below = middle, found, below / 2 if again else below
            else:
                low, below, above = middle, found, above / 2 if again else above
        return math.exp(middle)

    def _margin(self, start: Groups, group: tuple[int, ...], temperature: float) -> float:
        groups, _, _ = come_to_rest(self.z, start, temperature, self.gradient, self.steps)
        return float(groups.margins(self.z, temperature, self.gradient)[0][groups.members.index(group)])
