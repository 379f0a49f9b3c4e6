"""Where prototypes start: k-means, k-means++ seeding alone, or farthest points."""

from __future__ import annotations

import math
import warnings
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from ddcl.functional.batches import Batches, token_batches
from ddcl.functional.checks import check_choice, check_count, check_finite
from ddcl.ops import arithmetic_dtype, nearest, squared_distances
from ddcl.ops.blocks import block_rows, row_blocks
from ddcl.shapes import Float

InitMethod = Literal["kmeans", "kmeans++", "farthest"]
INIT_METHODS: tuple[str, ...] = get_args(InitMethod)

_SAMPLE = 65_536
_SAMPLE_PER_PROTOTYPE = 32


class KMeans(NamedTuple):
    """A k-means solution; per head where there are heads."""

    centers: Tensor
    """(K, m) or (H, K, m)."""
    distortion: Tensor
    """Mean squared distance of the sample's tokens to their nearest centre."""


def initial_prototypes(
    z: Batches,
    num_prototypes: int,
    *,
    method: InitMethod = "kmeans",
    mask: Tensor | None = None,
    num_heads: int | None = None,
    sample: int | None = None,
    restarts: int = 3,
    iterations: int = 300,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "*heads K m"]:
    """Starting prototypes by name; arguments as in :func:`kmeans`.

    Example:
        >>> z = torch.tensor([[0.0], [0.1], [5.0], [5.1]])
        >>> initial_prototypes(z, 2, method="kmeans").flatten().sort().values
        tensor([0.0500, 5.0500])
    """
    check_choice("method", method, INIT_METHODS)
    if method == "kmeans":
        return kmeans(
            z,
            num_prototypes,
            mask=mask,
            num_heads=num_heads,
            sample=sample,
            restarts=restarts,
            iterations=iterations,
            generator=generator,
        ).centers
    seed = kmeans_plus_plus if method == "kmeans++" else farthest_point
    return seed(z, num_prototypes, mask=mask, num_heads=num_heads, sample=sample, generator=generator)


@torch.no_grad()
def kmeans(
    z: Batches,
    num_prototypes: int,
    *,
    mask: Tensor | None = None,
    num_heads: int | None = None,
    sample: int | None = None,
    restarts: int = 3,
    iterations: int = 300,
    tolerance: float = 1e-6,
    generator: torch.Generator | None = None,
) -> KMeans:
    """Lloyd's k-means on a bounded sample of the tokens, the best of several restarts.

    Each restart is seeded by greedy k-means++; a cell that loses all its tokens is moved to the token that is
    worst served.

    Args:
        z: tokens (..., m), or (..., H, m) with ``num_heads``, or an iterable of batches or (batch, mask) pairs.
        num_prototypes: K, at most the number of unmasked tokens.
        mask: for a tensor z, true where a token counts.
        num_heads: H, if the tokens have a head axis; one bank per head is found.
        sample: how many tokens to work on, drawn evenly from all; by default 65,536 or 32 K, whichever is more.
        restarts: the best of this many runs is returned.
        iterations: at most this many steps per run.
        tolerance: stop when the distortion falls by less than this share per step.
        generator: for a reproducible result; on the CPU, whatever the device of the tokens.

    Example:
        >>> result = kmeans(torch.tensor([[0.0], [2.0], [10.0], [12.0]]), 2)
        >>> result.centers.flatten().sort().values, result.distortion
        (tensor([ 1., 11.]), tensor(1.))
    """
    check_count("restarts", restarts)
    check_count("iterations", iterations)
    points = _sample(z, num_prototypes, mask, num_heads, sample, generator)
    heads = []
    for x in points.unbind(1):
        runs = (_lloyd(x, _seed(x, num_prototypes, generator), iterations, tolerance) for _ in range(restarts))
        heads.append(min(runs, key=lambda run: float(run.distortion)))
    return KMeans(*(_join_heads(parts, num_heads) for parts in zip(*heads, strict=True)))


@torch.no_grad()
def kmeans_from(
    z: Batches,
    start: Float[Tensor, "H K m"],
    *,
    mask: Tensor | None = None,
    num_heads: int | None = None,
    sample: int | None = None,
    iterations: int = 300,
    tolerance: float = 1e-6,
    generator: torch.Generator | None = None,
) -> KMeans:
    """Lloyd's k-means from given centres, so that row k of the result is where row k of the start has gone.

    Other arguments as in :func:`kmeans`.

    Example:
        >>> kmeans_from(torch.tensor([[0.0], [2.0], [10.0], [12.0]]), torch.tensor([[[9.0], [3.0]]])).centers.flatten()
        tensor([11.,  1.])
    """
    points = _sample(z, start.shape[1], mask, num_heads, sample, generator)
    heads = [
        _lloyd(x, centers.to(x), iterations, tolerance) for x, centers in zip(points.unbind(1), start, strict=True)
    ]
    return KMeans(*(_join_heads(parts, num_heads) for parts in zip(*heads, strict=True)))


@torch.no_grad()
def kmeans_plus_plus(
    z: Batches,
    num_prototypes: int,
    *,
    mask: Tensor | None = None,
    num_heads: int | None = None,
    sample: int | None = None,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "*heads K m"]:
    """Greedy k-means++ seeding alone: K of the tokens, far apart but not all outliers; arguments as in :func:`kmeans`.

    Example:
        >>> kmeans_plus_plus(torch.tensor([[0.0], [0.0], [7.0]]), 2).flatten().sort().values
        tensor([0., 7.])
    """
    points = _sample(z, num_prototypes, mask, num_heads, sample, generator)
    return _join_heads([_seed(x, num_prototypes, generator) for x in points.unbind(1)], num_heads)


