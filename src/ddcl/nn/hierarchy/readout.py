"""Banks on top of each other: tokens, sentences, document (the paper's paradigm 5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Union, cast

import torch
from torch import Tensor, nn

from ddcl.functional import Decomposition
from ddcl.functional.checks import check_count
from ddcl.nn.hierarchy.grouping import Items, Segmentation, Segments, pool_items, read_segmentations, tokens_as_items
from ddcl.nn.hierarchy.levels import Level, LevelReadout
from ddcl.nn.hierarchy.outputs import HierarchyOutput, LevelOutput
from ddcl.ops import Backend, Gradient
from ddcl.shapes import Bool, Float, Int

if TYPE_CHECKING:
    from typing_extensions import Self

SequenceBatches = Union[Tensor, Iterable[Any]]
"""Sequences x (..., T, dim), or an iterable of batches: x, (x, mask) or (x, mask, segments); the mask may be None."""


class HierarchicalReadout(nn.Module):
    r"""Any number of banks on top of each other, each reading the pooled soft centroids of the one below.

    .. math::
        z^{(1)}_t = x_t, \qquad
        z^{(\ell + 1)}_g = \frac{1}{|g|} \sum_{n \in g} \mu^{(\ell)}(z^{(\ell)}_n), \qquad
        L = \sum_\ell w_\ell L^{(\ell)} = \sum_\ell w_\ell \left(R^{(\ell)} + V^{(\ell)}\right)

    The groups :math:`g` are whole sequences, windows or given segments; a :class:`Level` says which. The loss of a
    level is the mean over those of its items that have any token under them.

    Args:
        dim: dimension of the tokens.
        levels: from the tokens up.
        detach: whether each level takes what comes from below as fixed, as the paper's proof does. No level then
            feels the loss of another, and no gradient of the output reaches below the top level. False: gradients
            flow all the way down in mode ``"full"``, which an encoder trained through ``vector`` needs. In mode
            ``"stop"`` a soft centroid does not depend on its item: no variance term is felt below, other terms one
            level down, and the output's gradient stays at the top, detached or not.
        gradient, backend: of all banks, see :class:`PrototypeBank`.

    Attributes:
        levels: a ``ModuleList``; ``levels[0].bank`` is the bank that reads the tokens.

    Example:
        >>> hierarchy = HierarchicalReadout(7, [Level(5, pool="segments"), Level(3, dim=4), Level(2)])
        >>> x, sentences = torch.randn(11, 6, 7), torch.tensor([0, 0, 1, 1, 1, 2]).expand(11, 6)
        >>> vector, loss, levels = hierarchy.init_from(x, segments=sentences)(x, segments=sentences)
        >>> vector.shape, [level.items.shape[1] for level in levels]
        (torch.Size([11, 4]), [6, 3, 1])
        >>> bool((loss.total - loss.reconstruction - loss.variance).abs() < 1e-5)
        True
    """

    def __init__(
        self,
        dim: int,
        levels: Sequence[Level],
        *,
        detach: bool = False,
        gradient: Gradient = "full",
        backend: Backend = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_count("dim", dim)
        if not levels:
            raise ValueError("levels: got none, expected at least one Level")
        for level in levels:
            if not isinstance(level, Level):
                raise TypeError(f"levels: got {type(level).__name__} among them, expected Level")
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.dim, self.detach = dim, detach
        self.levels = nn.ModuleList()
        for level in levels:
            self.levels.append(LevelReadout(dim, level, gradient=gradient, backend=backend, **place))
            dim = dim if level.dim is None else level.dim

    def forward(
        self,
        x: Float[Tensor, "*batch T dim"],
        mask: Bool[Tensor, "*batch T"] | Int[Tensor, "*batch T"] | None = None,
        segments: Int[Tensor, "*batch T"] | Sequence[Int[Tensor, "*batch T"]] | None = None,
        *,
        num_segments: int | Sequence[int] | None = None,
    ) -> HierarchyOutput:
        """Read sequences of tokens at every level.

        Args:
            x: sequences.
            mask: true where a token counts.
            segments: for each token the number of its segment, from 0 in each sequence, -1 for none; one tensor for
                each level with ``pool="segments"``, always by token. Those of a higher level must contain the items
                of the levels below whole. Sequences may have different numbers of segments: what one lacks is masked
                further up.
            num_segments: how many segments a sequence may have, for all levels or for each. None: counted, which
                waits for the device and cannot be compiled.
        """
        items, segmentations = self._enter(x, mask, segments, num_segments)
        found = []
        for level in self._levels:
            level_output, items = self._climb(level, items, segmentations)
            found.append(level_output)
        vector, mask = items.values, items.mask
        if self._levels[-1].level.pool == "mask":
            vector, mask = vector.squeeze(-2), None if mask is None else mask.squeeze(-1)
        weights = [level.level.weight for level in self._levels]
        return HierarchyOutput(vector, _weighted(found, weights), tuple(found), mask)

    @torch.no_grad()
    def init_from(
        self,
        data: SequenceBatches,
        *,
        mask: Tensor | None = None,
        segments: Segments = None,
        num_segments: int | Sequence[int] | None = None,
        **options: Any,
    ) -> Self:
        """Start the banks from data, from the bottom up: each from what the ones below make of the data.

        Args:
            data: x as ``forward`` takes it, or an iterable of batches: x, (x, mask) or (x, mask, segments), where the
                mask may be None. It is walked through several times; one that can be walked only once is kept.
            mask, segments: for a tensor, as in ``forward``.
            num_segments: as in ``forward``.
            options: as in :meth:`PrototypeBank.init_from`.
        """
        if isinstance(data, Tensor):
            data = [(data, mask, segments)]
        elif mask is not None or segments is not None:
            raise TypeError("data: got batches beside mask or segments, expected (x, mask, segments) as batches")
        kept = list(data) if isinstance(data, Iterator) else data
        was_training = self.training
        self.eval()  # what follows the banks in training is not to see this
        try:
            for depth, level in enumerate(self._levels):
                entering = _Entering(self, kept, depth, num_segments)
                if level.enter.kind == "standard":
                    with level.enter.recalibrating():
                        for _ in entering:
                            pass
                level.bank.init_from(entering, **options)
        finally:
            self.train(was_training)
        return self

    @property
    def _levels(self) -> list[LevelReadout]:
        return [cast(LevelReadout, level) for level in self.levels]

    def _enter(
        self, x: Tensor, mask: Tensor | None, segments: Any, num_segments: int | Sequence[int] | None
    ) -> tuple[Items, Iterator[Segmentation]]:
        x, mask = self._levels[0].without_masked(x, mask)
        if x.dim() < 2:
            raise ValueError(f"x: got shape {tuple(x.shape)}, expected (..., T, {self.dim})")
        wanted = sum(level.level.pool == "segments" for level in self._levels)
        return tokens_as_items(x, mask), iter(read_segmentations(segments, num_segments, wanted, x, mask))

    def _climb(
        self, level: LevelReadout, items: Items, segmentations: Iterator[Segmentation]
    ) -> tuple[LevelOutput, Items]:
        """What a level makes of its items, and the items of the next."""
        cut = self.detach and level is not self._levels[0]
        entered, found = level(items.values.detach() if cut else items.values, items.mask)
        above = pool_items(items, level.join_heads(found.centroid), level.level.pool, segmentations)
        return LevelOutput(entered, items.mask, found, items.members), above

    def extra_repr(self) -> str:
        """Sizes and state, for ``repr``."""
        return f"dim={self.dim}, detach={self.detach}"


class _Entering:
    """What enters the bank of one level, computed anew each time it is walked through."""

    def __init__(
        self,
        hierarchy: HierarchicalReadout,
        data: Iterable[Any],
        depth: int,
        num_segments: int | Sequence[int] | None,
    ) -> None:
        self.hierarchy, self.data, self.depth, self.num_segments = hierarchy, data, depth, num_segments

    def __iter__(self) -> Iterator[Tensor | tuple[Tensor, Tensor]]:
        *below, level = self.hierarchy._levels[: self.depth + 1]
        for batch in self.data:
            items, segmentations = self.hierarchy._enter(*_parts(batch), self.num_segments)
            for lower in below:
                items = self.hierarchy._climb(lower, items, segmentations)[1]
            entering = level.to_heads(items.values, items.mask)
            yield entering if items.mask is None else (entering, items.mask)


def _parts(batch: Any) -> tuple[Any, Any, Any]:
    """x, mask and segments of a batch."""
    parts = tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)
    if not 1 <= len(parts) <= 3:
        raise TypeError(f"data: got a batch of {len(parts)} parts, expected x, (x, mask) or (x, mask, segments)")
    x, mask, segments = (*parts, None, None)[:3]
    # a loader's (x, label) looks like (x, mask) but for the dtype: labels must never pass for a mask
    if isinstance(mask, Tensor) and mask.dtype != torch.bool:
        raise TypeError(f"data: got a batch (x, {mask.dtype}), expected (x, bool mask) or (x, bool mask, segments)")
    return x, mask, segments


def _weighted(levels: list[LevelOutput], weights: list[float]) -> Decomposition:
    """Every term summed over the levels."""
    columns = zip(*(tuple(level.readout.loss) for level in levels), strict=True)
    return Decomposition(*(sum(w * term for w, term in zip(weights, terms, strict=True)) for terms in columns))
