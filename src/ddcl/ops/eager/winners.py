"""Which prototype is the nearest, without the slow search for an index."""

from __future__ import annotations

import torch
from torch import Tensor

from ddcl.shapes import Float, Int

# float32 holds the powers of 4 from 4^63 down to 4^-63, so 127 prototypes can be told apart.
_LEAST, _MOST = 32, 127
# In smaller blocks the calls take longer than the search they replace.
_LEAST_NUMBERS = 2**19


def has_fast_winners(scores: Float[Tensor, "n K"]) -> bool:
    """Whether ``winners`` is the faster way here: on a GPU the search for an index costs nothing extra."""
    return scores.device.type == "cpu" and _LEAST <= scores.shape[1] <= _MOST and scores.numel() >= _LEAST_NUMBERS


def winners(deficit: Float[Tensor, "n K"], scratch: Float[Tensor, "n K"]) -> Int[Tensor, " n"]:
    """The first k with ``deficit[:, k] == 0``, the largest value of its row; rows without one (of NaN) get the last.

    To find an index ``torch.max`` compares one number after the other, which takes almost as long as an exponential.
    Here the sum of 4^-k over all that are largest is one product for the whole block; the first of them is more than
    all later ones together, so its exponent can be read off.
    """
    last = deficit.shape[1] - 1
    powers = torch.arange(63, 63 - deficit.shape[1], -1, dtype=deficit.dtype).mul_(2).exp2_()
    found = torch.mv(torch.eq(deficit, 0, out=scratch), powers)
    return found.log2_().mul_(-0.5).add_(63).round_().clamp_max_(last).to(torch.int64)
