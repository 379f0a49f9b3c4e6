"""How many distinct prototypes a bank supports at each temperature, and the tree of its splits (theory: section 4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ddcl.functional.batches import Batches, token_batches
from ddcl.functional.checks import check_count, check_finite, check_gradient, check_temperature
from ddcl.functional.criticality import critical_temperature
from ddcl.functional.phases.cooling import Bath, Merge, Split
from ddcl.functional.phases.resting import Groups
from ddcl.ops import Gradient
from ddcl.shapes import Float, Int


@dataclass(frozen=True, eq=False)
class PhaseDiagram:
    """A bank's resting places as it cools; n temperatures, K prototypes."""

    gradient: Gradient
    critical: float
    """T_c of the data in this mode."""
    temperatures: Float[Tensor, " n"]
    relative: Float[Tensor, " n"]
    """T / T_c, falling."""
    distinct: Int[Tensor, " n"]
    """K_eff: how many places the K prototypes are in."""
    positions: Float[Tensor, "n K m"]
    mass: Float[Tensor, "n K"]
    """Mean assignment of each prototype."""
    loss: Float[Tensor, " n"]
    entropy: Float[Tensor, " n"]
    residual: Float[Tensor, " n"]
    """The soft k-means step that was left when the descent ended, in units of sqrt(T): large if it ran out of steps."""
    splits: tuple[Split, ...]
    """In the order they happened: temperatures fall."""
    merges: tuple[Merge, ...]
    """Groups that met again on the way down. It happens where a group could not be halved evenly."""

    @property
    def free_energy(self) -> Float[Tensor, " n"]:
        """F = L - T H at each temperature."""
        return self.loss - self.temperatures * self.entropy


def cooling_grid(start: float = 1.1, end: float = 0.02, points: int = 60) -> Float[Tensor, " n"]:
    """Temperatures in units of T_c, falling by the same factor at each step.

    Example:
        >>> cooling_grid(1.0, 0.01, points=3)
        tensor([1.0000, 0.1000, 0.0100], dtype=torch.float64)
    """
    check_count("points", points)
    for name, value in (("start", start), ("end", end)):
        if not 0 < value < float("inf"):
            raise ValueError(f"{name}: got {value}, expected a positive finite number")
    if end > start:
        raise ValueError(f"end: got {end}, expected at most start = {start}: a bank is cooled")
    return torch.logspace(math.log10(start), math.log10(end), points, dtype=torch.float64)


