"""Matrix products and sums over tokens in the forms that a CPU works out fast."""

from __future__ import annotations

from torch import Tensor

from ddcl.ops.blocks import row_blocks
from ddcl.shapes import Float

# Rows times a matrix stored column by column go to another library below torch than if it were stored row by row. It is
# fast from the first call of a process on, but takes longer to start: docs/lab/0005-cpu.md has the figures.
_LEAST_ROWS, _LEAST_SIDE, _MOST_NUMBERS = 2**13, 32, 2**16

_SUMMED_ROWS = 2**12


def as_right_factor(matrix: Float[Tensor, "inner outer"], rows: int) -> Float[Tensor, "inner outer"]:
    """The same matrix, in the memory order in which ``(rows, inner) @ (inner, outer)`` is fastest."""
    if rows >= _LEAST_ROWS and min(matrix.shape) >= _LEAST_SIDE and matrix.numel() <= _MOST_NUMBERS:
        return matrix.mT.contiguous().mT
    return matrix.contiguous()


def sum_of_rows(values: Float[Tensor, "rows a"]) -> Float[Tensor, " a"]:
    """``values.sum(0)``; on a CPU as a product with ones, which keeps to the order of the memory."""
    if values.device.type != "cpu":
        return values.sum(0)
    total, ones = values.new_zeros(values.shape[1]), values.new_ones(min(len(values), _SUMMED_ROWS))
    for part in row_blocks(len(values), _SUMMED_ROWS):
        total.addmv_(values[part].mT, ones[: part.stop - part.start])
    return total
