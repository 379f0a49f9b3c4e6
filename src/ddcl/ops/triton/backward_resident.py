"""The backward pass for a bank that stays on the chip: one kernel; formulas in ``gradients``."""

from __future__ import annotations

import triton
import triton.language as tl

from ddcl.ops.triton.gradients import (
    TWICE,
    add_product,
    loss_gradients,
    rounded,
    store_share,
)
from ddcl.ops.triton.tiles import (
    FAR,
    bank_block,
    cast,
    multiply,
    nearest_of,
    per_token,
    rates,
    reciprocal,
    rows_to_keep,
    scores,
    store_per_token,
    store_vectors,
    temperatures,
    token_block,
    vectors,
    weights,
)


@triton.jit
def resident(
    z, bank, center, temperature, mask,
    d_centroid, d_total, d_reconstruction, d_variance, d_quantization, d_entropy,
    d_z, d_bank, d_temperature,
    N, K, m, H, z_n, z_h, z_m, t_n, t_h, g_n, g_h, g_m, l_n, l_h, r_n, r_h, v_n, v_h, b_n, b_h, h_n, h_h,
    BN: tl.constexpr, BK: tl.constexpr, BM: tl.constexpr, RAGGED: tl.constexpr, PADDED: tl.constexpr,
    FULL: tl.constexpr, DESCRIBED: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """All gradients, for a bank that fits one block; each program leaves its share of the bank's gradient."""
    i_h = tl.program_id(1).to(tl.int64)
    i_n, i_k, i_m = tl.arange(0, BN), tl.arange(0, BK), tl.arange(0, BM)
    has_r: tl.constexpr = (d_reconstruction is not None) or (d_variance is not None)
    has_l: tl.constexpr = (d_total is not None) or (d_variance is not None)
    has_e: tl.constexpr = (d_centroid is not None) or has_r
    temperature += i_h * t_h
    b_p = bank_block(bank, 0, i_k, i_m, i_h, K, m, RAGGED, PADDED, False)
    b_p32 = b_p.to(tl.float32)
    b_norm = tl.where(i_k < K, tl.sum(b_p32 * b_p32, 1), FAR)
    b_dp = tl.zeros([BK, BM], tl.float32)
    # sums over tokens as a product: the matrix unit has time, the others have not
    b_ones = tl.full([BN, 16], 1.0, b_p.dtype)
    b_sum = tl.zeros([BK, 16], tl.float32)
    if t_n is None:
        b_t = temperatures(temperature, 0, i_n, i_n < BN, t_n)
    for i_block in tl.range(tl.program_id(0), tl.cdiv(N, BN), tl.num_programs(0), num_stages=STAGES):
        start = tl.cast(i_block, tl.int64) * BN
        m_n = i_n < N - start
        b_keep = rows_to_keep(mask, start, i_n, m_n)
        b_x = token_block(z, center, mask, start, i_n, i_m, i_h, b_keep, m, z_n, z_h, z_m, PADDED, DESCRIBED)
        b_e = b_x
        if d_centroid is not None:
            b_e = vectors(d_centroid, mask, start, i_n, i_m, i_h, b_keep, m, g_n, g_h, g_m, PADDED, DESCRIBED)
            b_e = b_e.to(b_x.dtype)
        if t_n is not None:
            b_t = temperatures(temperature, start, i_n, b_keep, t_n)
        b_rate = rates(b_t)
        b_l, b_r, b_c = loss_gradients(
            d_total, d_reconstruction, d_variance, d_entropy, start, i_n, i_h, b_keep, b_t,
            l_n, l_h, r_n, r_h, v_n, v_h, h_n, h_h,
        )  # fmt: skip
        b_g = scores(b_x, b_p, b_norm, PRECISION)
        b_best = tl.max(b_g, 1, keep_dims=True)
        b_g -= b_best
        b_W = tl.zeros_like(b_g)
        if d_quantization is not None:
            b_b = per_token(d_quantization, start, i_n, i_h, b_keep, b_n, b_h)
            b_W = tl.where(i_k[None, :] == nearest_of(b_g, i_k), -2.0 * b_b, 0.0)
        b_g, b_q = weights(b_g, b_rate, (i_k < K)[None, :], RAGGED)
        b_q = b_q * reciprocal(tl.sum(b_q, 1, keep_dims=True))
        b_e_scale = 1.0
        if has_r:
            b_w = cast(b_q, b_x.dtype)
            b_z = tl.sum(b_w.to(tl.float32), 1, keep_dims=True)  # rounded weights do not quite sum to one
            b_mu = multiply(b_w, b_p, None, PRECISION) * reciprocal(b_z)
            b_direct = 2.0 * b_r * (b_x.to(tl.float32) - b_mu)
            b_e32 = -b_direct
            if d_centroid is not None:
                b_e32 += b_e.to(tl.float32)
            b_e, _, b_e_scale = rounded(b_e32, b_x.dtype)
        if FULL:
            b_a = tl.zeros_like(b_g)
            if has_e:
                b_a = multiply(b_e, tl.trans(b_p), None, PRECISION)
                if has_r:
                    b_a = b_a * b_e_scale
            if has_l or d_entropy is not None:
                b_a -= b_c * b_g
            b_a = b_q * (b_a - tl.sum(b_q * b_a, 1, keep_dims=True))
            if d_temperature is not None:
                # 1 / T twice: 1 / T^2 overflows first
                b_dt = -(tl.sum(b_a * b_g, 1, keep_dims=True) / b_t) / b_t
                if mask is not None:
                    b_dt = tl.where(b_keep[:, None], b_dt, 0.0)
                store_per_token(d_temperature, b_dt, start, i_n, i_h, m_n, H)
            b_W += b_a * (b_rate * TWICE)
        if not FULL and has_r:
            # with q held, L and R move x alike: what cancels between them is left out here, not subtracted later
            b_w, b_Wx, b_scale = rounded(b_W - (2.0 * (b_l + b_r)) * b_q, b_x.dtype)
        if has_l:
            b_W -= (2.0 * b_l) * b_q
        if FULL or not has_r:
            b_w, b_W, b_scale = rounded(b_W, b_x.dtype)
            b_Wx = b_W
        if d_z is not None:
            b_dx = multiply(b_w, b_p, None, PRECISION) * b_scale
            b_dx -= tl.sum(b_Wx, 1, keep_dims=True) * b_x.to(tl.float32)
            if FULL and has_r:
                b_dx += b_direct
            if mask is not None:
                b_dx = tl.where(b_keep[:, None], b_dx, 0.0)
            store_vectors(d_z, b_dx, start, i_n, i_m, i_h, m_n, m, H, PADDED, DESCRIBED)
        if d_bank is not None:
            if not FULL and has_r:
                b_w, b_W, b_scale = rounded(b_W, b_x.dtype)
            b_sum = add_product(b_sum, tl.trans(b_w), b_ones, b_scale, PRECISION)
            b_dp = add_product(b_dp, tl.trans(b_w), b_x, b_scale, PRECISION)
            if has_e:
                b_dp = add_product(b_dp, tl.trans(cast(b_q, b_x.dtype)), b_e, b_e_scale, PRECISION)
    if d_bank is not None:
        b_sum = tl.sum(b_sum, 1, keep_dims=True) * (1 / 16)
        store_share(d_bank, b_dp, b_sum, b_p, tl.program_id(0), i_k, i_m, K, m, H, i_h)