@torch.no_grad()
def phase_diagram(
    z: Batches,
    num_prototypes: int,
    *,
    gradient: Gradient = "stop",
    relative: Float[Tensor, " n"] | Sequence[float] | None = None,
    mask: Tensor | None = None,
    steps: int = 2000,
) -> PhaseDiagram:
    r"""Cool a bank from above T_c and record where it rests, how many places it is in and what split when.

    At each temperature the bank descends L (mode full) or F (mode stop) to rest from where it was before. Then every
    group of coincident prototypes whose margin :math:`\lambda_{\min}(A_k)` is negative is parted along its unstable
    direction, half of it each way, and the bank comes to rest again, until all groups are stable: exactly what
    infinitesimal noise does to a bank that cools slowly. Of an odd group the larger half goes where the energy ends up
    lower. In units of T_c the diagram of s z is that of z.

    Args:
        z: tokens (..., m), or an iterable of batches or (batch, mask) pairs; held whole, in float64.
        num_prototypes: K.
        gradient: the mode the bank is trained in; the two have different diagrams.
        relative: temperatures in units of T_c, falling; without it 60 from 1.1 to 0.02 (:func:`cooling_grid`).
        mask: for a tensor z, true where a token counts.
        steps: the most steps of descent after each change; ``residual`` tells whether they were enough.

    Example:
        >>> z = torch.tensor([[-5.0], [-4.0], [4.0], [5.0]])
        >>> diagram = phase_diagram(z, 4, relative=[1.1, 0.5, 0.001])
        >>> diagram.distinct.tolist(), [split.parent for split in diagram.splits]
        ([1, 2, 4], [(0, 1, 2, 3), (0, 1), (2, 3)])
        >>> round(diagram.splits[0].relative, 3)  # T_c, found by cooling
        1.0
    """
    check_count("num_prototypes", num_prototypes)
    check_gradient(gradient)
    check_count("steps", steps)
    grid = _falling(cooling_grid() if relative is None else relative)
    tokens = torch.cat([batch[:, 0].double() for batch in token_batches(z, mask)] or [torch.zeros(0, 1)])
    if not len(tokens):
        raise ValueError("z: got no unmasked tokens, expected at least one")
    check_finite("z", tokens)
    critical = float(critical_temperature(tokens, gradient=gradient))
    mean = tokens.mean(0)
    if critical <= torch.finfo(torch.float64).eps * float((tokens - mean).abs().max().clamp_min(1e-300)) ** 2:
        raise ValueError("z: all tokens are the same, expected tokens with a variance")
    # around the mean, in units in which T_c = 1: the data's scale cannot enter
    unit = critical**0.5
    bath = Bath((tokens - mean) / unit, critical, gradient, steps)
    groups = Groups(torch.zeros_like(mean)[None], (tuple(range(num_prototypes)),))
    before = 1.1 * max(1.0, float(grid[0]))  # there the merged bank is at rest in the mean
    rows = []
    for a in grid.tolist():
        groups, state, left = bath.cool(groups, before, a)
        rows.append((groups, state, left))
        before = a
    return PhaseDiagram(
        gradient=gradient,
        critical=critical,
        temperatures=grid * critical,
        relative=grid,
        distinct=torch.tensor([len(at.members) for at, _, _ in rows]),
        positions=torch.stack([at.spread_out(at.centers) for at, _, _ in rows]) * unit + mean,
        mass=torch.stack([at.spread_out(state.mass / at.counts) for at, state, _ in rows]),
        loss=torch.tensor([state.loss * critical for _, state, _ in rows], dtype=torch.float64),
        entropy=torch.tensor([state.entropy for _, state, _ in rows], dtype=torch.float64),
        residual=torch.tensor([left for _, _, left in rows], dtype=torch.float64),
        splits=tuple(sorted(bath.splits, key=lambda split: -split.temperature)),
        merges=tuple(bath.merges),
    )


def effective_prototypes(
    z: Batches,
    num_prototypes: int,
    temperature: float,
    *,
    gradient: Gradient = "stop",
    mask: Tensor | None = None,
) -> int:
    """K_eff(T): how many distinct prototypes a bank of K has after cooling from above T_c to a temperature.

    Arguments as in :func:`phase_diagram`; the temperature is absolute.

    Example:
        >>> z = torch.tensor([[-5.0], [-4.0], [4.0], [5.0]])
        >>> [effective_prototypes(z, 4, T) for T in (50.0, 10.0, 0.1)]  # T_c = 41
        [1, 2, 4]
    """
    check_temperature(temperature, everywhere=True)
    z = z if isinstance(z, Tensor) else list(z)  # walked through twice
    a = float(temperature) / float(critical_temperature(z, gradient=gradient, mask=mask))
    points = 2 if a >= 1 else 2 + math.ceil(math.log(1.1 / a) / 0.07)  # the default grid's steps
    grid = cooling_grid(max(1.1, a), a, points)
    return int(phase_diagram(z, num_prototypes, gradient=gradient, relative=grid, mask=mask).distinct[-1])


def _falling(relative: Tensor | Sequence[float]) -> Tensor:
    grid = torch.as_tensor(relative, dtype=torch.float64).flatten().cpu()
    if not len(grid) or not bool(((grid > 0) & torch.isfinite(grid)).all()):
        raise ValueError(f"relative: got {grid.tolist()}, expected positive finite multiples of T_c, at least one")
    if bool((grid[1:] > grid[:-1]).any()):
        raise ValueError(f"relative: got {grid.tolist()}, expected temperatures that fall")
    return grid
