"""The mechanisms the library is compared with; thin wrappers over the packages people use."""

from ddcl.rivals.perceiver import LatentReader
from ddcl.rivals.slot_attention import SlotReader
from ddcl.rivals.vector_quantize import EMA, STRAIGHT_THROUGH, HardQuantizer

__all__ = ["EMA", "STRAIGHT_THROUGH", "HardQuantizer", "LatentReader", "SlotReader"]
