"""Modules: parameters and nothing else."""

from ddcl.nn.attention import AttentionOutput, DDCLAttention
from ddcl.nn.bank import PrototypeBank

__all__ = ["AttentionOutput", "DDCLAttention", "PrototypeBank"]
