"""Pictures of the text readout: the dynamics of the paper's Figure 2 for each set, the map of its Figure 3."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ddcl.experiments.reproduce.readout_notes import DEFAULT, PAPER
from ddcl.experiments.reproduce.record import load_arrays
from ddcl.experiments.reproduce.study import Done
from ddcl.report.reproduction.maps import draw_map
from ddcl.report.reproduction.six_panels import draw_dynamics

WAYS = {PAPER: "paper", DEFAULT: "default"}
SEED = 0


def draw(finished: Sequence[Done], arrays_folder: Path, into: Path) -> list[Path]:
    """Six panels for each set and recipe, of the first encoder that the record has, and maps of sets without labels."""
    encoders: dict[str, str] = {}
    paths = []
    for one in finished:
        settings = one.run["settings"]
        first = encoders.setdefault(settings["texts"], settings["encoder"])
        if one.seed != SEED or one.method not in WAYS or settings["encoder"] != first:
            continue
        name = f"readout_{settings['texts']}_{WAYS[one.method]}"
        title = f"{one.case}: {one.method}"
        if one.epochs:
            paths.append(into / f"{name}_dynamics.svg")
            draw_dynamics(one.epochs, paths[-1], title=title, num_prototypes=settings["prototypes"])
        arrays = load_arrays(arrays_folder, one.case, one.method, one.seed)
        if arrays:
            paths.append(into / f"{name}_map.svg")
            panels = [("by class", arrays["labels"], None), ("by prototype", arrays["found"], None)]
            draw_map(
                arrays["points"],
                panels,
                paths[-1],
                prototypes=arrays["prototypes"],
                title=title,
                axes_names=("first principal component", "second"),
            )
    return paths
