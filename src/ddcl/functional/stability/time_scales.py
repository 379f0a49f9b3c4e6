"""What the paper asks of the ratio of the two learning rates: Proposition 3 and the time-scale theorem's mu_P / L."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ddcl.functional.stability.hessian import CoupledHessian, Ends, Loss, Method
from ddcl.functional.stability.lanczos import conjugate_gradients


@dataclass(frozen=True)
class RatioBound:
    """The paper's Proposition 3 at a point."""

    bound: float
    """The right-hand side of its condition; 0 where a block is not positive definite."""
    premise: bool
    """Whether H is positive definite, without which the bound promises nothing."""
    fast_smallest: float
    fast_largest: float
    slow_smallest: float
    coupling: float
    """Norm of the block between encoder and bank."""
    smallest: float
    """Smallest eigenvalue of H."""
    reason: str
    """In words, why the bound does or does not apply."""


def ratio_bound(
    loss: Loss,
    slow: Sequence[Tensor],
    fast: Sequence[Tensor],
    *,
    method: Method = "auto",
    steps: int = 200,
    generator: torch.Generator | None = None,
) -> RatioBound:
    r"""The paper's sufficient condition on the ratio of the rates, from the blocks of the Hessian.

    .. math:: \frac{\eta_\theta}{\eta_P} < \frac{\lambda_{\min}(H_{PP})}
              {\lVert H_{\theta P}\rVert^2 / \lambda_{\min}(H_{\theta\theta}) + \lambda_{\max}(H_{PP})}

    It is never above 1 / cond(H_PP), and needless: where its premise H > 0 holds, every ratio is stable (Sylvester);
    where it does not, no ratio is, and the number may be positive all the same. Arguments as in
    :func:`coupled_spectrum`.

    Example:
        >>> a, b = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
        >>> round(ratio_bound(lambda: (a**2 + a * b + b**2).sum(), [a], [b]).bound, 4)  # 2 / (1 / 2 + 2)
        0.8
        >>> ratio_bound(lambda: (a**2 + 3 * a * b + b**2).sum(), [a], [b]).premise
        False
    """
    hessian = CoupledHessian(loss, slow, fast)
    hessian.check_coupled()
    ends = Ends(hessian, method, steps, generator)
    s, f = hessian.slow, hessian.fast
    whole = ends(hessian.product, lambda H: H, hessian.size)
    fast_ends = ends(hessian.block(f, f), lambda H: H[f, f], hessian.num_fast)
    slow_ends = ends(hessian.block(s, s), lambda H: H[s, s], hessian.num_slow)
    # the norm of a block B is the root of the largest eigenvalue of B' B, taken on the shorter side
    near, far = (s, f) if hessian.num_slow <= hessian.num_fast else (f, s)
    out, back = hessian.block(far, near), hessian.block(near, far)
    gram = ends(lambda x: back(out(x)), lambda H: H[near, far] @ H[far, near], near.stop - near.start)
    coupling = max(gram.largest, 0.0) ** 0.5
    premise = ends.positive(whole)
    bound = 0.0
    if not ends.positive(fast_ends):
        reason = f"H_PP is not positive definite (smallest eigenvalue {fast_ends.smallest:.3g}): the bank is not stable"
    elif not ends.positive(slow_ends):
        reason = f"H_thetatheta is not positive definite (smallest eigenvalue {slow_ends.smallest:.3g})"
    else:
        bound = fast_ends.smallest / (coupling**2 / slow_ends.smallest + fast_ends.largest)
        reason = "H > 0: every ratio is stable, those under the bound included"
        if not premise:
            reason = f"H is not positive definite (smallest eigenvalue {whole.smallest:.3g}): no ratio is stable"
    return RatioBound(
        bound, premise, fast_ends.smallest, fast_ends.largest, slow_ends.smallest, coupling, whole.smallest, reason
    )


