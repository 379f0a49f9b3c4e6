r"""Collapse-free prototype readout: each token becomes a convex mixture of a few learned prototypes.

.. math:: \mu(z) = \sum_k \operatorname{softmax}_k(-|z - p_k|^2 / T)\, p_k
"""

from ddcl.functional import (
    Covariance,
    Decomposition,
    KMeans,
    Readout,
    SoftUsage,
    SplitModes,
    Usage,
    assignments,
    barrier,
    covariance,
    critical_temperature,
    distinct_prototypes,
    farthest_point,
    initial_prototypes,
    kmeans,
    kmeans_plus_plus,
    perplexity,
    readout,
    separation,
    soft_usage,
    split_margins,
    split_modes,
    usage,
)
from ddcl.nn import AttentionOutput, DDCLAttention, PrototypeBank
from ddcl.ops import choose as choose_backend
from ddcl.training import ExponentialSchedule, banks_of, param_groups
from ddcl.version import __version__

__all__ = [
    "AttentionOutput",
    "Covariance",
    "DDCLAttention",
    "Decomposition",
    "ExponentialSchedule",
    "KMeans",
    "PrototypeBank",
    "Readout",
    "SoftUsage",
    "SplitModes",
    "Usage",
    "__version__",
    "assignments",
    "banks_of",
    "barrier",
    "choose_backend",
    "covariance",
    "critical_temperature",
    "distinct_prototypes",
    "farthest_point",
    "initial_prototypes",
    "kmeans",
    "kmeans_plus_plus",
    "param_groups",
    "perplexity",
    "readout",
    "separation",
    "soft_usage",
    "split_margins",
    "split_modes",
    "usage",
]
