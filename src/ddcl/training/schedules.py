"""How the temperature falls during training."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch import nn

from ddcl.nn import PrototypeBank, banks_of

if TYPE_CHECKING:
    from typing_extensions import Self


class ExponentialSchedule:
    r"""The paper's schedule, :math:`T(t) = \max(T_{\min},\, T_0\, e^{-t/\tau})`, in absolute units.

    A temperature means nothing without the scale of the data: on unit-norm embeddings the paper's own numbers
    (2.0 to 0.3) lie above the critical temperature, where the merged bank is stable. Compare with
    :func:`ddcl.critical_temperature` before using it.

    Args:
        start: :math:`T_0`.
        end: :math:`T_{\min}`.
        tau: the time constant, in calls of :meth:`step` (the paper: epochs).

    Example:
        >>> layer = DDCLAttention(dim=8, num_prototypes=4)
        >>> schedule = ExponentialSchedule(start=2.0, end=0.3, tau=20).attach(layer)
        >>> for epoch in range(20):
        ...     temperature = schedule.step()
        >>> round(layer.bank.temperature.item(), 4)
        0.7358
    """

    def __init__(self, start: float = 2.0, end: float = 0.3, tau: float = 20.0) -> None:
        for name, value in (("start", start), ("end", end), ("tau", tau)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name}: got {value}, expected a positive finite number")
        if end > start:
            raise ValueError(f"end: got {end}, expected at most start = {start}: temperatures fall")
        self.start, self.end, self.tau = start, end, tau
        self.time = 0
        self._banks: list[PrototypeBank] = []

    def at(self, time: float) -> float:
        """T at a time."""
        return max(self.end, self.start * math.exp(-time / self.tau))

    def attach(self, model: nn.Module) -> Self:
        """Take over the temperature of every bank in the model, beginning with T at the present time."""
        self._banks = list(banks_of(model).values())
        if not self._banks:
            raise ValueError("model: it holds no PrototypeBank, so there is no temperature to schedule")
        self._apply()
        return self

    def step(self) -> float:
        """Move on by one and set the temperature; returns it."""
        self.time += 1
        return self._apply()

    def state_dict(self) -> dict[str, Any]:
        """The present time; the settings belong to the constructor."""
        return {"time": self.time}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Return to a saved time and set the temperature of the attached banks."""
        self.time = int(state["time"])
        self._apply()

    def _apply(self) -> float:
        temperature = self.at(self.time)
        for bank in self._banks:
            bank.set_temperature(temperature)
        return temperature

    def __repr__(self) -> str:
        return f"ExponentialSchedule(start={self.start}, end={self.end}, tau={self.tau}, time={self.time})"
