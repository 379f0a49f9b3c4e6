"""Table 5 and Figure 4: an autoencoder of CIFAR-10 through K codes, by quantiser."""

from ddcl.experiments.reproduce.vq.study import STUDY

__all__ = ["STUDY"]
