r"""The operation in blocks of tokens, with its gradients written out.

No N x K tensor larger than a bounded block is ever held (``ops.blocks`` states the bounds), so training memory
is O(N m). The formulas, per token and head, with x and p centred on the bank's mean where the bank lies
far from the origin (the operation is translation equivariant, and float32 would spend its digits on the offset):

.. math::
    g_k = 2 x \cdot p_k - |p_k|^2, \quad \Delta_k = \max_j g_j - g_k = d_k - \min_j d_j, \quad
    q_k = e^{-\Delta_k / T} / Z

    L = \min d + \textstyle\sum_k q_k \Delta_k, \quad R = |x - \mu|^2, \quad
    V = \tfrac12 \textstyle\sum_{jk} q_j q_k |p_j - p_k|^2 = \sum_k q_k |p_k|^2 - |\mu|^2 = L - R, \quad
    H = \ln Z + \sum_k q_k \Delta_k / T

Backward, for upstream gradients :math:`G` of :math:`\mu` and :math:`\ell, r, v, h, b` of L, R, V, H and
min d (theory: section 3, extended to every output):

.. math::
    A &= G + 2 (v - r)(x - \mu) - 2 c\, x, \qquad c = \ell + v + h / T \\
    u_k &= q_k (a_k - \textstyle\sum_j q_j a_j), \quad a_k = p_k \cdot A + c\,|p_k|^2
        \qquad (u = 0 \text{ in mode stop}) \\
    W_k &= 2 u_k / T - 2 \ell q_k \\
    \partial x &= \textstyle\sum_k W_k p_k + 2 \ell x + 2 r (x - \mu) + 2 b (x - p_*) \\
    \partial p_k &= \textstyle\sum_n W_k x + q_k [G - 2 r (x - \mu) - 2 v \mu] + (2 v q_k - W_k) p_k
        - 2 b (x - p_*)\,1_{k = *} \\
    \partial T &= \textstyle\sum_k u_k \Delta_k / T^2
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ddcl.ops.blocks import block_rows, row_blocks
from ddcl.ops.centring import bank_center
from ddcl.ops.types import Gradient, TokenTerms, arithmetic_dtype
from ddcl.shapes import Bool, Float


class Upstream(NamedTuple):
    """Gradients that arrive from above, None where an output was not used."""

    centroid: Tensor | None
    total: Tensor | None
    reconstruction: Tensor | None
    variance: Tensor | None
    quantization: Tensor | None
    entropy: Tensor | None


class InputGradients(NamedTuple):
    """Gradients handed down, None where an input needs none."""

    z: Tensor | None
    prototypes: Tensor | None
    temperature: Tensor | None


def empty_terms(z: Float[Tensor, "N H m"]) -> TokenTerms:
    """Uninitialised outputs for tokens ``z``."""
    like = torch.empty(z.shape[:2], dtype=arithmetic_dtype(z.dtype), device=z.device)
    return TokenTerms(
        centroid=torch.empty_like(z, memory_format=torch.contiguous_format),
        total=like,
        reconstruction=torch.empty_like(like),
        variance=torch.empty_like(like),
        quantization=torch.empty_like(like),
        entropy=torch.empty_like(like),
        indices=torch.empty_like(like, dtype=torch.int64),
    )


def forward(
    z: Float[Tensor, "N H m"],
    prototypes: Float[Tensor, "H K m"],
    temperature: Float[Tensor, "rows H"],
    mask: Bool[Tensor, " N"] | None,
    keep: bool = False,
) -> tuple[TokenTerms, Tensor | None]:
    """All outputs, head by head and block by block, and q (N, H, K) if it is to be kept."""
    out = empty_terms(z)
    kept = out.total.new_empty(*z.shape[:2], prototypes.shape[1]) if keep else None
    by_head = [TokenTerms(*values) for values in zip(*(term.unbind(1) for term in out), strict=True)]
    for head, terms in enumerate(by_head):
        of_head = None if kept is None else kept[:, head]
        _forward_head(_Assigner(z[:, head], prototypes[head], temperature[:, head], mask, of_head), terms)
    if mask is not None:
        masked = ~mask[:, None]
        out.centroid.masked_fill_(masked[..., None], 0.0)
        out.indices.masked_fill_(masked, -1)
        for term in out[1:-1]:
            term.masked_fill_(masked, 0.0)
    return out, kept


def backward(
    z: Float[Tensor, "N H m"],
    prototypes: Float[Tensor, "H K m"],
    temperature: Float[Tensor, "rows H"],
    mask: Bool[Tensor, " N"] | None,
    gradient: Gradient,
    upstream: Upstream,
    needed: tuple[bool, bool, bool],
    kept: Tensor | None = None,
) -> InputGradients:
    """Gradients for tokens, prototypes and temperature together; q is computed anew unless it was kept."""
    dtype = arithmetic_dtype(z.dtype)
    out = InputGradients(
        torch.empty_like(z, memory_format=torch.contiguous_format) if needed[0] else None,
        torch.zeros_like(prototypes, dtype=dtype) if needed[1] else None,
        torch.zeros_like(temperature) if needed[2] else None,
    )
    if needed[2] or upstream.quantization is not None:
        kept = None  # these need Delta and the nearest prototype too, which were not kept
    for head, points in enumerate(prototypes):
        of_head = None if kept is None else kept[:, head]
        assign = _Assigner(z[:, head], points, temperature[:, head], mask, of_head)
        for rows in assign.blocks():
            up = _load_upstream(upstream, mask, rows, head, dtype)
            target = InputGradients(
                None if out.z is None else out.z[rows, head],
                None if out.prototypes is None else out.prototypes[head],
                None if out.temperature is None else assign.rows_of(out.temperature[:, head], rows),
            )
            _backward_block(assign, rows, up, gradient, target)
    if mask is not None and out.z is not None:
        out.z.masked_fill_(~mask[:, None, None], 0.0)
    return out._replace(prototypes=None if out.prototypes is None else out.prototypes.to(prototypes.dtype))


class _Assigner:
    """One head's bank in the arithmetic's dtype, centred, and the scratch its blocks of tokens share.

    Fresh memory costs more than arithmetic at these sizes (the system hands out zeroed pages), so each block
    is worked out in place.
    """

    def __init__(
        self,
        z: Float[Tensor, "N m"],
        prototypes: Float[Tensor, "K m"],
        temperature: Float[Tensor, " rows"],
        mask: Bool[Tensor, " N"] | None,
        kept: Float[Tensor, "N K"] | None,
    ) -> None:
        bank = prototypes.to(arithmetic_dtype(z.dtype))
        self.z, self.mask, self.kept = z, mask, kept
        center = bank_center(bank).squeeze(0)
        # on a CPU two passes over the tokens can be saved; on a GPU looking would mean waiting
        self.center = None if bank.device.type == "cpu" and not bool(center.any()) else center
        self.points = bank if self.center is None else bank - self.center  # (K, m)
        self.squared_norm = self.points.square().sum(-1)  # (K,)
        self.doubled = (2 * self.points).mT.contiguous()  # (m, K): products run fastest row-major
        # 1 / T stays finite even for the smallest T, so that 0 / T is 0
        self.per_temperature = temperature.reciprocal().clamp_max(torch.finfo(bank.dtype).max)[:, None]
        self.minus_per_temperature = -self.per_temperature
        self._rows = block_rows(len(z), max(prototypes.shape), z.device)
        self._scratch: dict[str, Tensor] = {}

    def blocks(self) -> list[slice]:
        return row_blocks(len(self.z), self._rows)

    def part(self, values: Tensor, rows: slice) -> Tensor:
        """The block's rows of a tensor with a row for each token; without the cost of a view if that is all."""
        return values if self._rows == len(self.z) else values[rows]

    def scratch(self, name: str, rows: slice, width: int) -> Tensor:
        """A buffer (n, width) that every block reuses under this name."""
        if name not in self._scratch:
            self._scratch[name] = torch.empty(self._rows, width, dtype=self.points.dtype, device=self.z.device)
        count = rows.stop - rows.start
        return self._scratch[name] if count == self._rows else self._scratch[name][:count]

    def wide(self, name: str, rows: slice) -> Tensor:
        return self.scratch(name, rows, len(self.points))

    def narrow(self, name: str, rows: slice) -> Tensor:
        return self.scratch(name, rows, self.points.shape[1])

    def rows_of(self, values: Tensor, rows: slice) -> Tensor:
        """The block of a tensor that has one row for each token or one for all."""
        return values if len(values) == 1 else self.part(values, rows)

    def tokens(self, rows: slice) -> Tensor:
        """Centred tokens x, zero where masked: masked content goes no further than here."""
        z = self.part(self.z, rows)
        if self.center is not None:
            z = torch.sub(z, self.center, out=self.narrow("x", rows))
        elif z.dtype != self.points.dtype or self.mask is not None:
            z = self.narrow("x", rows).copy_(z)
        return z if self.mask is None else z.masked_fill_(~self.mask[rows, None], 0.0)

    def scores(self, x: Tensor, rows: slice) -> Tensor:
        """g = 2 x . p - |p|^2, largest for the nearest prototype."""
        return torch.mm(x, self.doubled, out=self.wide("scores", rows)).sub_(self.squared_norm)

    def assignments(self, scores: Tensor, best: Tensor, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Delta (in place of the scores), q and the partition sum Z."""
        excess = torch.sub(best, scores, out=scores)
        q = self.wide("q", rows) if self.kept is None else self.part(self.kept, rows)
        torch.mul(excess, self.rows_of(self.minus_per_temperature, rows), out=q).exp_()
        partition = q.sum(-1, keepdim=True)
        return excess, q.mul_(partition.reciprocal()), partition.squeeze(-1)

    def half_pair_distances(self) -> Tensor:
        """D / 2 with D_jk = |p_j - p_k|^2, so that V = q . (D / 2) q."""
        half_norm = self.squared_norm / 2
        half = torch.addmm(half_norm, self.points, self.doubled, alpha=-0.5).add_(half_norm[:, None])
        return half.clamp_min_(0.0).fill_diagonal_(0.0)


def _squared_length(vectors: Tensor, out: Tensor) -> None:
    torch.linalg.vector_norm(vectors, dim=-1, out=out)
    out.square_()


class _Sums(NamedTuple):
    """Per token of one head, what the blocks leave for the terms."""

    partition: Tensor  # Z
    excess: Tensor  # sum_k q_k Delta_k
    norm: Tensor  # sum_k q_k |p_k|^2
    mu_squared: Tensor  # |mu|^2


def _forward_head(assign: _Assigner, out: TokenTerms) -> None:
    """Sums over prototypes block by block, then the terms they make, for all tokens of one head."""
    sums = _Sums(*out.total.new_empty(len(_Sums._fields), len(out.total)))
    # V from pairs of prototypes is exact at any scale, and cheap while the bank is small
    pairs = assign.half_pair_distances() if 2 * len(assign.points) <= assign.points.shape[1] else None
    for rows in assign.blocks():
        block_sums = _Sums(*(assign.part(values, rows) for values in sums))
        _forward_block(assign, rows, pairs, block_sums, TokenTerms(*(assign.part(values, rows) for values in out)))
    if pairs is not None:
        torch.add(out.reconstruction, out.variance, out=out.total)
        torch.sub(out.total, sums.excess, out=out.quantization).clamp_min_(0.0)
    else:
        torch.add(out.quantization, sums.excess, out=out.total)
        # of the two other expressions of V, the one that subtracts the smaller numbers
        variance = torch.where(out.total < sums.norm, out.total - out.reconstruction, sums.norm - sums.mu_squared)
        torch.clamp_min(variance, 0.0, out=out.variance)
    torch.addcmul(sums.partition.log_(), sums.excess, assign.per_temperature.squeeze(-1), out=out.entropy)


def _forward_block(assign: _Assigner, rows: slice, pairs: Tensor | None, sums: _Sums, out: TokenTerms) -> None:
    x = assign.tokens(rows)
    scores = assign.scores(x, rows)
    best, indices = scores.max(-1, keepdim=True)
    indices = indices.squeeze(-1)
    out.indices.copy_(indices)
    excess, q, partition = assign.assignments(scores, best, rows)
    sums.partition.copy_(partition)
    torch.sum(excess.mul_(q), -1, out=sums.excess)

    same = out.centroid.dtype == x.dtype
    mu = torch.mm(q, assign.points, out=out.centroid if same else assign.narrow("mu", rows))
    difference = assign.narrow("difference", rows)
    if pairs is not None:
        torch.sum(torch.mm(q, pairs, out=excess).mul_(q), -1, out=out.variance)
    else:
        torch.mv(q, assign.squared_norm, out=sums.norm)
        _squared_length(mu, out=sums.mu_squared)
        torch.index_select(assign.points, 0, indices, out=difference)
        _squared_length(difference.sub_(x), out=out.quantization)
    _squared_length(torch.sub(x, mu, out=difference), out=out.reconstruction)
    if assign.center is not None:
        torch.add(mu, assign.center, out=out.centroid)
    elif not same:
        out.centroid.copy_(mu)


def _load_upstream(upstream: Upstream, mask: Tensor | None, rows: slice, head: int, dtype: torch.dtype) -> Upstream:
    """One block of the upstream gradients, (n, m or 1); what arrives at masked tokens is dropped."""

    def load(values: Tensor | None) -> Tensor | None:
        if values is None:
            return None
        block = values[rows, head].to(dtype)
        block = block if values.dim() == 3 else block[:, None]
        return block if mask is None else block.masked_fill(~mask[rows, None], 0.0)

    return Upstream(*map(load, upstream))


def _backward_block(assign: _Assigner, rows: slice, up: Upstream, gradient: Gradient, target: InputGradients) -> None:
    """One block of the formulas at the top of the file: writes x, adds to the bank and to T."""
    x = assign.tokens(rows)
    q, excess, nearest = _recall(assign, x, rows, up)
    mu = residual = None
    if up.reconstruction is not None or up.variance is not None:
        mu = torch.mm(q, assign.points, out=assign.narrow("mu", rows))
        residual = torch.sub(x, mu, out=assign.narrow("difference", rows))

    flow = _flow(assign, rows, up, gradient, x, residual, q, excess, target.temperature)
    toward_nearest = None
    if up.quantization is not None and nearest is not None:
        toward_nearest = (x - assign.points.index_select(0, nearest)) * (2 * up.quantization)

    if target.prototypes is not None:
        _add_to_bank(target.prototypes, assign, up, x, mu, residual, q, flow)
        if toward_nearest is not None and nearest is not None:
            target.prototypes.index_add_(0, nearest, toward_nearest, alpha=-1)

    if target.z is not None:
        same = target.z.dtype == x.dtype
        d_x = target.z if same else assign.narrow("mu", rows)  # mu is no longer needed
        d_x = d_x.zero_() if flow is None else torch.mm(flow, assign.points, out=d_x)
        if up.total is not None:
            d_x.addcmul_(x, up.total, value=2)
        if up.reconstruction is not None and residual is not None:
            d_x.addcmul_(residual, up.reconstruction, value=2)
        if toward_nearest is not None:
            d_x.add_(toward_nearest)
        if not same:
            target.z.copy_(d_x)


def _recall(assign: _Assigner, x: Tensor, rows: slice, up: Upstream) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """q of this block: kept, or computed anew with Delta and the nearest prototypes."""
    if assign.kept is not None:
        return assign.part(assign.kept, rows), None, None
    scores = assign.scores(x, rows)
    nearest = None if up.quantization is None else scores.argmax(-1)
    excess, q, _ = assign.assignments(scores, scores.amax(-1, keepdim=True), rows)
    return q, excess, nearest


def _flow(
    assign: _Assigner,
    rows: slice,
    up: Upstream,
    gradient: Gradient,
    x: Tensor,
    residual: Tensor | None,
    q: Tensor,
    excess: Tensor | None,
    grad_temperature: Tensor | None,
) -> Tensor | None:
    """W, how strongly tokens and prototypes move each other; adds what reaches T."""
    per_t = assign.rows_of(assign.per_temperature, rows)
    slope = _sum(up.total, up.variance, None if up.entropy is None else up.entropy * per_t)
    pull = _sum(up.centroid, _product(2.0, up.variance, residual), _product(-2.0, up.reconstruction, residual))
    if slope is not None:
        pull = x * (-2 * slope) if pull is None else torch.addcmul(pull, x, slope, value=-2)  # A
    flow = assign.wide("flow", rows)
    if gradient == "stop" or pull is None:
        return None if up.total is None else torch.mul(q, -2 * up.total, out=flow)

    torch.mm(pull, assign.doubled, out=flow)  # 2 a
    if slope is not None:
        flow.addcmul_(assign.squared_norm, slope, value=2)
    mean = flow.mul_(per_t).mul_(q).sum(-1, keepdim=True)
    if grad_temperature is not None and excess is not None:
        d_t = (flow * excess).sum(-1) - mean.squeeze(-1) * (q * excess).sum(-1)
        d_t *= per_t.squeeze(-1) / 2
        grad_temperature += d_t.sum() if len(grad_temperature) == 1 else d_t
    return flow.addcmul_(q, mean if up.total is None else mean + 2 * up.total, value=-1)


def _add_to_bank(
    grad_bank: Tensor,
    assign: _Assigner,
    up: Upstream,
    x: Tensor,
    mu: Tensor | None,
    residual: Tensor | None,
    q: Tensor,
    flow: Tensor | None,
) -> None:
    if flow is not None:
        grad_bank.addmm_(flow.mT, x).addcmul_(assign.points, flow.sum(0)[:, None], value=-1)
    push = _sum(up.centroid, _product(-2.0, up.reconstruction, residual), _product(-2.0, up.variance, mu))
    if push is not None:
        grad_bank.addmm_(q.mT, push)
    if up.variance is not None:
        grad_bank.addcmul_(assign.points, q.mT @ up.variance, value=2)


def _sum(*terms: Tensor | None) -> Tensor | None:
    """The sum of the terms that are there, None if none is."""
    present = [term for term in terms if term is not None]
    return sum(present[1:], present[0]) if present else None


def _product(factor: float, scale: Tensor | None, vectors: Tensor | None) -> Tensor | None:
    """``factor * scale * vectors`` if both are there."""
    return None if scale is None or vectors is None else (factor * scale) * vectors
