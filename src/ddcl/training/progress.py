"""Where a run stands."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Progress:
    """Where a run stands, for a progress bar or a log."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    """Mean of the loss over the epoch."""
    seconds: float
    """Since the run began, or was resumed."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Exact figures of the banks at the end of the epoch, as ``EpochReport.as_dict`` gives them."""
    troubles: tuple[str, ...] = ()
    num_prototypes: dict[str, int] = field(default_factory=dict)
    """K of every bank, by its name, at the end of the epoch."""
