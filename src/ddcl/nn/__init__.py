"""Modules: parameters and nothing else."""

from ddcl.nn.attention import AttentionOutput, DDCLAttention
from ddcl.nn.bank import PrototypeBank
from ddcl.nn.normalisation import NORMALISATIONS, Normalisation, TokenNorm

__all__ = ["NORMALISATIONS", "AttentionOutput", "DDCLAttention", "Normalisation", "PrototypeBank", "TokenNorm"]
