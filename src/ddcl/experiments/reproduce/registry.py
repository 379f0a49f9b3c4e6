"""The studies by name; a study is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from ddcl.experiments.reproduce.study import Study


class Entry(NamedTuple):
    """Where a study lives and what it is about."""

    module: str
    purpose: str


_HERE = "ddcl.experiments.reproduce"
STUDIES: dict[str, Entry] = {
    "debris": Entry(f"{_HERE}.debris", "Table 3, Figure 1: orbital regimes, synthetic and of real satellites"),
    "readout": Entry(f"{_HERE}.readout", "Table 4, Figures 2 and 3: texts through a frozen encoder"),
    "vq": Entry(f"{_HERE}.vq", "Table 5, Figure 4: codes for CIFAR-10 against other quantisers"),
    "hierarchy": Entry(f"{_HERE}.hierarchy", "Table 6, Figure 5: two levels over the tokens of 20 Newsgroups"),
    "ablation": Entry(f"{_HERE}.ablation", "Figure 6: the ratio of the learning rates, on digits and MNIST"),
    "bottleneck": Entry(f"{_HERE}.bottleneck", "future work: does utilisation at epoch 1 decide the reconstruction?"),
}


def load_study(name: str) -> Study:
    """The study of this name."""
    if name not in STUDIES:
        raise ValueError(f"study: got {name!r}, expected one of {', '.join(STUDIES)}")
    study = import_module(STUDIES[name].module).STUDY
    if not isinstance(study, Study):
        raise TypeError(f"{STUDIES[name].module}: STUDY is no Study")
    return study
