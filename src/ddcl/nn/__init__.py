"""Modules: parameters and nothing else."""

from ddcl.nn.attention import AttentionOutput, DDCLAttention
from ddcl.nn.bank import PrototypeBank, banks_of
from ddcl.nn.bottleneck import BottleneckOutput, PrototypeBottleneck
from ddcl.nn.conditioned import ConditionedBank
from ddcl.nn.consensus import ConsensusEncoder
from ddcl.nn.feedforward import PrototypeFeedForward
from ddcl.nn.hierarchy import HierarchicalReadout, HierarchyOutput, Level, LevelOutput
from ddcl.nn.integration import (
    Insertion,
    ParallelPrototypes,
    PrototypeNorm,
    SerialPrototypes,
    insert,
    remove,
)
from ddcl.nn.losses import QuantisationLosses, quantisation_losses
from ddcl.nn.neighbourhood import NeighbourhoodEncoder
from ddcl.nn.normalisation import NORMALISATIONS, Normalisation, TokenNorm
from ddcl.nn.quantizer import PrototypeQuantizer, QuantizerOutput
from ddcl.nn.rate import RateMeter
from ddcl.nn.readout import PooledOutput, PrototypeReadout
from ddcl.nn.residual import ResidualOutput, ResidualQuantizer
from ddcl.nn.shared import OffsetBank, SharedPrototypes

__all__ = [
    "NORMALISATIONS",
    "AttentionOutput",
    "BottleneckOutput",
    "ConditionedBank",
    "ConsensusEncoder",
    "DDCLAttention",
    "HierarchicalReadout",
    "HierarchyOutput",
    "Insertion",
    "Level",
    "LevelOutput",
    "NeighbourhoodEncoder",
    "Normalisation",
    "OffsetBank",
    "ParallelPrototypes",
    "PooledOutput",
    "PrototypeBank",
    "PrototypeBottleneck",
    "PrototypeFeedForward",
    "PrototypeNorm",
    "PrototypeQuantizer",
    "PrototypeReadout",
    "QuantisationLosses",
    "QuantizerOutput",
    "RateMeter",
    "ResidualOutput",
    "ResidualQuantizer",
    "SerialPrototypes",
    "SharedPrototypes",
    "TokenNorm",
    "banks_of",
    "insert",
    "quantisation_losses",
    "remove",
]
