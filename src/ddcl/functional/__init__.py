"""Stateless mathematics: tensors in, tensors out."""

from ddcl.functional.batches import Batches
from ddcl.functional.criticality import (
    CRITICAL_FACTOR,
    Covariance,
    SplitModes,
    covariance,
    critical_temperature,
    split_margins,
    split_modes,
)
from ddcl.functional.decomposition import Decomposition
from ddcl.functional.initialisation import (
    INIT_METHODS,
    InitMethod,
    KMeans,
    farthest_point,
    initial_prototypes,
    kmeans,
    kmeans_plus_plus,
)
from ddcl.functional.readout import Readout, assignments, readout
from ddcl.functional.separation import barrier, distinct_prototypes, separation
from ddcl.functional.soft_kmeans import CellMoments, cell_moments, soft_kmeans_step
from ddcl.functional.usage import SoftUsage, Usage, perplexity, soft_usage, usage

__all__ = [
    "CRITICAL_FACTOR",
    "INIT_METHODS",
    "Batches",
    "CellMoments",
    "Covariance",
    "Decomposition",
    "InitMethod",
    "KMeans",
    "Readout",
    "SoftUsage",
    "SplitModes",
    "Usage",
    "assignments",
    "barrier",
    "cell_moments",
    "covariance",
    "critical_temperature",
    "distinct_prototypes",
    "farthest_point",
    "initial_prototypes",
    "kmeans",
    "kmeans_plus_plus",
    "perplexity",
    "readout",
    "separation",
    "soft_kmeans_step",
    "soft_usage",
    "split_margins",
    "split_modes",
    "usage",
]
