"""Stateless mathematics: tensors in, tensors out."""

from ddcl.functional.backends import backend_for
from ddcl.functional.batches import Batches
from ddcl.functional.criticality import CRITICAL_FACTOR, Covariance, covariance, critical_temperature
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
from ddcl.functional.neighbours import NeighbourGraph, nearest_neighbours, neighbour_graph, smooth_over
from ddcl.functional.phases import PhaseDiagram, effective_prototypes, phase_diagram
from ddcl.functional.readout import Readout, assignments, readout
from ddcl.functional.resolution import resolving_temperature
from ddcl.functional.sampling import sample_assignments
from ddcl.functional.separation import barrier, distinct_prototypes, separation
from ddcl.functional.soft_kmeans import CellMoments, cell_moments, soft_kmeans_step
from ddcl.functional.splitting import SplitModes, split_margins, split_modes
from ddcl.functional.stability import (
    DescentTrace,
    RatioBound,
    Spectrum,
    TimeScales,
    barrier_strength,
    coupled_jacobian,
    coupled_spectrum,
    descended_loss,
    lyapunov,
    ratio_bound,
    temperature_slope,
    time_scales,
)
from ddcl.functional.usage import SoftUsage, Usage, code_rate, perplexity, soft_usage, usage

__all__ = [
    "CRITICAL_FACTOR",
    "INIT_METHODS",
    "Batches",
    "CellMoments",
    "Covariance",
    "Decomposition",
    "DescentTrace",
    "InitMethod",
    "KMeans",
    "NeighbourGraph",
    "PhaseDiagram",
    "RatioBound",
    "Readout",
    "SoftUsage",
    "Spectrum",
    "SplitModes",
    "TimeScales",
    "Usage",
    "assignments",
    "backend_for",
    "barrier",
    "barrier_strength",
    "cell_moments",
    "code_rate",
    "coupled_jacobian",
    "coupled_spectrum",
    "covariance",
    "critical_temperature",
    "descended_loss",
    "distinct_prototypes",
    "effective_prototypes",
    "farthest_point",
    "initial_prototypes",
    "kmeans",
    "kmeans_plus_plus",
    "lyapunov",
    "nearest_neighbours",
    "neighbour_graph",
    "perplexity",
    "phase_diagram",
    "ratio_bound",
    "readout",
    "resolving_temperature",
    "sample_assignments",
    "separation",
    "smooth_over",
    "soft_kmeans_step",
    "soft_usage",
    "split_margins",
    "split_modes",
    "temperature_slope",
    "time_scales",
    "usage",
]
