r"""The function the paper says training descends, and a record of whether it does (theory: section 6)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from ddcl.functional.checks import check_count, check_gradient, check_head_temperature
from ddcl.functional.readout import assignments, readout
from ddcl.functional.separation import barrier
from ddcl.ops import Backend, Gradient, arithmetic_dtype
from ddcl.shapes import Bool, Float, Int


def lyapunov(
    z: Float[Tensor, "*batch m"],
    prototypes: Float[Tensor, "K m"] | Float[Tensor, "H K m"],
    temperature: float | Tensor,
    *,
    strength: float = 0.0,
    gradient: Gradient = "full",
    mask: Bool[Tensor, "*tokens"] | Int[Tensor, "*tokens"] | None = None,
    backend: Backend = "auto",
) -> Float[Tensor, ""]:
    r"""The paper's free energy functional, :math:`W = L_q + \frac{\lambda}{2} \sum_{j \ne k} |p_j - p_k|^{-2}`.

    It falls along its own gradient flow, at fixed T and while T falls, and is finite only where all prototypes are
    distinct. L_q is here, as everywhere in the library, the mean over tokens (the paper sums); divide the paper's
    strength by the number of tokens to have the paper's balance.

    Args:
        z, prototypes, temperature, gradient, mask, backend: as in :func:`readout`.
        strength: the barrier's :math:`\lambda \ge 0`.

    Example:
        >>> bank = torch.tensor([[0.0], [2.0]])
        >>> lyapunov(torch.tensor([[1.0]]), bank, 1.0, strength=4.0)  # 1 + 4 / 4
        tensor(2.)
    """
    loss = readout(z, prototypes, temperature, gradient=gradient, mask=mask, backend=backend).loss.total
    return loss + barrier(prototypes, strength) if strength else loss


@torch.no_grad()
def temperature_slope(
    z: Float[Tensor, "*batch m"],
    prototypes: Float[Tensor, "K m"] | Float[Tensor, "H K m"],
    temperature: float | Tensor,
    *,
    mask: Bool[Tensor, "*tokens"] | Int[Tensor, "*tokens"] | None = None,
) -> Float[Tensor, ""]:
    r"""How the loss changes with T, the bank standing still: never negative, so cooling never raises it.

    .. math:: \frac{\partial L}{\partial T} = \frac{1}{T^2} \operatorname{mean}_n \operatorname{Var}_{q_n}(d_n) \ge 0,
              \qquad \frac{\partial F}{\partial T} = -\operatorname{mean}_n H(q_n) \le 0

    So cooling lowers L and raises F. Arguments as in :func:`readout`, with one temperature for all tokens (and one
    head, or a scalar for all).

    Example:
        >>> temperature_slope(torch.tensor([[0.0]]), torch.tensor([[0.0], [1.0]]), 1.0)  # q (1 - q), q = 1 / (1 + e)
        tensor(0.1966)
    """
    check_head_temperature(temperature, None)
    q = assignments(z, prototypes, temperature, mask=mask).double()
    bank = prototypes.double()
    center = bank.mean(-2, keepdim=True)  # differences keep the digits far from the origin
    bank, x = bank - center, z.double() - center.squeeze(-2)
    if mask is not None:
        x = torch.where(mask.to(torch.bool)[(...,) + (None,) * (prototypes.dim() - 1)], x, 0.0)
    # |z|^2 shifts all distances of a token alike and leaves their variance
    shifted = bank.square().sum(-1) - 2 * torch.einsum("...m,...km->...k", x, bank)
    mean = (q * shifted).sum(-1, keepdim=True)
    variance = (q * (shifted - mean).square()).sum(-1)
    heads = variance.shape[-1] if prototypes.dim() == 3 else 1
    count = variance.numel() if mask is None else max(int(mask.sum()), 1) * heads
    return (variance.sum() / count / float(temperature) ** 2).to(arithmetic_dtype(z.dtype))


def barrier_strength(num_prototypes: int, lr: float) -> float:
    r"""The smallest barrier strength the paper asks for, :math:`\lambda > 2 \eta_P \binom{K}{2} = \eta_P K (K - 1)`.

    The paper wants it for compact sublevel sets, which no strength gives: a single prototype may leave for any distance
    at a bounded W (``ddcl claims``). Any positive strength forbids coincidence in continuous time. The condition has no
    scale: with data times s the same balance needs :math:`s^4 \lambda`, while a learning rate stays as it is. And a
    discrete step bounds the strength from above: two prototypes at distance r feel a curvature of
    :math:`12 \lambda / r^4`.

    Args:
        num_prototypes: K.
        lr: the rate of the prototypes, eta_P.

    Example:
        >>> barrier_strength(4, lr=0.5)
        6.0
    """
    check_count("num_prototypes", num_prototypes)
    if not 0 < lr < float("inf"):
        raise ValueError(f"lr: got {lr}, expected a positive finite number")
    return lr * num_prototypes * (num_prototypes - 1)


class DescentStep(NamedTuple):
    """One step of training: the values after it, and what changed them."""

    temperature: float
    lyapunov: float
    """W = L + barrier after the step."""
    free_energy: float
    """F + barrier after the step, with F = L - T H: what mode stop descends."""
    by_parameters: float
    """Change of W at the temperature before: what encoder and bank did."""
    by_temperature: float
    """Change of W as T then moved, parameters held; never positive when T fell."""
    free_energy_by_parameters: float
    free_energy_by_temperature: float
    """Never negative when T fell: cooling takes entropy away."""
    slope: float
    """dW/dT after the step; ``by_temperature`` is its integral."""


@dataclass
class DescentTrace:
    r"""Records W and F along training and says where they rose, and whether the parameters or T did it.

    .. math:: W' - W = \underbrace{W(\theta', P', T) - W(\theta, P, T)}_{\text{by parameters}}
              + \underbrace{W(\theta', P', T') - W(\theta', P', T)}_{\text{by temperature}}

    Record once before training and after every step, always with the same tokens (encoded anew if the encoder
    learns): another batch has another W. In mode stop W need not fall, F does; with a barrier it is added to both.

    Args:
        strength: of the barrier the training uses.

    Example:
        >>> z, bank = torch.tensor([[0.0], [1.0], [9.0], [10.0]]), torch.tensor([[2.0], [8.0]])
        >>> trace = DescentTrace()
        >>> for temperature in (4.0, 2.0, 1.0):
        ...     _ = trace.record(z, bank, temperature)
        ...     bank = soft_kmeans_step(z, bank, temperature)
        >>> trace.rises(), [step.by_temperature <= 0 for step in trace.steps]
        ([], [True, True, True])
    """

    strength: float = 0.0
    steps: list[DescentStep] = field(default_factory=list)

    @torch.no_grad()
    def record(
        self,
        z: Float[Tensor, "*batch m"],
        prototypes: Float[Tensor, "K m"] | Float[Tensor, "H K m"],
        temperature: float | Tensor,
        *,
        mask: Bool[Tensor, "*tokens"] | Int[Tensor, "*tokens"] | None = None,
    ) -> DescentStep:
        """Note the state as it is now; arguments as in :func:`readout`, with one temperature for all tokens."""
        check_head_temperature(temperature, None)
        now = float(temperature)
        W, F = self._values(z, prototypes, now, mask)
        slope = float(temperature_slope(z, prototypes, now, mask=mask))
        if not self.steps:
            step = DescentStep(now, W, F, 0.0, 0.0, 0.0, 0.0, slope)
        else:
            before = self.steps[-1]
            moved_W, moved_F = (
                (W, F) if before.temperature == now else self._values(z, prototypes, before.temperature, mask)
            )
            step = DescentStep(
                temperature=now,
                lyapunov=W,
                free_energy=F,
                by_parameters=moved_W - before.lyapunov,
                by_temperature=W - moved_W,
                free_energy_by_parameters=moved_F - before.free_energy,
                free_energy_by_temperature=F - moved_F,
                slope=slope,
            )
        self.steps.append(step)
        return step

    def rises(self, *, gradient: Gradient = "full", tolerance: float = 1e-6) -> list[int]:
        """The steps at which the parameters raised what they should descend: W in mode full, F in mode stop.

        Args:
            gradient: the mode the bank is trained in.
            tolerance: a rise up to this share of the value counts as rounding; losses in float32 have 7 digits.
        """
        check_gradient(gradient)
        full = gradient == "full"
        return [
            place
            for place, step in enumerate(self.steps)
            if (step.by_parameters if full else step.free_energy_by_parameters) > tolerance * abs(step.lyapunov)
        ]

    def _values(self, z: Tensor, prototypes: Tensor, temperature: float, mask: Tensor | None) -> tuple[float, float]:
        loss = readout(z, prototypes, temperature, mask=mask).loss
        apart = float(barrier(prototypes, self.strength)) if self.strength else 0.0
        return float(loss.total) + apart, float(loss.free_energy) + apart
