"""How cold it must be for a bank of K prototypes to stand apart on given data."""

from __future__ import annotations

import torch
from torch import Tensor

from ddcl.functional.checks import check_gradient, check_prototypes
from ddcl.functional.criticality import CRITICAL_FACTOR
from ddcl.ops import Gradient, squared_distances
from ddcl.shapes import Float

CLOSE_SHARE = 0.05
"""The pairs of neighbours closer than this share of all are let merge: one accidental pair must not set the scale."""

LOOKED_AT = 512
"""Prototypes whose neighbours are looked for; of a larger bank, so many of them."""


@torch.no_grad()
def resolving_temperature(
    centers: Float[Tensor, "K m"] | Float[Tensor, "H K m"], *, gradient: Gradient = "full"
) -> Float[Tensor, "*heads"]:
    r"""The temperature below which prototypes at the centres of the data's cells stay apart.

    Two equal groups of tokens, each at a point and :math:`s` apart in squared distance, have variance :math:`s/4` along
    the line that joins them, so two prototypes part there below :math:`T = s` in mode full and :math:`s/2` in mode stop
    (:func:`ddcl.critical_temperature`); spread within the groups only raises that. Taken here at the squared distance
    to the nearest neighbour that a twentieth of the centres fall short of.

    Args:
        centers: where k-means finds the cells, (K, m), or (H, K, m) for one result per head.
        gradient: the mode the bank is trained in.

    Example:
        >>> z = torch.tensor([[-1.0], [1.0]])
        >>> resolving_temperature(z), critical_temperature(z)
        (tensor(4., dtype=torch.float64), tensor(4., dtype=torch.float64))
    """
    check_prototypes(centers)
    check_gradient(gradient)
    banks = centers if centers.dim() == 3 else centers[None]
    if banks.shape[1] == 1:  # alone: apart at any temperature
        return banks.new_full(centers.shape[:-2], float("inf"), dtype=torch.float64)
    found = [torch.quantile(_to_nearest_neighbour(bank.double()), CLOSE_SHARE) for bank in banks]
    return (CRITICAL_FACTOR[gradient] / 4 * torch.stack(found)).reshape(centers.shape[:-2])


def _to_nearest_neighbour(bank: Float[Tensor, "K m"]) -> Float[Tensor, " looked_at"]:
    """Squared distance of each prototype that is looked at to the nearest other one."""
    # evenly spread over a large bank, so that the cost stays below that of a readout
    own = torch.linspace(0, len(bank) - 1, min(len(bank), LOOKED_AT), device=bank.device).round().long()
    distances = squared_distances(bank[own], bank)
    return distances.scatter_(1, own[:, None], float("inf")).amin(-1)
