"""Matrix products in the shapes and memory orders that a CPU multiplies fast."""

from __future__ import annotations

from torch import Tensor

from ddcl.ops.blocks import row_blocks
from ddcl.shapes import Float

# Many rows times a small matrix are fastest if that is stored column by column; few rows, or a matrix beyond the cache,
# if it is stored row by row. The two go to different libraries below torch (docs/lab/0005-cpu.md has the figures).
_MANY_ROWS, _SMALL_MATRIX = 2**13, 2**16

# A product summed over tokens packs both of its factors: more rows at once than this do not stay in the cache.
_SUMMED_ROWS = 2**12


def as_right_factor(matrix: Float[Tensor, "inner outer"], rows: int) -> Float[Tensor, "inner outer"]:
    """The same matrix, in the memory order in which ``(rows, inner) @ (inner, outer)`` is fastest."""
    if rows >= _MANY_ROWS and matrix.numel() <= _SMALL_MATRIX:
        return matrix.mT.contiguous().mT
    return matrix.contiguous()


def add_summed_over_rows(
    total: Float[Tensor, "a b"], left: Float[Tensor, "rows a"], right: Float[Tensor, "rows b"]
) -> None:
    """``total += left.T @ right``, in place."""
    if left.device.type != "cpu" or len(left) <= _SUMMED_ROWS:
        total.addmm_(left.mT, right)
        return
    for part in row_blocks(len(left), _SUMMED_ROWS):
        total.addmm_(left[part].mT, right[part])


def sum_of_rows(values: Float[Tensor, "rows a"]) -> Float[Tensor, " a"]:
    """``values.sum(0)``, on a CPU as a product with ones: the sum runs down columns, one cache line for each number."""
    if values.device.type != "cpu":
        return values.sum(0)
    total, ones = values.new_zeros(values.shape[1]), values.new_ones(min(len(values), _SUMMED_ROWS))
    for part in row_blocks(len(values), _SUMMED_ROWS):
        total.addmv_(values[part].mT, ones[: part.stop - part.start])
    return total
