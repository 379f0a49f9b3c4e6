"""Training: time scales, temperatures, the watch over them."""

from ddcl.training.adaptive import AdaptiveSize, SizeChange
from ddcl.training.clustering import Clusters, cluster_embeddings
from ddcl.training.critical import CriticalSchedule
from ddcl.training.groups import param_groups
from ddcl.training.guards import GuardWarning, warn_of_ratio, warn_of_unconstrained_encoder
from ddcl.training.loop import Trainer
from ddcl.training.losses import Loss, quantisation_loss
from ddcl.training.moments import RunningMoments
from ddcl.training.monitor import (
    CONDITIONS,
    CollapseError,
    CollapseMonitor,
    CollapseWarning,
    Condition,
    EpochReport,
    HeadMeasure,
    Trouble,
    repairing,
)
from ddcl.training.progress import Progress
from ddcl.training.recipe import Critical, Exponential, Recipe, paper_recipe
from ddcl.training.schedules import ExponentialSchedule
from ddcl.training.soft_kmeans import SoftKMeans
from ddcl.training.starting import init_banks

__all__ = [
    "CONDITIONS",
    "AdaptiveSize",
    "Clusters",
    "CollapseError",
    "CollapseMonitor",
    "CollapseWarning",
    "Condition",
    "Critical",
    "CriticalSchedule",
    "EpochReport",
    "Exponential",
    "ExponentialSchedule",
    "GuardWarning",
    "HeadMeasure",
    "Loss",
    "Progress",
    "Recipe",
    "RunningMoments",
    "SizeChange",
    "SoftKMeans",
    "Trainer",
    "Trouble",
    "cluster_embeddings",
    "init_banks",
    "paper_recipe",
    "param_groups",
    "quantisation_loss",
    "repairing",
    "warn_of_ratio",
    "warn_of_unconstrained_encoder",
]
