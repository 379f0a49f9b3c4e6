"""The backward pass for a bank of any size: a walk over the bank for tokens, one over the tokens for the bank.

Formulas in ``gradients``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ddcl.ops.triton.gradients import (
    TWICE,
    add_product,
    loss_gradients,
    operand,
    rounded,
    store_share,
)
from ddcl.ops.triton.tiles import (
    bank_block,
    cast,
    multiply,
    norms_block,
    own_per_token,
    per_token,
    rates,
    reciprocal,
    rows_to_keep,
    scores,
    store_own_per_token,
    store_per_token,
    store_vectors,
    temperatures,
    token_block,
    vectors,
    weights,
)


@triton.jit
def tokens(
    z, bank, norms, center, temperature, mask, centroid, entropy, indices, level,
    d_centroid, effective, d_total, d_reconstruction, d_variance, d_quantization, d_entropy,
    d_z, d_temperature, shift,
    N, K, m, H, z_n, z_h, z_m, t_n, t_h, g_n, g_h, g_m, l_n, l_h, r_n, r_h, v_n, v_h, b_n, b_h, h_n, h_h,
    BN: tl.constexpr, BK: tl.constexpr, BM: tl.constexpr, RAGGED: tl.constexpr, PADDED: tl.constexpr,
    FULL: tl.constexpr, DESCRIBED: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Gradients of tokens and temperature for a bank of any size, and the shift 2 (mean a / T + l) that its own needs.

    The mean of a is not known before the end of the walk over the bank. It is guessed from the rounded centroid, and
    what the guess misses is added at the end: that is small, so that the centroid's rounding does not matter there.
    """
    i_h = tl.program_id(1).to(tl.int64)
    start = tl.program_id(0).to(tl.int64) * BN
    i_n, i_m = tl.arange(0, BN), tl.arange(0, BM)
    m_n = i_n < N - start
    has_l: tl.constexpr = (
        (d_total is not None) or (d_variance is not None) or (not FULL and d_reconstruction is not None)
    )
    has_c: tl.constexpr = has_l or (d_entropy is not None)
    has_e: tl.constexpr = FULL and ((effective is not None) or (d_centroid is not None))
    b_keep = rows_to_keep(mask, start, i_n, m_n)
    b_x = token_block(z, center, mask, start, i_n, i_m, i_h, b_keep, m, z_n, z_h, z_m, PADDED, DESCRIBED)
    b_t = temperatures(temperature + i_h * t_h, start, i_n, b_keep, t_n)
    b_rate = rates(b_t)
    b_level = own_per_token(level, start, i_n, i_h, m_n, N, 1, False)
    b_l, b_r, b_c = loss_gradients(
        d_total, d_reconstruction, d_variance, d_entropy, start, i_n, i_h, b_keep, b_t,
        l_n, l_h, r_n, r_h, v_n, v_h, h_n, h_h,
    )  # fmt: skip
    if not FULL and ((d_reconstruction is not None) or (d_variance is not None)):
        b_l += b_r  # with q held, L and R move x alike
    b_offset = per_token(entropy, start, i_n, i_h, b_keep, H, 1) * b_t  # sum_k q_k (level - g_k)
    b_guess = tl.zeros([BN, 1], tl.float32)
    b_e = b_x
    b_e_scale = 1.0
    if has_e:
        if effective is not None:
            b_e = vectors(effective, mask, start, i_n, i_m, i_h, b_keep, m, H * m, m, 1, PADDED, DESCRIBED)
        else:
            b_e = vectors(d_centroid, mask, start, i_n, i_m, i_h, b_keep, m, g_n, g_h, g_m, PADDED, DESCRIBED)
        b_e, b_e32, b_e_scale = operand(b_e, b_x.dtype)
        b_mu = token_block(centroid, center, mask, start, i_n, i_m, i_h, b_keep, m, H * m, m, 1, PADDED, DESCRIBED)
        b_guess += tl.sum(b_mu.to(tl.float32) * b_e32, 1, keep_dims=True)
    if FULL and has_c:
        b_guess += b_c * b_offset
    if d_quantization is not None:
        b_index = tl.load(indices + (start * H + i_h) + i_n * H, mask=b_keep, other=-1)[:, None]
        b_b = per_token(d_quantization, start, i_n, i_h, b_keep, b_n, b_h)
    b_missed = tl.zeros([BN, 1], tl.float32)
    b_dt = tl.zeros([BN, 1], tl.float32)
    b_sum = tl.zeros([BN, 1], tl.float32)
    b_dx = tl.zeros([BN, BM], tl.float32)
    for first in tl.range(0, K, BK, num_stages=STAGES):
        i_k = first + tl.arange(0, BK)
        b_p = bank_block(bank, first, tl.arange(0, BK), i_m, i_h, K, m, RAGGED, PADDED, DESCRIBED)
        b_norm = norms_block(norms, first, i_k, i_h, K, RAGGED, DESCRIBED)
        b_g = tl.minimum(scores(b_x, b_p, b_norm, PRECISION) - b_level, 0.0)  # q is at most 1
        b_g, b_q = weights(b_g, b_rate, (i_k < K)[None, :], RAGGED)
        b_W = tl.zeros_like(b_g)
        if FULL:
            b_a = tl.zeros_like(b_g)
            if has_e:
                b_a = multiply(b_e, tl.trans(b_p), None, PRECISION) * b_e_scale
            if has_c:
                b_a -= b_c * b_g
            b_a = b_q * (b_a - b_guess)
            b_missed += tl.sum(b_a, 1, keep_dims=True)
            if d_temperature is not None:
                b_dt += tl.sum(b_a * b_g, 1, keep_dims=True)
            b_W = b_a * (b_rate * TWICE)
        if has_l:
            b_W -= (2.0 * b_l) * b_q
        if d_quantization is not None:
            b_W -= tl.where(i_k[None, :] == b_index, 2.0 * b_b, 0.0)
        if d_z is not None:
            b_w, b_W, b_scale = rounded(b_W, b_x.dtype)
            b_sum += tl.sum(b_W, 1, keep_dims=True)
            b_dx = add_product(b_dx, b_w, b_p, b_scale, PRECISION)
    if FULL:
        if shift is not None:
            b_shift = (b_guess + b_missed) * (b_rate * TWICE)
            if has_l:
                b_shift += 2.0 * b_l
            store_own_per_token(shift, b_shift, start, i_n, i_h, m_n, N)
        if d_temperature is not None:
            b_dt = -((b_dt + b_missed * b_offset) / b_t) / b_t
            if mask is not None:
                b_dt = tl.where(b_keep[:, None], b_dt, 0.0)
            store_per_token(d_temperature, b_dt, start, i_n, i_h, m_n, H)
    if d_z is not None:
        b_x = token_block(z, center, mask, start, i_n, i_m, i_h, b_keep, m, z_n, z_h, z_m, PADDED, DESCRIBED, True)
        b_x = b_x.to(tl.float32)
        b_dx -= b_sum * b_x
        if FULL:
            b_mu = token_block(
                centroid, center, mask, start, i_n, i_m, i_h, b_keep, m, H * m, m, 1, PADDED, DESCRIBED, True
            )
            b_dx -= (b_rate * TWICE * b_missed) * (b_mu.to(tl.float32) - b_x)
        if FULL and effective is not None:
            b_e = vectors(effective, mask, start, i_n, i_m, i_h, b_keep, m, H * m, m, 1, PADDED, DESCRIBED, True)
            b_dx -= b_e.to(tl.float32)
            if d_centroid is not None:
                b_e = vectors(d_centroid, mask, start, i_n, i_m, i_h, b_keep, m, g_n, g_h, g_m, PADDED, DESCRIBED)
                b_dx += b_e.to(tl.float32)
        if mask is not None:
            b_dx = tl.where(b_keep[:, None], b_dx, 0.0)
        store_vectors(d_z, b_dx, start, i_n, i_m, i_h, m_n, m, H, PADDED, DESCRIBED)


