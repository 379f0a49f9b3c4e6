"""Rows that are near: to what is asked, by cosine, and to their own prototype; piece by piece, so any number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ddcl.shapes import Float, Int


class Nearest(NamedTuple):
    """The nearest rows of each input, nearest first."""

    rows: Int[Tensor, "n count"]
    cosine: Float[Tensor, "n count"]


@torch.no_grad()
def nearest_rows(z: Float[Tensor, "n m"], directions: Iterable[Float[Tensor, "_ m"]], count: int) -> Nearest:
    """The rows of largest cosine with each input, at most ``count``.

    Args:
        z: what to find neighbours of.
        directions: all rows in order, brought to length 1, in pieces.
        count: how many.

    Example:
        >>> rows = torch.eye(3)
        >>> nearest_rows(torch.tensor([[2.0, 1.0, 0.0]]), [rows[:2], rows[2:]], 2).rows
        tensor([[0, 1]])
    """
    asked = F.normalize(z, dim=-1)
    cosine, rows = asked.new_zeros(len(z), 0), torch.zeros(len(z), 0, dtype=torch.long, device=z.device)
    start = 0
    for part in directions:
        found = asked @ part.to(z.device).mT
        best, places = found.topk(min(count, len(part)), dim=-1)
        cosine, rows = torch.cat([cosine, best], -1), torch.cat([rows, places + start], -1)
        cosine, kept = cosine.topk(min(count, cosine.shape[1]), dim=-1)
        rows = rows.gather(-1, kept)
        start += len(part)
    return Nearest(rows, cosine.clamp(-1, 1))


@torch.no_grad()
def distances_to_own(
    pieces: Iterable[Float[Tensor, "_ m"]], prototypes: Float[Tensor, "K m"], own: Int[Tensor, " N"]
) -> Float[Tensor, " N"]:
    """The squared distance of every row to its own prototype.

    Args:
        pieces: all rows in order.
        prototypes: the bank.
        own: the number of each row's prototype.
    """
    found, start = [], 0
    for part in pieces:
        theirs = prototypes[own[start : start + len(part)]]
        found.append((part.to(theirs.device) - theirs).square().sum(-1))
        start += len(part)
    return torch.cat(found) if found else prototypes.new_zeros(0)
