"""The kernels of the forward pass: every output from one pass over the tokens.

``resident`` keeps a small bank on the chip and walks over the tokens; ``streamed`` keeps tokens on the chip and walks
over a bank of any size with an online softmax. Both end in ``finish``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ddcl.ops.triton.tiles import (
    FAR,
    LOG2_CUT,
    LOG2E,
    bank_block,
    cut,
    multiply,
    nearest_of,
    norms_block,
    power_of_two,
    rates,
    reciprocal,
    rows_to_keep,
    scores,
    store_own_per_token,
    store_per_token,
    store_vectors,
    temperatures,
    token_block,
    two_sums,
    weights,
)


@triton.jit
def finish(
    centroid, total, reconstruction, variance, quantization, entropy, indices, level, bank, center, mask,
    b_x, b_mu, b_best, b_index, b_z, b_deficit, b_norm, b_t, b_keep, start, i_n, i_m, i_h, m_n, N, K, m, H,
    PADDED: tl.constexpr, DESCRIBED: tl.constexpr,
):  # fmt: skip
    """Terms of a block of tokens from its sums over prototypes, and the stores."""
    b_per_z = reciprocal(b_z)
    b_mu = b_mu * b_per_z
    b_deficit = b_deficit * b_per_z
    b_x = b_x.to(tl.float32)
    b_difference = b_x - b_mu
    if center is not None:
        b_r, b_mu_squared = two_sums(b_difference * b_difference, b_mu * b_mu, DESCRIBED)
        # float32 tokens: the distance to the nearest from the difference, V from the smaller of two subtractions
        b_nearest = tl.load(
            bank + (i_h * K + b_index.to(tl.int64)) * m + i_m[None, :], mask=(i_m < m)[None, :], other=0.0
        )
        b_nearest = b_x - b_nearest
        b_min = tl.sum(b_nearest * b_nearest, 1, keep_dims=True)
        b_l = b_min - b_deficit
        b_e = b_norm * b_per_z
        b_v = tl.where(b_l < b_e, b_l - b_r, b_e - b_mu_squared)
        b_mu += tl.load(center + i_h * m + i_m, mask=i_m < m, other=0.0)[None, :]
    else:
        # tokens of half precision carry fewer digits than |x|^2 - max g loses
        b_r, b_x_squared = two_sums(b_difference * b_difference, b_x * b_x, DESCRIBED)
        b_min = tl.maximum(b_x_squared - b_best, 0.0)
        b_v = b_min - b_deficit - b_r
    b_v = tl.maximum(b_v, 0.0)
    b_h = (tl.log2(b_z) - b_deficit * rates(b_t)) * (1 / LOG2E)
    if level is not None:
        store_own_per_token(level, b_best + b_t * tl.log(b_z), start, i_n, i_h, m_n, N)
    if mask is not None:
        b_count = b_keep[:, None]
        b_mu = tl.where(b_count, b_mu, 0.0)
        b_r, b_v = tl.where(b_count, b_r, 0.0), tl.where(b_count, b_v, 0.0)
        b_min, b_h = tl.where(b_count, b_min, 0.0), tl.where(b_count, b_h, 0.0)
        b_index = tl.where(b_count, b_index, -1.0)
    store_vectors(centroid, b_mu, start, i_n, i_m, i_h, m_n, m, H, PADDED, DESCRIBED)
    store_per_token(total, b_r + b_v, start, i_n, i_h, m_n, H)
    store_per_token(reconstruction, b_r, start, i_n, i_h, m_n, H)
    store_per_token(variance, b_v, start, i_n, i_h, m_n, H)
    store_per_token(quantization, b_min, start, i_n, i_h, m_n, H)
    store_per_token(entropy, b_h, start, i_n, i_h, m_n, H)
    store_per_token(indices, b_index.to(tl.int32), start, i_n, i_h, m_n, H)


@triton.jit
def resident(
    z, bank, center, temperature, mask,
    centroid, total, reconstruction, variance, quantization, entropy, indices,
    N, K, m, H, z_n, z_h, z_m, t_n, t_h,
    BN: tl.constexpr, BK: tl.constexpr, BM: tl.constexpr, RAGGED: tl.constexpr, PADDED: tl.constexpr,
    DESCRIBED: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """All outputs, for a bank that fits one block."""
    i_h = tl.program_id(1).to(tl.int64)
    i_n, i_k, i_m = tl.arange(0, BN), tl.arange(0, BK), tl.arange(0, BM)
    temperature += i_h * t_h
    b_p = bank_block(bank, 0, i_k, i_m, i_h, K, m, RAGGED, PADDED, False)
    b_p32 = b_p.to(tl.float32)
    b_norm = tl.where(i_k < K, tl.sum(b_p32 * b_p32, 1), FAR)
    BIAS: tl.constexpr = LOG2_CUT if b_p.dtype == tl.bfloat16 else 0.0
    if t_n is None:
        b_t = temperatures(temperature, 0, i_n, i_n < BN, t_n)
    for i_block in tl.range(tl.program_id(0), tl.cdiv(N, BN), tl.num_programs(0), num_stages=STAGES):
        start = tl.cast(i_block, tl.int64) * BN
        m_n = i_n < N - start
        b_keep = rows_to_keep(mask, start, i_n, m_n)
        b_x = token_block(
            z, center, mask, start, i_n, i_m, i_h, b_keep, m, z_n, z_h, z_m, PADDED, DESCRIBED
        )  # fmt: skip
        if t_n is not None:
            b_t = temperatures(temperature, start, i_n, b_keep, t_n)
        b_g = scores(b_x, b_p, b_norm, PRECISION)
        b_best = tl.max(b_g, 1, keep_dims=True)
        b_g -= b_best
        b_index = nearest_of(b_g, i_k)
        b_g, b_q = weights(b_g, rates(b_t), (i_k < K)[None, :], RAGGED, BIAS)
        # the mixture is the one cut for the product: its weights sum to one and L = R + V holds for it exactly
        b_q = cut(b_q, b_x.dtype)
        b_mu = multiply(b_q.to(b_x.dtype), b_p, None, PRECISION)
        b_z, b_deficit = two_sums(b_q, b_q * b_g, True)
        b_e = tl.sum(b_q * b_norm[None, :], 1, keep_dims=True) if center is not None else b_best
        finish(
            centroid, total, reconstruction, variance, quantization, entropy, indices, None, bank, center, mask,
            b_x, b_mu, b_best, b_index, b_z, b_deficit, b_e, b_t, b_keep, start, i_n, i_m, i_h, m_n, N, K, m, H,
            PADDED, DESCRIBED,
        )  # fmt: skip


@triton.jit
def streamed(
    z, bank, norms, center, temperature, mask,
    centroid, total, reconstruction, variance, quantization, entropy, indices, level,
    N, K, m, H, z_n, z_h, z_m, t_n, t_h,
    BN: tl.constexpr, BK: tl.constexpr, BM: tl.constexpr, RAGGED: tl.constexpr, PADDED: tl.constexpr,
    DESCRIBED: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """All outputs, for a bank of any size, and the level max g + T ln Z from which q can be had again."""
    i_h = tl.program_id(1).to(tl.int64)
    start = tl.program_id(0).to(tl.int64) * BN
    i_n, i_m = tl.arange(0, BN), tl.arange(0, BM)
    m_n = i_n < N - start
    b_keep = rows_to_keep(mask, start, i_n, m_n)
    b_x = token_block(z, center, mask, start, i_n, i_m, i_h, b_keep, m, z_n, z_h, z_m, PADDED, DESCRIBED)
    BIAS: tl.constexpr = LOG2_CUT if b_x.dtype == tl.bfloat16 else 0.0
    b_t = temperatures(temperature + i_h * t_h, start, i_n, b_keep, t_n)
    b_rate = rates(b_t)
    b_best = tl.full([BN, 1], -1.5 * FAR, tl.float32)
    b_index = tl.zeros([BN, 1], tl.float32)
    b_z = tl.zeros([BN, 1], tl.float32)
    b_deficit = tl.zeros([BN, 1], tl.float32)
    b_e = tl.zeros([BN, 1], tl.float32)
    b_mu = tl.zeros([BN, BM], tl.float32)
    for first in tl.range(0, K, BK, num_stages=STAGES):
        i_k = first + tl.arange(0, BK)
        b_p = bank_block(bank, first, tl.arange(0, BK), i_m, i_h, K, m, RAGGED, PADDED, DESCRIBED)
        b_norm = norms_block(norms, first, i_k, i_h, K, RAGGED, DESCRIBED)
        b_g = scores(b_x, b_p, b_norm, PRECISION)
        b_top = tl.max(b_g, 1, keep_dims=True)
        b_new = tl.maximum(b_best, b_top)
        b_fall = b_best - b_new
        b_scale = power_of_two(b_fall * b_rate)
        b_g -= b_new
        b_index = tl.where(b_top > b_best, nearest_of(b_g, i_k), b_index)
        b_g, b_q = weights(b_g, b_rate, (i_k < K)[None, :], RAGGED, BIAS)
        b_q = cut(b_q, b_x.dtype)
        b_z_here, b_deficit_here = two_sums(b_q, b_q * b_g, True)
        b_deficit = (b_deficit + b_z * b_fall) * b_scale + b_deficit_here
        b_z = b_z * b_scale + b_z_here
        if center is not None:
            b_e = b_e * b_scale + tl.sum(b_q * b_norm[None, :], 1, keep_dims=True)
        b_mu = multiply(b_q.to(b_x.dtype), b_p, b_mu * b_scale, PRECISION)
        b_best = b_new
    b_x = token_block(z, center, mask, start, i_n, i_m, i_h, b_keep, m, z_n, z_h, z_m, PADDED, DESCRIBED, True)
    finish(
        centroid, total, reconstruction, variance, quantization, entropy, indices, level, bank, center, mask,
        b_x, b_mu, b_best, b_index, b_z, b_deficit, b_e, b_t, b_keep, start, i_n, i_m, i_h, m_n, N, K, m, H,
        PADDED, DESCRIBED,
    )  # fmt: skip
