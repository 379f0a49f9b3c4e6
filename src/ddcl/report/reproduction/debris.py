"""Pictures of the orbital regimes: the map of the paper's Figure 1, and the dynamics of the runs behind it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ddcl.experiments.reproduce.orbits import REGIMES
from ddcl.experiments.reproduce.record import load_arrays
from ddcl.experiments.reproduce.study import Done
from ddcl.report.reproduction.maps import draw_map
from ddcl.report.reproduction.six_panels import draw_dynamics

SHOWN = {"synthetic": "synthetic", "UCS satellites": "satellites"}
"""Cases that are drawn, and what their files are called."""
WAYS = {"the paper's recipe": "paper", "default": "default"}
SEED = 0


def draw(finished: Sequence[Done], arrays_folder: Path, into: Path) -> list[Path]:
    """A map and six panels for each case and recipe that the record has."""
    paths = []
    for one in finished:
        if one.seed != SEED or one.case not in SHOWN or one.method not in WAYS:
            continue
        name = f"debris_{SHOWN[one.case]}_{WAYS[one.method]}"
        title = f"{one.case}, {one.method}"
        kept = load_arrays(arrays_folder, one.case, one.method, SEED)
        if kept:
            panels = [
                ("true regime", kept["labels"], list(REGIMES)),
                ("nearest prototype", kept["found"], None),
            ]
            paths.append(into / f"{name}_map.svg")
            draw_map(
                kept["points"],
                panels,
                paths[-1],
                prototypes=kept["prototypes"],
                title=title,
                axes_names=("first principal component", "second principal component"),
            )
        paths.append(into / f"{name}_dynamics.svg")
        draw_dynamics(one.epochs, paths[-1], title=title, num_prototypes=int(one.run["settings"]["prototypes"]))
    return paths
