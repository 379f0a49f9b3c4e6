"""The gradients of every output, written out; the formulas stand in the package's docstring."""

from __future__ import annotations

import torch
from torch import Tensor

from ddcl.ops.eager.assigner import Assigner
from ddcl.ops.eager.products import sum_of_rows
from ddcl.ops.precision import without_autocast
from ddcl.ops.types import Gradient, InputGradients, Upstream, arithmetic_dtype
from ddcl.shapes import Bool, Float


@without_autocast
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
        torch.zeros(prototypes.shape, dtype=dtype, device=z.device) if needed[1] else None,
        torch.zeros(temperature.shape, dtype=dtype, device=z.device) if needed[2] else None,
    )
    if needed[2] or upstream.quantization is not None:
        kept = None  # these need Delta and the nearest prototype too, which were not kept
    for head, points in enumerate(prototypes):
        of_head = None if kept is None else kept[:, head]
        assign = Assigner(z[:, head], points, temperature[:, head], mask, of_head)
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


def _load_upstream(upstream: Upstream, mask: Tensor | None, rows: slice, head: int, dtype: torch.dtype) -> Upstream:
    """One block of the upstream gradients, (n, m or 1), or (1, 1); what arrives at masked tokens is dropped."""

    def load(values: Tensor | None) -> Tensor | None:
        if values is None:
            return None
        # a mean over tokens hands down one number, expanded
        everywhere = mask is None and values.dim() == 2 and values.stride(0) == 0
        block = values[:1, head] if everywhere else values[rows, head]
        block = (block if values.dim() == 3 else block[:, None]).to(dtype)
        return block if mask is None else block.masked_fill(~mask[rows, None], 0.0)

    return Upstream(*map(load, upstream))


def _backward_block(assign: Assigner, rows: slice, up: Upstream, gradient: Gradient, target: InputGradients) -> None:
    """One block of the formulas of the package: writes x, adds to the bank and to T."""
    x = assign.tokens(rows)
    q, deficit, nearest = _recall(assign, x, rows, up)
    mu = residual = None
    if up.reconstruction is not None or up.variance is not None:
        mu = torch.mm(q, assign.mixing, out=assign.narrow("mu", rows))
        residual = torch.sub(x, mu, out=assign.narrow("difference", rows))

    flow = _flow(assign, rows, up, gradient, x, residual, q, deficit, target.temperature)
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
        d_x = d_x.zero_() if flow is None else torch.mm(flow, assign.mixing, out=d_x)
        if up.total is not None:
            d_x.addcmul_(x, up.total, value=2)
        if up.reconstruction is not None and residual is not None:
            d_x.addcmul_(residual, up.reconstruction, value=2)
        if toward_nearest is not None:
            d_x.add_(toward_nearest)
        if not same:
            target.z.copy_(d_x)


def _recall(assign: Assigner, x: Tensor, rows: slice, up: Upstream) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """q of this block: kept, or computed anew with -scale Delta and the nearest prototypes."""
    kept = assign.kept_part(rows)
    if kept is not None:
        return kept, None, None
    scores = assign.scores(x, rows)
    nearest = None if up.quantization is None else scores.argmax(-1)
    deficit = scores.sub_(scores.amax(-1, keepdim=True))
    return assign.assignments(deficit, rows), deficit, nearest


def _flow(
    assign: Assigner,
    rows: slice,
    up: Upstream,
    gradient: Gradient,
    x: Tensor,
    residual: Tensor | None,
    q: Tensor,
    deficit: Tensor | None,
    grad_temperature: Tensor | None,
) -> Tensor | None:
    """W, how strongly tokens and prototypes move each other; adds what reaches T."""
    h_per_t = None if up.entropy is None else up.entropy * assign.rows_of(assign.per_temperature, rows)
    slope = _sum(up.total, up.variance, h_per_t)
    pull = _sum(up.centroid, _product(2.0, up.variance, residual), _product(-2.0, up.reconstruction, residual))
    if slope is not None:  # A
        room = assign.narrow("pull", rows)
        pull = torch.mul(x, -2 * slope, out=room) if pull is None else torch.addcmul(pull, x, slope, value=-2, out=room)
    flow = assign.wide("flow", rows)
    if gradient == "stop" or pull is None:
        return None if up.total is None else torch.mul(q, -2 * up.total, out=flow)

    # 2 a, or 2 a / T
    if slope is not None and len(slope) == 1:
        torch.addmm(assign.squared_norm * (2 * assign.slope_scale * slope), pull, assign.pulling, out=flow)
    else:
        torch.mm(pull, assign.pulling, out=flow)
        if slope is not None:
            flow.addcmul_(assign.squared_norm, slope, value=2 * assign.slope_scale)
    # 2 u, or 2 u / T, in place: each row is summed before it is written
    torch._softmax_backward_data(flow, q, -1, q.dtype, grad_input=flow)
    if not assign.folded:  # not before: at the smallest T a / T overflows where u is 0
        flow.mul_(assign.rows_of(assign.per_temperature, rows))
    if grad_temperature is not None and deficit is not None:
        per_t = assign.rows_of(assign.per_temperature, rows).squeeze(-1)
        d_t = (flow * deficit).sum(-1).mul_(per_t).div_(-2 * assign.scale)
        grad_temperature += d_t.sum() if grad_temperature.shape[0] == 1 else d_t
    return flow if up.total is None else flow.addcmul_(q, up.total, value=-2)


def _add_to_bank(
    grad_bank: Tensor,
    assign: Assigner,
    up: Upstream,
    x: Tensor,
    mu: Tensor | None,
    residual: Tensor | None,
    q: Tensor,
    flow: Tensor | None,
) -> None:
    if flow is not None:
        grad_bank.addmm_(flow.mT, x).addcmul_(assign.points, sum_of_rows(flow)[:, None], value=-1)
    push = _sum(up.centroid, _product(-2.0, up.reconstruction, residual), _product(-2.0, up.variance, mu))
    if push is not None:
        grad_bank.addmm_(q.mT, push)
    if up.variance is not None:
        grad_bank.addcmul_(assign.points, q.mT @ up.variance.expand(len(q), 1), value=2)


def _sum(*terms: Tensor | None) -> Tensor | None:
    """The sum of the terms that are there, None if none is."""
    present = [term for term in terms if term is not None]
    return sum(present[1:], present[0]) if present else None


def _product(factor: float, scale: Tensor | None, vectors: Tensor | None) -> Tensor | None:
    """``factor * scale * vectors`` if both are there."""
    return None if scale is None or vectors is None else (factor * scale) * vectors
