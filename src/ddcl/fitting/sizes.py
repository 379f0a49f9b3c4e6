"""How many prototypes data call for, read off their phase diagram."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ddcl.functional import PhaseDiagram, phase_diagram
from ddcl.functional.phases import cooling_grid
from ddcl.shapes import Float

MOST_PROTOTYPES = 32
"""The cap of the choice: the diagram is that of a bank of one more."""
SAMPLE, DIRECTIONS = 512, 32
"""Rows and leading principal directions the diagram is drawn from: splits follow the directions of largest variance."""
_COLDEST, _POINTS, _STEPS = 0.02, 40, 200


class Size(NamedTuple):
    """A number of prototypes and why."""

    prototypes: int
    reason: str
    """One sentence, to be said aloud and kept in the run's configuration."""
    temperatures: tuple[float, ...]
    """T / T_c at which the bank came to hold 2, 3, ... distinct prototypes."""


@torch.no_grad()
def choose_size(rows: Float[Tensor, "N m"], seed: int, most: int = MOST_PROTOTYPES) -> Size:
    r"""The K whose plateau of :math:`K_\text{eff}(T)` is the longest for its size.

    A bank is cooled from above :math:`T_c`; its number of distinct prototypes grows from K to K + 1 at the
    temperatures :math:`T_K`. Groups that stand well apart leave a plateau: no split over a long range of temperatures.
    In data without structure the plateaus shrink as 1/K all the same (:math:`K_\text{eff}` is a power of T), so the
    criterion is the largest :math:`K \ln(T_{K-1} / T_K)` for K from 2 to ``most``, and to the number of rows drawn. A
    plateau that reaches the coldest temperature looked at, a fiftieth of :math:`T_c`, counts as far as that.

    Args:
        rows: embeddings; :data:`SAMPLE` of them are drawn, along their :data:`DIRECTIONS` leading directions.
        seed: of the draw.
        most: the largest K to consider.

    Example:
        >>> from ddcl.fitting.sizes import choose_size
        >>> centers = 9 * torch.eye(5, 8)
        >>> choose_size(centers[torch.arange(200) % 5] + 0.1 * torch.randn(200, 8), seed=0).prototypes
        5
    """
    random = torch.Generator().manual_seed(seed)
    drawn = rows[torch.randperm(len(rows), generator=random)[:SAMPLE]].double()
    centred = drawn - drawn.mean(0)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    flat = centred @ directions[:DIRECTIONS].mT
    most = min(most, len(drawn) - 1)
    diagram = phase_diagram(flat, most + 1, relative=cooling_grid(1.1, _COLDEST, _POINTS), steps=_STEPS)
    reached = _first_temperatures(diagram, most + 1)
    # the plateau of K lies between the temperatures at which K and K + 1 were reached
    ends = [*reached[1:], *([_COLDEST] if len(reached) < most else [])]
    scores = {K: K * math.log(start / end) for K, (start, end) in enumerate(zip(reached, ends, strict=False), start=2)}
    if not scores:
        return Size(2, "2 prototypes: the data split no further than once down to a fiftieth of T_c", reached)
    best = max(scores, key=lambda K: scores[K])
    span = math.exp(scores[best] / best)
    reason = (
        f"{best} prototypes: of 2 to {most}, the number that stays the same over the longest range of temperatures for "
        f"its size (a factor of {span:.3g}; criterion K ln(T_(K-1) / T_K) = {scores[best]:.2f})"
    )
    return Size(best, reason, reached)


def _first_temperatures(diagram: PhaseDiagram, most: int) -> tuple[float, ...]:
    """T / T_c at which 2, 3, ... ``most`` distinct prototypes were first there; groups that met again count less."""
    changes = [(split.relative, 1) for split in diagram.splits]
    changes += [(merge.relative, 1 - len(merge.parts)) for merge in diagram.merges]
    found: list[float] = []
    count = 1
    for temperature, change in sorted(changes, key=lambda one: -one[0]):
        count += change
        if count == len(found) + 2 and count <= most:
            found.append(temperature)
    return tuple(found)
