"""Figure 5: dynamics of both levels, and the documents in the plane."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ddcl.experiments.reproduce.record import load_arrays
from ddcl.experiments.reproduce.study import Done
from ddcl.experiments.reproduce.summary import cases, methods
from ddcl.report.reproduction.maps import draw_map
from ddcl.report.reproduction.six_panels import draw_dynamics

LEVELS = {"lower": "levels.0.bank/0/", "upper": "levels.1.bank/0/"}


def draw(finished: Sequence[Done], arrays: Path, into: Path) -> list[Path]:
    """For the first seed: six panels of both levels, by the paper's last recipe and by default, and maps."""
    paths = []
    for case in cases(finished):
        trained = [one.method for one in finished if one.case == case and one.epochs]
        drawn = {
            next((m for m in reversed(trained) if m.startswith(begins)), "") for begins in ("the paper", "default")
        }
        for method in methods(finished):
            here = [one for one in finished if (one.case, one.method, one.seed) == (case, method, 0)]
            name = _file(case, method)
            if here and method in drawn:
                paths += [_dynamics(here[0], level, into / f"hierarchy-{name}-{level}.svg") for level in LEVELS]
            if kept := load_arrays(arrays, case, method):
                path = into / f"hierarchy-{name}-map.svg"
                draw_map(
                    kept["points"].astype(float),
                    [("by newsgroup", kept["labels"], None), (f"by {method}", kept["found"], None)],
                    path,
                    title=f"{case}: documents by t-SNE",
                    axes_names=("", ""),
                )
                paths.append(path)
    return paths


def _dynamics(one: Done, level: str, path: Path) -> Path:
    size = int(one.run["settings"]["lower"]) if level == "lower" else 20
    title = f"{one.case}, {one.method}: the {level} level"
    draw_dynamics(one.epochs, path, title=title, num_prototypes=size, prefix=LEVELS[level])
    return path


def _file(case: str, method: str) -> str:
    """Letters of the encoder's and the method's names."""
    encoder = case.rpartition("all-")[2].partition("-")[0].lower()
    return "".join(c if c.isalnum() else "-" for c in f"{encoder}-{method}".lower().replace(",", "").replace(":", ""))