@dataclass(frozen=True)
class TimeScales:
    """How fast the bank follows the encoder (the paper's Theorem 2 asks for a ratio of rates below ``ratio``)."""

    ratio: float
    """mu_P / L; 0 where the bank does not converge, infinite where the effective loss is flat."""
    fast_rate: float
    """mu_P, the smallest eigenvalue of H_PP: the slowest rate of the bank, per unit of its learning rate."""
    slow_curvature: float
    """L, the norm of the effective loss's Hessian; infinite where there is no such loss."""
    slow_smallest: float
    """Smallest eigenvalue of that Hessian: with ``fast_rate > 0``, H > 0 exactly if this is positive."""
    remaining: float
    """How much the loss would still fall if the bank came to rest, to second order. L is exact where this is 0."""
    residual: float
    """Worst relative residual of the linear systems solved."""
    reason: str


def time_scales(
    loss: Loss,
    slow: Sequence[Tensor],
    fast: Sequence[Tensor],
    *,
    method: Method = "auto",
    steps: int = 50,
    generator: torch.Generator | None = None,
) -> TimeScales:
    r"""The ratio mu_P / L of the paper's time-scale theorem, at the present point of a live model.

    .. math:: \mu_P = \lambda_{\min}(H_{PP}), \qquad
        L = \lVert\nabla^2 \tilde L\rVert = \lVert H_{\theta\theta} - H_{\theta P} H_{PP}^{-1} H_{P\theta} \rVert

    with :math:`\tilde L(\theta) = L(\theta, P^*(\theta))`. The paper's mu_P is a rate in time and contains eta_P; the
    condition is one between learning rates only if both sides are taken per unit of them, as here. Each product with
    the Schur complement solves a system in H_PP by conjugate gradients. Arguments as in :func:`coupled_spectrum`.

    Example:
        >>> a, b = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
        >>> found = time_scales(lambda: (a**2 + a * b + b**2).sum(), [a], [b])  # 2 - 1 / 2 = 1.5
        >>> round(found.fast_rate, 4), round(found.slow_curvature, 4), round(found.ratio, 4)
        (2.0, 1.5, 1.3333)
    """
    hessian = CoupledHessian(loss, slow, fast)
    hessian.check_coupled()
    ends = Ends(hessian, method, steps, generator)
    s, f = hessian.slow, hessian.fast
    of_bank = ends(hessian.block(f, f), lambda H: H[f, f], hessian.num_fast)
    if not ends.positive(of_bank):
        reason = (
            f"H_PP is not positive definite (smallest eigenvalue {of_bank.smallest:.3g}): "
            "the bank does not converge at this point, so no ratio of rates is slow enough"
        )
        return TimeScales(0.0, of_bank.smallest, float("inf"), float("-inf"), float("inf"), 0.0, reason)
    schur = SchurComplement(hessian)
    effective = ends(
        schur.product, lambda H: H[s, s] - H[s, f] @ torch.linalg.solve(H[f, f], H[f, s]), hessian.num_slow
    )
    norm = max(abs(effective.smallest), abs(effective.largest))
    ratio = of_bank.smallest / norm if norm > 0 else float("inf")
    remaining = schur.remaining()
    reason = "the bank converges; the effective loss is " + ("convex here" if effective.smallest >= 0 else "not convex")
    return TimeScales(ratio, of_bank.smallest, norm, effective.smallest, remaining, schur.residual, reason)


class SchurComplement:
    """Products with H_tt - H_tP H_PP^-1 H_Pt, and the worst residual of the systems solved on the way."""

    def __init__(self, hessian: CoupledHessian) -> None:
        s, f = hessian.slow, hessian.fast
        self.fast, self.hessian = hessian.block(f, f), hessian
        self.own, self.down, self.up = hessian.block(s, s), hessian.block(f, s), hessian.block(s, f)
        self.tolerance = torch.finfo(hessian.dtype).eps ** 0.7
        self.residual = 0.0

    def solve(self, b: Tensor) -> Tensor:
        """H_PP^-1 b."""
        found = conjugate_gradients(self.fast, b, tolerance=self.tolerance)
        self.residual = max(self.residual, found.residual)
        return found.x

    def product(self, x: Tensor) -> Tensor:
        """The Schur complement times x."""
        return self.own(x) - self.up(self.solve(self.down(x)))

    def remaining(self) -> float:
        """Half of g' H_PP^-1 g with the bank's gradient g."""
        g = self.hessian.gradient[self.hessian.fast]
        return 0.5 * float(g @ self.solve(g))
