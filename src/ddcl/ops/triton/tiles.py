"""What every kernel does to a block: load it, score it, weigh it, store it.

Names in the kernels: ``i_`` index, ``m_`` mask, ``b_`` block of values on the chip; ``BN``, ``BK``, ``BM`` are block
sizes over tokens, prototypes and dimensions. An argument that may be None is compiled away where it is. A block of
tokens is addressed from its first one, which takes 64 bits; steps from there fit 32. ``DESCRIBED``: tokens, bank and
what has their shape come as tensor descriptors, which the GPU's copy engine moves, and not as pointers.
"""

from __future__ import annotations

import triton
import triton.language as tl

# squared length given to rows past the end of the bank: far, and finite so that 0 * FAR is 0
FAR = tl.constexpr(1e38)
LOG2E = tl.constexpr(1.4426950408889634)
LARGEST = tl.constexpr(3.4028234663852886e38)
# cutting 16 of 23 binary digits off takes away 2^-8 / (2 ln 2) of a number on average
CUT = tl.constexpr(1.0 + 0.00281777)
LOG2_CUT = tl.constexpr(0.00405949)
# Triton's interpreter multiplies no bfloat16 and knows no assembly
INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))


@triton.jit
def multiply(b_left, b_right, b_sum, PRECISION: tl.constexpr):
    """left @ right + sum, the sum in float32; without a sum where that is None."""
    if INTERPRETED:
        b_left, b_right = b_left.to(tl.float32), b_right.to(tl.float32)
    if b_sum is None:
        b_product = tl.dot(b_left, b_right, input_precision=PRECISION)
    else:
        b_product = tl.dot(b_left, b_right, b_sum, input_precision=PRECISION)
    return b_product


@triton.jit
def power_of_two(b_exponent):
    """2^x, zero where that is subnormal: weights so small do not count, and each would cost three instructions."""
    if INTERPRETED:
        b_power = tl.exp2(b_exponent)
    else:
        b_power = tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [b_exponent], dtype=tl.float32, is_pure=True, pack=1
        )
    return b_power


@triton.jit
def cast(b_values, DTYPE: tl.constexpr):
    """Values rounded to a dtype; the interpreter, left to itself, would cut them."""
    if INTERPRETED and tl.bfloat16 == DTYPE and b_values.dtype == tl.float32:
        b_bits = b_values.to(tl.int32, bitcast=True)
        b_values = ((b_bits + 32767 + ((b_bits >> 16) & 1)) & -65536).to(tl.float32, bitcast=True)
    return b_values.to(DTYPE)


@triton.jit
def cut(b_values, DTYPE: tl.constexpr):
    """float32 with no more digits than a product in ``DTYPE`` takes.

    For bfloat16 the rest is cut off, which costs one instruction and keeps NaN; scale by ``CUT`` before, to be right on
    average.
    """
    if tl.bfloat16 == DTYPE:
        b_values = (b_values.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)
    elif tl.float16 == DTYPE:
        b_values = b_values.to(DTYPE).to(tl.float32)
    return b_values


@triton.jit
def reciprocal(b_values):
    """1 / x for x of moderate size."""
    if INTERPRETED:
        b_reciprocal = 1.0 / b_values
    else:
        b_reciprocal = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [b_values], dtype=tl.float32, is_pure=True, pack=1
        )
    return b_reciprocal


@triton.jit
def _add_both(a_1, b_1, a_2, b_2):
    return a_1 + a_2, b_1 + b_2


@triton.jit
def two_sums(b_a, b_b, TOGETHER: tl.constexpr):
    """Sums over the last axis, kept; ``TOGETHER`` where the compiler would take each in a layout of its own.

    Where tokens come through pointers it would, together, move everything into the layout of the loads.
    """
    if INTERPRETED or not TOGETHER:  # the interpreter would add one number at a time
        b_a, b_b = tl.sum(b_a, 1), tl.sum(b_b, 1)
    else:
        b_a, b_b = tl.reduce((b_a, b_b), 1, _add_both)
    return b_a[:, None], b_b[:, None]