@triton.jit
def prototypes(
    z, bank, norms, center, temperature, mask, indices, level, shift,
    d_centroid, d_total, d_reconstruction, d_variance, d_quantization, d_entropy,
    d_bank,
    N, K, m, H, z_n, z_h, z_m, t_n, t_h, g_n, g_h, g_m, l_n, l_h, r_n, r_h, v_n, v_h, b_n, b_h, h_n, h_h, SHARE,
    TAIL: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BM: tl.constexpr, RAGGED: tl.constexpr,
    PADDED: tl.constexpr, FULL: tl.constexpr, DESCRIBED: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Gradient of a block of prototypes from the ``SHARE`` tokens that begin at this program's, for a bank of any size.

    Products are taken the other way round, (BK, BN), so that the weights stand as the next product wants them.
    """
    i_h = tl.program_id(2).to(tl.int64)
    i_n, i_m = tl.arange(0, BN), tl.arange(0, BM)
    first = tl.program_id(0) * BK
    i_k = first + tl.arange(0, BK)
    has_l: tl.constexpr = (d_total is not None) or (d_variance is not None)
    has_c: tl.constexpr = has_l or (d_entropy is not None)
    b_p = bank_block(bank, first, tl.arange(0, BK), i_m, i_h, K, m, RAGGED, PADDED, DESCRIBED)
    b_norm = norms_block(norms, first, i_k, i_h, K, RAGGED, DESCRIBED)
    b_dp = tl.zeros([BK, BM], tl.float32)
    b_sum = tl.zeros([BK, 1], tl.float32)
    for offset in tl.range(0, SHARE, BN, num_stages=STAGES):
        start = tl.program_id(1).to(tl.int64) * SHARE + offset
        m_n = i_n < N - start
        b_keep = rows_to_keep(mask, start, i_n, m_n)
        b_x = token_block(z, center, mask, start, i_n, i_m, i_h, b_keep, m, z_n, z_h, z_m, PADDED, DESCRIBED)
        b_t = temperatures(temperature + i_h * t_h, start, i_n, b_keep, t_n, 0)
        b_rate = rates(b_t)
        b_level = own_per_token(level, start, i_n, i_h, m_n, N, 0, DESCRIBED)
        b_l, _, b_c = loss_gradients(
            d_total, d_reconstruction, d_variance, d_entropy, start, i_n, i_h, b_keep, b_t,
            l_n, l_h, r_n, r_h, v_n, v_h, h_n, h_h, 0,
        )  # fmt: skip
        b_g = 2.0 * multiply(b_p, tl.trans(b_x), None, PRECISION) - b_norm[:, None]
        b_g, b_q = weights(tl.minimum(b_g - b_level, 0.0), b_rate, (i_k < K)[:, None], RAGGED)
        if TAIL or mask is not None:
            b_q = tl.where(b_keep[None, :], b_q, 0.0)
        b_W = tl.zeros_like(b_g)
        if d_centroid is not None:
            b_e = vectors(d_centroid, mask, start, i_n, i_m, i_h, b_keep, m, g_n, g_h, g_m, PADDED, DESCRIBED)
            b_e, _, b_e_scale = operand(b_e, b_x.dtype)
        if FULL:
            b_a = tl.zeros_like(b_g)
            if d_centroid is not None:
                b_a = multiply(b_p, tl.trans(b_e), None, PRECISION) * b_e_scale
            if has_c:
                b_a -= b_c * b_g
            b_W = b_q * (b_a * (b_rate * TWICE) - own_per_token(shift, start, i_n, i_h, m_n, N, 0, DESCRIBED))
        elif has_l:
            b_W = (-2.0 * b_l) * b_q
        if d_quantization is not None:
            b_index = tl.load(indices + (start * H + i_h) + i_n * H, mask=b_keep, other=-1)[None, :]
            b_b = per_token(d_quantization, start, i_n, i_h, b_keep, b_n, b_h, 0)
            b_W -= tl.where(i_k[:, None] == b_index, 2.0 * b_b, 0.0)
        b_w, b_W, b_scale = rounded(b_W, b_x.dtype)
        b_sum += tl.sum(b_W, 1, keep_dims=True)
        b_dp = add_product(b_dp, b_w, b_x, b_scale, PRECISION)
        if d_centroid is not None:
            b_dp = add_product(b_dp, cast(b_q, b_x.dtype), b_e, b_e_scale, PRECISION)
    store_share(d_bank, b_dp, b_sum, b_p, tl.program_id(1), i_k, i_m, K, m, H, i_h)


@triton.jit
def effective_gradient(
    z, bank, norms, center, temperature, mask, level, d_centroid, d_reconstruction, d_variance, effective,
    N, K, m, H, z_n, z_h, z_m, t_n, t_h, g_n, g_h, g_m, r_n, r_h, v_n, v_h,
    BN: tl.constexpr, BK: tl.constexpr, BM: tl.constexpr, RAGGED: tl.constexpr, PADDED: tl.constexpr,
    DESCRIBED: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """E = G - 2 r (x - mu) for a bank of any size, with mu computed again: rounded, it would not do."""
    i_h = tl.program_id(1).to(tl.int64)
    start = tl.program_id(0).to(tl.int64) * BN
    i_n, i_m = tl.arange(0, BN), tl.arange(0, BM)
    m_n = i_n < N - start
    b_keep = rows_to_keep(mask, start, i_n, m_n)
    b_x = token_block(z, center, mask, start, i_n, i_m, i_h, b_keep, m, z_n, z_h, z_m, PADDED, DESCRIBED)
    b_t = temperatures(temperature + i_h * t_h, start, i_n, b_keep, t_n)
    b_rate = rates(b_t)
    b_level = own_per_token(level, start, i_n, i_h, m_n, N, 1, False)
    _, b_r, _ = loss_gradients(
        None, d_reconstruction, d_variance, None, start, i_n, i_h, b_keep, b_t, 0, 0, r_n, r_h, v_n, v_h, 0, 0
    )
    b_z = tl.zeros([BN, 1], tl.float32)
    b_mu = tl.zeros([BN, BM], tl.float32)
    for first in tl.range(0, K, BK, num_stages=STAGES):
        i_k = first + tl.arange(0, BK)
        b_p = bank_block(bank, first, tl.arange(0, BK), i_m, i_h, K, m, RAGGED, PADDED, DESCRIBED)
        b_norm = norms_block(norms, first, i_k, i_h, K, RAGGED, DESCRIBED)
        b_g = tl.minimum(scores(b_x, b_p, b_norm, PRECISION) - b_level, 0.0)
        b_g, b_q = weights(b_g, b_rate, (i_k < K)[None, :], RAGGED)
        b_w = cast(b_q, b_x.dtype)
        b_z += tl.sum(b_w.to(tl.float32), 1, keep_dims=True)
        b_mu = multiply(b_w, b_p, b_mu, PRECISION)
    b_x = token_block(z, center, mask, start, i_n, i_m, i_h, b_keep, m, z_n, z_h, z_m, PADDED, DESCRIBED, True)
    b_e = -2.0 * b_r * (b_x.to(tl.float32) - b_mu * reciprocal(tl.where(b_keep[:, None], b_z, 1.0)))
    if d_centroid is not None:
        b_g = vectors(d_centroid, mask, start, i_n, i_m, i_h, b_keep, m, g_n, g_h, g_m, PADDED, DESCRIBED)
        b_e += b_g.to(tl.float32)
    store_vectors(effective, b_e, start, i_n, i_m, i_h, m_n, m, H, PADDED, DESCRIBED)
