"""How the soft centroids of one level become the items of the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, Union

import torch
from torch import Tensor

from ddcl.functional.checks import check_count
from ddcl.functional.segments import Pooled, pool_segments, pool_sequence, pool_windows

Pool = Union[Literal["mask", "segments"], int, None]
"""The whole sequence, segments that are given, windows of so many items, or every item for itself."""

Segments = Union[Tensor, Sequence[Tensor], None]
"""The segment of each token (..., T), or one such tensor for each level that pools by segments."""


class Items(NamedTuple):
    """A batch on its way up."""

    values: Tensor
    """(..., N, m)."""
    mask: Tensor | None
    """(..., N), true where an item counts; None where all do."""
    members: Tensor
    """(..., T), the item each token is in, -1 for none."""


class Segmentation(NamedTuple):
    """One way to cut the tokens into segments."""

    of_tokens: Tensor
    """(..., T), -1 for a token that is in none."""
    number: int
    """How many segments a sequence may have."""


def tokens_as_items(x: Tensor, mask: Tensor | None) -> Items:
    """Every token an item of its own."""
    own = torch.arange(x.shape[-2], device=x.device).expand(x.shape[:-1])
    return Items(x, mask, own if mask is None else torch.where(mask, own, -1))


def pool_items(items: Items, centroids: Tensor, pool: Pool, segmentations: Iterator[Segmentation]) -> Items:
    """The items of the next level, from the centroids (..., N, m) of this one."""
    if pool is None:
        return items._replace(values=centroids)
    if pool == "mask":
        found = pool_sequence(centroids, items.mask)
    elif pool == "segments":
        found = _pool_segments(items, centroids, next(segmentations))
    else:
        found = pool_windows(centroids, pool, items.mask)
    return Items(found.means, found.mask, _handed_down(found.groups, items.members))


def _pool_segments(items: Items, centroids: Tensor, segmentation: Segmentation) -> Pooled:
    of_tokens, count = segmentation
    # what the tokens of an item say of its segment; the extra place takes those that are in no item
    places = torch.where(items.members < 0, centroids.shape[-2], items.members)
    said = torch.where(items.members < 0, -1, of_tokens)
    size = (*said.shape[:-1], centroids.shape[-2] + 1)
    of_items = torch.full(size, -1, device=said.device).scatter_reduce(-1, places, said, "amax")[..., :-1]
    if _free_to_look(said) and not torch.equal(_handed_down(of_items, items.members), said):
        raise ValueError(
            "segments: got tokens of one item of the level below in different segments, expected segments that "
            "contain those items whole"
        )
    return pool_segments(centroids, of_items, count, items.mask)


def _handed_down(groups: Tensor, members: Tensor) -> Tensor:
    """The group of each token from the groups (..., N) of the items."""
    if groups.shape[-1] == 0:
        return torch.full_like(members, -1)
    found = groups.expand(*members.shape[:-1], groups.shape[-1]).gather(-1, members.clamp_min(0))
    return torch.where(members < 0, -1, found)


def read_segmentations(
    segments: Segments, num_segments: int | Sequence[int] | None, wanted: int, x: Tensor, mask: Tensor | None
) -> list[Segmentation]:
    """One segmentation for each of the ``wanted`` levels that pool by segments, checked."""
    given = [] if segments is None else [segments] if isinstance(segments, Tensor) else list(segments)
    if len(given) != wanted:
        raise ValueError(
            f"segments: got {len(given)}, expected {wanted}, one for each level with pool='segments'"
            + ("; none has it" if wanted == 0 else "")
        )
    if isinstance(num_segments, Sequence):
        if len(num_segments) != wanted:
            raise ValueError(f"num_segments: got {len(num_segments)} numbers, expected {wanted}, one for each segments")
        counts: list[int | None] = list(num_segments)
    else:
        counts = [num_segments] * wanted
    return [_segmentation(one, count, x, mask) for one, count in zip(given, counts, strict=True)]


def _segmentation(segments: Any, count: int | None, x: Tensor, mask: Tensor | None) -> Segmentation:
    if not isinstance(segments, Tensor):
        raise TypeError(f"segments: got {type(segments).__name__}, expected a torch.Tensor or several")
    if segments.dtype.is_floating_point or segments.dtype.is_complex or segments.dtype == torch.bool:
        raise TypeError(f"segments: got dtype {segments.dtype}, expected integers, the segment of each token")
    if segments.shape != x.shape[:-1]:
        raise ValueError(
            f"segments: got shape {tuple(segments.shape)}, expected {tuple(x.shape[:-1])}, one entry per token"
        )
    if segments.device != x.device:
        raise ValueError(f"segments: is on {segments.device} but x is on {x.device}; move one of them")
    of_tokens = segments.to(torch.int64)
    if mask is not None:
        of_tokens = torch.where(mask, of_tokens, -1)
    of_tokens = of_tokens.clamp_min(-1)
    if count is None:
        if torch.compiler.is_compiling() or x.is_meta:
            raise ValueError("num_segments: got None, expected how many there are: compiled code cannot count them")
        # sequences without any segment still have one item further up, a masked one
        return Segmentation(of_tokens, max(1, int(of_tokens.max()) + 1) if of_tokens.numel() else 1)
    check_count("num_segments", count)
    if _free_to_look(of_tokens) and of_tokens.numel() and int(of_tokens.max()) >= count:
        raise ValueError(f"segments: got numbers up to {int(of_tokens.max())}, expected below num_segments = {count}")
    return Segmentation(torch.where(of_tokens < count, of_tokens, -1), count)


def _free_to_look(values: Tensor) -> bool:
    """Whether looking at values waits for no device and breaks no graph."""
    return values.device.type == "cpu" and not torch.compiler.is_compiling()
