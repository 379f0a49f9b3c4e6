"""Where a bank comes to rest at a temperature, with prototypes that coincide held together as groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ddcl.functional.splitting import split_modes
from ddcl.ops import Gradient, squared_distances
from ddcl.shapes import Float, Int

# All lengths here are in units of sqrt(T), the reach of a prototype: the data's own scale at any depth of the tree,
# and with it everything commutes with a change of units.
NUDGE = 0.05
"""How far the halves of a group are put apart to see whether they go on parting."""
MERGED = 0.005
"""Groups that come to rest closer than this are one."""
JITTER = 1e-3
"""Noise on every group before it comes to rest."""
AT_REST = 1e-6
"""A bank whose next soft k-means step moves no prototype further than this is at rest."""

_LONGEST_STEP = 50.0


class State(NamedTuple):
    """A bank of groups and what the tokens make of it."""

    energy: float
    """What is descended: L in mode full, F in mode stop; means over tokens."""
    gradient: Tensor
    """(G, m), of the energy in the groups' positions."""
    mass: Tensor
    """(G,) mean over tokens of the joint responsibility of a group's members."""
    loss: float
    entropy: float
    """Of the assignments to the prototypes, not to the groups: ln K when nothing is decided."""


@dataclass(frozen=True, eq=False)
class Groups:
    """Positions of groups of coincident prototypes, and which prototypes are in each."""

    centers: Float[Tensor, "G m"]
    members: tuple[tuple[int, ...], ...]

    @property
    def counts(self) -> Int[Tensor, " G"]:
        """How many prototypes each group holds."""
        return torch.tensor([len(group) for group in self.members], device=self.centers.device)

    def spread_out(self, per_group: Tensor) -> Tensor:
        """One row per prototype from one row per group."""
        order = {member: place for place, group in enumerate(self.members) for member in group}
        return per_group[[order[member] for member in range(len(order))]]

    def at(self, centers: Tensor) -> Groups:
        """The same groups elsewhere."""
        return Groups(centers, self.members)

    def state(self, z: Tensor, temperature: float, gradient: Gradient) -> State:
        r"""Energy, gradient and masses: n copies in one place weigh n times, :math:`q_g \propto n_g e^{-d_g / T}`."""
        d = squared_distances(z, self.centers)
        log_q = torch.log_softmax(self.counts.log() - d / temperature, -1)
        q = log_q.exp()
        loss = (q * d).sum(-1, keepdim=True)
        entropy = float(-(q * (log_q - self.counts.log())).sum(-1).mean())
        w = q if gradient == "stop" else q * (1 - (d - loss) / temperature)
        slope = 2 * (w.sum(0)[:, None] * self.centers - w.mT @ z) / len(z)
        total = float(loss.mean())
        energy = total if gradient == "full" else total - temperature * entropy
        return State(energy, slope, q.mean(0), total, entropy)

    def margins(self, z: Tensor, temperature: float, gradient: Gradient) -> tuple[Tensor, Tensor]:
        """Smallest eigenvalue of A_k per unit of mass, and its direction, for each group."""
        first = [group[0] for group in self.members]
        modes = split_modes(z, self.spread_out(self.centers), temperature, gradient=gradient)
        return (modes.margins / modes.mass)[first], modes.directions[first]

    def halved(self, place: int, direction: Tensor, length: float, *, larger_first: bool) -> Groups:
        """One group parted in two halves around its position, along a direction."""
        group = self.members[place]
        n = len(group)
        cut = (n + 1) // 2 if larger_first else n // 2
        apart = length * direction / n
        here = self.centers[place]
        centers = torch.cat(
            [
                self.centers[:place],
                (here + (n - cut) * apart)[None],
                (here - cut * apart)[None],
                self.centers[place + 1 :],
            ]
        )
        return Groups(centers, (*self.members[:place], group[:cut], group[cut:], *self.members[place + 1 :]))

    def merged(self, length: float) -> Groups:
        """Groups closer than a length joined, each in the mean of its prototypes."""
        for place, center in enumerate(self.centers):
            close = (self.centers[place + 1 :] - center).norm(dim=-1) < length
            if bool(close.any()):
                other = place + 1 + int(close.nonzero()[0])
                a, b = len(self.members[place]), len(self.members[other])
                centers = self.centers.clone()
                centers[place] = (a * center + b * centers[other]) / (a + b)
                keep = [g for g in range(len(self.members)) if g != other]
                members = list(self.members)
                members[place] = tuple(sorted((*members[place], *members[other])))
                return Groups(centers[keep], tuple(members[g] for g in keep)).merged(length)
        return self


@torch.no_grad()
def come_to_rest(
    z: Float[Tensor, "N m"], groups: Groups, temperature: float, gradient: Gradient, steps: int
) -> tuple[Groups, State, float]:
    r"""Descend to the resting place nearest downhill; also its state and the length of the step that was left.

    Steps go along the soft k-means step :math:`-\nabla_k / 2 m_k`, m the mass of the group, as far as the curvature
    just measured says (Barzilai and Borwein): its full length where the curvature is that of soft k-means, further
    along flat directions, which near a split are all that is left to go. A step that would raise the energy is
    shortened. No learning rate is guessed.
    """
    now = groups.state(z, temperature, gradient)
    tiny = torch.finfo(z.dtype).tiny
    stretch, left, used = 1.0, float("inf"), 0
    while used < steps:
        metric = 2 * now.mass.clamp_min(tiny)[:, None]
        step = -now.gradient / metric
        left = float(step.norm(dim=-1).max()) / temperature**0.5
        if left <= AT_REST:
            break
        while True:
            moved = groups.at(groups.centers + stretch * step)
            after = moved.state(z, temperature, gradient)
            used += 1
            # rounding of the energy must not look like a rise
            if after.energy <= now.energy + 1e-13 * abs(now.loss) or stretch < 1e-6 or used >= steps:
                break
            stretch /= 4
        along = stretch * step
        curvature = float((along * (after.gradient - now.gradient)).sum())
        flat = float((metric * along.square()).sum())
        stretch = min(max(flat / curvature, 0.1), _LONGEST_STEP) if curvature > 0 else 1.0
        groups, now = moved, after
    return groups, now, left
