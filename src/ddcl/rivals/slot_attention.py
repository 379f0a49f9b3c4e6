"""Slot attention of the package slot-attention, on one set of tokens."""

from __future__ import annotations

from torch import Tensor, nn


class SlotReader(nn.Module):
    """K slots that compete for the tokens of one set, in one iteration; the package's defaults otherwise."""

    def __init__(self, num_slots: int, dim: int) -> None:
        super().__init__()
        try:
            from slot_attention import SlotAttention
        except ImportError as error:
            raise ImportError("slot attention needs the package slot-attention: pip install 'ddcl[rivals]'") from error
        self.attention = SlotAttention(num_slots=num_slots, dim=dim, iters=1)

    def forward(self, z: Tensor) -> Tensor:
        """Slots (K, m) of tokens (N, m)."""
        slots: Tensor = self.attention(z.unsqueeze(0))
        return slots.squeeze(0)