@triton.jit
def bank_block(bank, first, i_k, i_m, i_h, K, m, RAGGED: tl.constexpr, PADDED: tl.constexpr, DESCRIBED: tl.constexpr):
    """Prototypes (BK, BM) from the ``first`` on, zero past the end."""
    if DESCRIBED:
        b_p = bank.load([(i_h * K).to(tl.int32) + first, 0])
    else:
        pointers = bank + (i_h * K + first) * m + (i_k[:, None] * m + i_m[None, :])
        if PADDED:
            b_p = tl.load(pointers, mask=(first + i_k < K)[:, None] & (i_m < m)[None, :], other=0.0)
        elif RAGGED:
            b_p = tl.load(pointers, mask=(first + i_k < K)[:, None], other=0.0)
        else:
            b_p = tl.load(pointers)
    return b_p


@triton.jit
def rows_to_keep(mask, start, i_n, m_n):
    """Tokens that exist and count."""
    b_keep = m_n
    if mask is not None:
        b_keep = m_n & (tl.load(mask + start + i_n, mask=m_n, other=0) != 0)
    return b_keep


@triton.jit
def vectors(
    z, mask, start, i_n, i_m, i_h, b_keep, m, z_n, z_h, z_m,
    PADDED: tl.constexpr, DESCRIBED: tl.constexpr, AGAIN: tl.constexpr = False,
):  # fmt: skip
    """Rows (BN, BM) of one head of a tensor, zero where masked.

    ``AGAIN``: for the second time, so that the compiler does not keep the rows in registers in between.
    """
    if DESCRIBED:
        b_z = z.load([start.to(tl.int32), (i_h * m).to(tl.int32)])
        if mask is not None:
            b_z = tl.where(b_keep[:, None], b_z, 0.0)
    else:
        b_load = b_keep[:, None]
        if PADDED:
            b_load = b_load & (i_m < m)[None, :]
        policy: tl.constexpr = "evict_last" if AGAIN else ""
        pointers = z + (start * z_n + i_h * z_h) + (i_n[:, None] * z_n + i_m[None, :] * z_m)
        b_z = tl.load(pointers, mask=b_load, other=0.0, eviction_policy=policy)
    return b_z


@triton.jit
def token_block(
    z, center, mask, start, i_n, i_m, i_h, b_keep, m, z_n, z_h, z_m,
    PADDED: tl.constexpr, DESCRIBED: tl.constexpr, AGAIN: tl.constexpr = False,
):  # fmt: skip
    """Tokens (BN, BM), centred if there is a centre."""
    b_x = vectors(z, mask, start, i_n, i_m, i_h, b_keep, m, z_n, z_h, z_m, PADDED, DESCRIBED, AGAIN)
    if center is not None:
        b_center = tl.load(center + i_h * m + i_m, mask=i_m < m, other=0.0)
        # a product, not tl.where: Triton 3.9 cannot move a mask from one layout to another here
        b_x -= b_center[None, :] * b_keep.to(tl.float32)[:, None]
    return b_x


@triton.jit
def store_vectors(
    out, b_values, start, i_n, i_m, i_h, m_n, m, H, PADDED: tl.constexpr, DESCRIBED: tl.constexpr
):  # fmt: skip
    """Write rows (BN, BM) of one head of a contiguous (N, H, m) tensor."""
    if DESCRIBED:
        out.store([start.to(tl.int32), (i_h * m).to(tl.int32)], cast(b_values, out.dtype))
    else:
        m_store = m_n[:, None]
        if PADDED:
            m_store = m_store & (i_m < m)[None, :]
        pointers = out + (start * H + i_h) * m + (i_n[:, None] * (H * m) + i_m[None, :])
        tl.store(pointers, cast(b_values, out.dtype.element_ty), mask=m_store)


