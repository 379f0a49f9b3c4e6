"""What a trained model makes of rows: the share of each prototype in them, and a class where there is a head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ddcl.fitting.batches import Rows
from ddcl.fitting.levels import climb
from ddcl.fitting.training import Model, bank_of
from ddcl.nn import PrototypeBank, PrototypeReadout
from ddcl.shapes import Float

LEADING = 3
"""Prototypes of a mixture that are written down."""


class Assigned(NamedTuple):
    """What is written of some rows."""

    prototype: Tensor
    """(n,), that of the largest share, which is the nearest."""
    confidence: Tensor
    """(n,), its share."""
    entropy: Tensor
    """(n,), of the shares, in nats: 0 for one prototype, ln K for all alike."""
    prototypes: Tensor
    """(n, 3), the leading ones; fewer columns for a bank of fewer."""
    weights: Tensor
    """(n, 3), their shares."""
    predicted: Tensor | None
    """(n,), class numbers, where there is a head."""
    squared_distance: Tensor
    """(n,), to the nearest prototype."""
    path: Tensor
    """(n, L), the nearest prototype at each level, finest first; above the first, to the soft centroid from below."""


@torch.no_grad()
def class_logits(model: PrototypeReadout, shares: Float[Tensor, "n K"]) -> Float[Tensor, "n C"]:
    """What the head says of mixtures."""
    assert model.head is not None, "a model with labels has a head"
    logits: Tensor = model.head(shares)
    return logits


@torch.no_grad()
def assign(model: Model, above: Sequence[PrototypeBank], rows: Rows) -> Iterator[Assigned]:
    """All rows, in order, in pieces; ``above`` are the banks of the levels above the model's own."""
    bank = bank_of(model)
    for z in rows.in_order():
        shares, *further = climb([bank, *above], z)
        weights, prototypes = shares.topk(min(LEADING, shares.shape[1]), dim=-1)
        nearest = bank.prototypes[0][prototypes[:, 0]]
        yield Assigned(
            prototype=prototypes[:, 0],
            confidence=weights[:, 0],
            entropy=torch.special.entr(shares).sum(-1),
            prototypes=prototypes,
            weights=weights,
            predicted=class_logits(model, shares).argmax(-1) if isinstance(model, PrototypeReadout) else None,
            squared_distance=(z.to(nearest.device) - nearest).square().sum(-1),
            path=torch.stack([prototypes[:, 0], *(one.argmax(-1) for one in further)], dim=-1),
        )
