r"""What the kernels of the backward pass share, and its formulas; q is computed again, nothing of N x K is held.

Because L = R + V whatever q is, gradients l, r, v of L, R and V act as l + v on L and r - v on R alone. With
those written l and r, G arriving at mu, h at the entropy, b at the squared distance to the nearest prototype \*:

.. math::
    E &= G - 2 r (x - \mu), \quad a_k = p_k \cdot E - (l + h / T)\, g_k, \quad
    W_k = \tfrac2T q_k (a_k - \bar a) - 2 l q_k - 2 b\,1_{k = *} \\
    \partial x &= \textstyle\sum_k W_k (p_k - x) + 2 r (x - \mu), \quad
    \partial p_k = \sum_n W_k (x - p_k) + q_k E, \quad
    \partial T = -\tfrac1{T^2} \textstyle\sum_k q_k (a_k - \bar a)\, g_k

with :math:`\bar a = \sum_k q_k a_k`; in mode stop the first part of W and the gradient of T are zero. Differences
(p - x) are taken by subtracting the sum of the weights as they were rounded for the matrix product: the error is then
relative to the difference, not to how far from the origin the bank lies.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ddcl.ops.triton.tiles import (
    CUT,
    LOG2E,
    cast,
    cut,
    multiply,
    per_token,
)

# times log2(e) / T: 2 / T
TWICE = tl.constexpr(2.0 / LOG2E.value)


@triton.jit
def loss_gradients(
    total, reconstruction, variance, entropy, start, i_n, i_h, b_keep, b_t,
    l_n, l_h, r_n, r_h, v_n, v_h, h_n, h_h, AXIS: tl.constexpr = 1,
):  # fmt: skip
    """l, r and c = l + h / T of the module's docstring for a block of tokens; a plain 0 where nothing arrives."""
    b_l = 0.0
    b_r = 0.0
    if total is not None:
        b_l += per_token(total, start, i_n, i_h, b_keep, l_n, l_h, AXIS)
    if variance is not None:
        b_v = per_token(variance, start, i_n, i_h, b_keep, v_n, v_h, AXIS)
        b_l += b_v
        b_r -= b_v
    if reconstruction is not None:
        b_r += per_token(reconstruction, start, i_n, i_h, b_keep, r_n, r_h, AXIS)
    b_c = b_l
    if entropy is not None:
        b_c += per_token(entropy, start, i_n, i_h, b_keep, h_n, h_h, AXIS) / b_t
    return b_l, b_r, b_c


@triton.jit
def rounded(b_values, DTYPE: tl.constexpr):
    """Values as a matrix product takes them, as float32, and the factor they were divided by.

    float16 has too small a range for gradients: its blocks are scaled by their largest entry.
    """
    b_scale = 1.0
    if tl.float16 == DTYPE:
        b_scale = tl.max(tl.max(tl.abs(b_values), 1), 0)
        b_scale = tl.where(b_scale > 0, b_scale, 1.0)
        b_values = b_values / b_scale
    if tl.bfloat16 == DTYPE:
        b_values = b_values * CUT
    b_values = cut(b_values, DTYPE)
    return b_values.to(DTYPE), b_values * b_scale, b_scale


@triton.jit
def operand(b_values, DTYPE: tl.constexpr):
    """A gradient that came in ``DTYPE`` or was held in float32 for its range, as ``rounded`` gives it."""
    if tl.float16 == DTYPE and b_values.dtype == tl.float32:
        b_rounded, b_32, b_scale = rounded(b_values, DTYPE)
    else:
        b_rounded, b_32, b_scale = b_values.to(DTYPE), b_values.to(tl.float32), 1.0
    return b_rounded, b_32, b_scale


@triton.jit
def add_product(b_sum, b_left, b_right, b_scale, PRECISION: tl.constexpr):
    """sum + scale left @ right; only float16 is scaled."""
    if b_left.dtype == tl.float16:
        b_sum += multiply(b_left, b_right, None, PRECISION) * b_scale
    else:
        b_sum = multiply(b_left, b_right, b_sum, PRECISION)
    return b_sum


@triton.jit
def store_share(d_bank, b_dp, b_sum, b_p, i_share, i_k, i_m, K, m, H, i_h):
    """Write what one program found of the bank's gradient."""
    i_row = (i_share.to(tl.int64) * H + i_h) * K + i_k
    b_dp -= b_sum * b_p.to(tl.float32)
    tl.store(
        d_bank + i_row[:, None] * m + i_m[None, :],
        cast(b_dp, d_bank.dtype.element_ty),
        mask=(i_k < K)[:, None] & (i_m < m)[None, :],
    )