@triton.jit
def temperatures(temperature, start, i_n, b_keep, t_n, AXIS: tl.constexpr = 1):
    """T of each token, with an axis of length one inserted, or one T for all where ``t_n`` is None."""
    if t_n is None:
        b_t = tl.load(temperature)
    else:
        b_t = tl.expand_dims(tl.load(temperature + start * t_n + i_n * t_n, mask=b_keep, other=1.0), AXIS)
    return b_t


@triton.jit
def rates(b_t):
    """log2(e) / T, finite even for the smallest T so that 0 / T is 0."""
    return tl.minimum(LOG2E / b_t, LARGEST)


@triton.jit
def scores(b_x, b_p, b_norm, PRECISION: tl.constexpr):
    """g = 2 x . p - |p|^2, largest for the nearest prototype."""
    return 2.0 * multiply(b_x, tl.trans(b_p), None, PRECISION) - b_norm[None, :]


@triton.jit
def weights(b_g, b_rate, m_k, RAGGED: tl.constexpr, BIAS: tl.constexpr = 0.0):
    """exp(g / T) for scores shifted to at most 0; nothing, in weights and scores, past the end of a ragged bank."""
    b_w = power_of_two(b_g * b_rate + BIAS)
    if RAGGED:
        b_w = tl.where(m_k, b_w, 0.0)
        b_g = tl.where(m_k, b_g, 0.0)
    return b_g, b_w


@triton.jit
def per_token(values, start, i_n, i_h, b_keep, s_n, s_h, AXIS: tl.constexpr = 1):
    """One number for each token of a head, with an axis of length one inserted, zero for tokens that do not count.

    ``s_n`` None: one number for all.
    """
    if s_n is None:
        b_values = tl.where(b_keep, tl.load(values + i_h * s_h).to(tl.float32), 0.0)
    else:
        b_values = tl.load(values + (start * s_n + i_h * s_h) + i_n * s_n, mask=b_keep, other=0.0).to(tl.float32)
    return tl.expand_dims(b_values, AXIS)


@triton.jit
def own_per_token(values, start, i_n, i_h, m_n, N, AXIS: tl.constexpr, DESCRIBED: tl.constexpr):
    """The same from an (H, N) tensor that a kernel wrote; anything for tokens that do not exist."""
    if DESCRIBED:
        b_values = values.load([(i_h * N + start).to(tl.int32)])
    else:
        b_values = tl.load(values + (i_h * N + start) + i_n, mask=m_n, other=0.0)
    return tl.expand_dims(b_values, AXIS)


@triton.jit
def store_per_token(out, b_column, start, i_n, i_h, m_n, H):
    """Write a column (BN, 1) of a contiguous (N, H) tensor."""
    tl.store(out + (start * H + i_h) + i_n * H, tl.reshape(b_column, i_n.shape).to(out.dtype.element_ty), mask=m_n)


@triton.jit
def store_own_per_token(out, b_column, start, i_n, i_h, m_n, N):
    """The same for an (H, N) tensor, which later kernels read head by head."""
    tl.store(out + (i_h * N + start) + i_n, tl.reshape(b_column, i_n.shape), mask=m_n)


@triton.jit
def norms_block(norms, first, i_k, i_h, K, RAGGED: tl.constexpr, DESCRIBED: tl.constexpr):
    """Squared lengths of the prototypes from the ``first`` on, far away past the end."""
    if DESCRIBED:
        b_norm = norms.load([(i_h * K).to(tl.int32) + first])
        if RAGGED:
            b_norm = tl.where(i_k < K, b_norm, FAR)
    else:
        b_norm = tl.load(norms + i_h * K + i_k, mask=i_k < K, other=FAR)
    return b_norm


@triton.jit
def nearest_of(b_shifted, i_k):
    """Index, (BN, 1), of the prototype whose score, shifted by the best one, is zero; the first of several."""
    return -tl.max(b_shifted * 1e30 - i_k.to(tl.float32)[None, :], 1, keep_dims=True)
