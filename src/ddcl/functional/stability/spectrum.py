r"""Whether a coupled system of encoder and bank is at rest, stably, at its two learning rates (the paper's section 4).

With the Hessian H of the loss in (theta, P) and :math:`D = \operatorname{diag}(\eta_\theta I, \eta_P I)`, the flow
near a fixed point is :math:`\dot x = -J^* x` with :math:`J^* = D H`. J* is similar to the symmetric
:math:`D^{1/2} H D^{1/2}`: its eigenvalues are real, and by Sylvester's law as many of them are negative as H has,
whatever the rates. So the ratio of the rates never decides whether a fixed point attracts the flow; it decides how
fast, and how long a discrete step may be.

In mode ``stop`` the flow is that of the free energy: hand over :func:`descended_loss`, not the loss of a readout in
that mode, whose second derivative holds q constant and is positive everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ddcl.functional.checks import check_gradient
from ddcl.functional.readout import readout
from ddcl.functional.stability.hessian import CoupledHessian, Ends, Loss, Method
from ddcl.ops import Gradient
from ddcl.shapes import Bool, Float, Int


def descended_loss(
    z: Float[Tensor, "*batch m"],
    prototypes: Float[Tensor, "K m"] | Float[Tensor, "H K m"],
    temperature: float | Tensor,
    *,
    gradient: Gradient = "full",
    mask: Bool[Tensor, "*tokens"] | Int[Tensor, "*tokens"] | None = None,
) -> Float[Tensor, ""]:
    """What a bank descends, as a function that can be differentiated twice: L in mode full, F = L - T H in mode stop.

    Arguments as in :func:`readout`, through whose reference backend it goes (N x K x m memory).

    Example:
        >>> z, bank = torch.randn(5, 2), torch.randn(3, 2)
        >>> bool(descended_loss(z, bank, 1.0) == readout(z, bank, 1.0, backend="reference").loss.total)
        True
    """
    check_gradient(gradient)
    loss = readout(z, prototypes, temperature, mask=mask, backend="reference").loss
    return loss.total if gradient == "full" else loss.free_energy


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The ends of the spectrum of J*, and what they mean for training."""

    smallest: float
    largest: float
    residual: float
    """An eigenvalue lies within this of each end; of rounding size where the Hessian was dense."""
    rounding: float
    """Eigenvalues closer to zero than this have no sign."""
    direction: Tensor
    """(n,) the unit vector of ``smallest`` in parameter space, encoder first: where the system leaves, if it leaves."""
    bank_share: float
    """Share of ``direction`` (of its squared length) in the prototypes: 1 if it is the bank that gives way."""
    method: str

    @property
    def stable(self) -> bool:
        """Every eigenvalue found is positive beyond doubt: the flow returns after any small push."""
        return self.smallest - self.residual > self.rounding

    @property
    def unstable(self) -> bool:
        """One is negative beyond doubt. If neither this nor ``stable``, there is a direction without curvature."""
        return self.smallest < -self.rounding

    @property
    def step_limit(self) -> float:
        """Both rates times less than this keep gradient descent stable: it needs ``largest < 2``."""
        return 2 / self.largest if self.largest > 0 else float("inf")


def coupled_jacobian(
    loss: Loss, slow: Sequence[Tensor], fast: Sequence[Tensor], *, lr: float, epsilon: float = 0.1
) -> Float[Tensor, "n n"]:
    r"""J* as a matrix, for systems small enough to hold it; see :func:`coupled_spectrum` for the arguments.

    .. math:: J^* = \begin{pmatrix} \eta_\theta H_{\theta\theta} & \eta_\theta H_{\theta P} \\
                                    \eta_P H_{P\theta} & \eta_P H_{PP} \end{pmatrix}

    Example:
        >>> a, b = torch.tensor(1.0, requires_grad=True), torch.tensor(1.0, requires_grad=True)
        >>> coupled_jacobian(lambda: a**2 + a * b + 3 * b**2, [a], [b], lr=1.0, epsilon=0.5)
        tensor([[1.0000, 0.5000],
                [1.0000, 6.0000]])
    """
    hessian = CoupledHessian(loss, slow, fast)
    return hessian.rates(lr, epsilon)[:, None] * hessian.dense()


def coupled_spectrum(
    loss: Loss,
    slow: Sequence[Tensor],
    fast: Sequence[Tensor],
    *,
    lr: float,
    epsilon: float = 0.1,
    method: Method = "auto",
    steps: int = 200,
    generator: torch.Generator | None = None,
) -> Spectrum:
    r"""The smallest and largest eigenvalue of J* = D H for an encoder at ``epsilon * lr`` and a bank at ``lr``.

    Computed from the symmetric :math:`D^{1/2} H D^{1/2}`, which has the same eigenvalues. The sign of ``smallest`` is
    that of H's, whatever ``lr`` and ``epsilon``; ``largest < 2`` is what gradient descent with these rates needs.

    Args:
        loss: computes the loss that is descended, the same at every call (dropout off); it must be differentiable
            twice, so banks go through ``backend="reference"``.
        slow: the encoder's parameters; may be empty.
        fast: the prototypes.
        lr: the rate of the prototypes, as in ``param_groups``.
        epsilon: the encoder's rate in units of ``lr``.
        method: ``"dense"`` (n products with H, an n x n matrix), ``"lanczos"`` (at most ``steps`` products), or
            ``"auto"``, which is dense up to 400 parameters.
        steps: the most products ``"lanczos"`` may take.
        generator: where Lanczos' random start comes from.

    Example:
        >>> a, b = torch.ones(2, requires_grad=True), torch.ones(1, requires_grad=True)
        >>> found = coupled_spectrum(lambda: (a**2).sum() - 3 * b.sum() ** 2, [a], [b], lr=0.1, epsilon=0.5)
        >>> round(found.smallest, 4), round(found.largest, 4), found.unstable, found.bank_share
        (-0.6, 0.1, True, 1.0)
    """
    hessian = CoupledHessian(loss, slow, fast)
    root = hessian.rates(lr, epsilon).sqrt()
    solver = Ends(hessian, method, steps, generator)
    found = solver(lambda x: root * hessian.product(root * x), lambda H: root[:, None] * H * root, hessian.size)
    direction = root * found.smallest_vector  # of D H: D^(1/2) times that of D^(1/2) H D^(1/2)
    direction = direction / direction.norm()
    share = float(direction[hessian.num_slow :].square().sum())
    return Spectrum(
        found.smallest, found.largest, found.residual, solver.rounding(found), direction, share, solver.method
    )