@torch.no_grad()
def farthest_point(
    z: Batches,
    num_prototypes: int,
    *,
    mask: Tensor | None = None,
    num_heads: int | None = None,
    sample: int | None = None,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "*heads K m"]:
    """K of the tokens, each the farthest from those before it: the paper's suggestion for a large initial S(P).

    It starts from the token nearest to the mean, so the result depends on the generator only through the sample.
    Arguments as in :func:`kmeans`.

    Example:
        >>> farthest_point(torch.tensor([[0.0], [1.0], [9.0], [4.0]]), 3).flatten()
        tensor([4., 9., 0.])
    """
    points = _sample(z, num_prototypes, mask, num_heads, sample, generator)
    heads = []
    for x in points.unbind(1):
        chosen = [int((x - x.mean(0)).square().sum(-1).argmin())]
        distance = squared_distances(x, x[chosen])[:, 0]
        while len(chosen) < num_prototypes:
            chosen.append(int(distance.argmax()))
            distance = torch.minimum(distance, squared_distances(x, x[chosen[-1:]])[:, 0])
        heads.append(x[chosen])
    return _join_heads(heads, num_heads)


def _join_heads(parts: list[Tensor] | tuple[Tensor, ...], num_heads: int | None) -> Tensor:
    return torch.stack(list(parts)) if num_heads else parts[0]


def _sample(
    z: Batches,
    num_prototypes: int,
    mask: Tensor | None,
    num_heads: int | None,
    sample: int | None,
    generator: torch.Generator | None,
) -> Float[Tensor, "n H m"]:
    """At most ``sample`` unmasked tokens, drawn evenly without replacement in one pass over the data."""
    check_count("num_prototypes", num_prototypes)
    limit = max(_SAMPLE, _SAMPLE_PER_PROTOTYPE * num_prototypes) if sample is None else sample
    check_count("sample", limit)
    if limit < num_prototypes:
        raise ValueError(f"sample: got {limit}, expected at least num_prototypes = {num_prototypes}")
    drawn, keys, seen = None, torch.empty(0), 0
    for tokens in token_batches(z, mask, num_heads=num_heads):
        tokens = tokens.detach().to(arithmetic_dtype(tokens.dtype))
        check_finite("z", tokens)
        seen += len(tokens)
        drawn = tokens if drawn is None else torch.cat([drawn, tokens])
        # every token gets a random key and the smallest keys stay: an even draw, whatever the batches
        keys = torch.cat([keys, torch.rand(len(tokens), generator=generator)])
        if len(keys) > limit:
            keep = keys.argsort()[:limit].sort().values
            drawn, keys = drawn[keep.to(drawn.device)], keys[keep]
    if drawn is None or seen < num_prototypes:
        raise ValueError(f"z: got {seen} unmasked tokens, expected at least num_prototypes = {num_prototypes}")
    return drawn


def _seed(x: Float[Tensor, "n m"], num_prototypes: int, generator: torch.Generator | None) -> Float[Tensor, "K m"]:
    """Greedy k-means++: of a few candidates drawn by squared distance, the one that helps most."""
    candidates_per_step = 2 + int(math.log(num_prototypes))
    first = int(torch.randint(len(x), (), generator=generator))
    chosen = [first]
    distance = squared_distances(x, x[[first]])[:, 0]
    while len(chosen) < num_prototypes:
        ladder = distance.double().cumsum(0)
        draws = torch.rand(candidates_per_step, generator=generator, dtype=torch.float64).to(x.device) * ladder[-1]
        candidates = torch.searchsorted(ladder, draws).clamp_max(len(x) - 1)
        reduced = torch.minimum(distance[:, None], squared_distances(x, x[candidates]))
        best = int(reduced.sum(0).argmin())
        chosen.append(int(candidates[best]))
        distance = reduced[:, best]
    if bool((distance == 0).all()):
        distinct = len(torch.unique(x, dim=0))
        if distinct < num_prototypes:
            warnings.warn(
                f"z has only {distinct} distinct tokens for {num_prototypes} prototypes: some prototypes coincide",
                stacklevel=3,
            )
    return x[chosen]


def _lloyd(x: Float[Tensor, "n m"], centers: Float[Tensor, "K m"], iterations: int, tolerance: float) -> KMeans:
    distortion = torch.inf
    for _ in range(iterations):
        indices, distance = nearest(x, centers)
        previous, distortion = distortion, float(distance.mean())
        if not distortion < previous * (1 - tolerance):
            break
        centers = _cell_means(x, indices, distance, centers)
    return KMeans(centers, nearest(x, centers)[1].mean())


def _cell_means(x: Tensor, indices: Tensor, distance: Tensor, centers: Tensor) -> Tensor:
    """The mean of each cell; an empty cell takes over a token that is far from its centre."""
    K = len(centers)
    total = torch.zeros_like(centers)
    labels = torch.arange(K, device=x.device)
    # sums as a product with 0/1 rows: the same bits on every run, unlike scattered additions on a GPU
    for rows in row_blocks(len(x), block_rows(len(x), max(centers.shape), x.device)):
        total.addmm_((indices[rows] == labels[:, None]).to(x.dtype), x[rows])
    counts = torch.bincount(indices, minlength=K)
    means = total / counts.clamp_min(1)[:, None]
    empty = (counts == 0).nonzero().flatten()
    if len(empty):
        means[empty] = x[distance.topk(min(len(empty), len(x))).indices][: len(empty)]
    return means
