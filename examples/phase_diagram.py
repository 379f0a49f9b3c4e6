"""Draw how a bank splits as the temperature falls: the picture at the top of the README.

    python examples/phase_diagram.py [--quick] [--out docs/figures/phase_diagram.svg]

`ddcl.phase_diagram` cools the bank from above its critical temperature and finds where it rests and what splits.
For data in more dimensions than two, `ddcl.report.draw_phase_diagram` draws the same tree without the plane.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import torch
from matplotlib.figure import Figure
from torch import Tensor

import ddcl

PROTOTYPES = 8
BANK, WARM, MERGED = "#00798c", "#edae49", "#d1495b"
SIDE = torch.tensor([1.0, 0.9], dtype=torch.float64)
"""A view of the plane from the side, in which no two branches cross."""


def mixture(generator: torch.Generator, each: int = 150) -> Tensor:
    """Eight clusters on the plane in two groups of two pairs."""
    corners = torch.tensor([[x, y] for x in (-4.0, 4.0) for y in (-2.0, 2.0)])
    centers = torch.cat([corners + torch.tensor([0.9, 0.25]), corners - torch.tensor([0.9, 0.25])])
    noise = torch.randn(len(centers), each, 2, generator=generator, dtype=torch.float64)
    return (centers.double()[:, None] + 0.22 * noise).flatten(0, 1)


def nearest(diagram: ddcl.PhaseDiagram, relative: float) -> int:
    """Where in the diagram a temperature stands, in units of T_c."""
    return int((diagram.relative - relative).abs().argmin())


def draw(z: Tensor, diagram: ddcl.PhaseDiagram, out: Path) -> None:
    """Two panels: the data with banks at three temperatures, and the tree of splits."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    plane, tree = figure.subplots(1, 2)
    plane.scatter(*z.T, s=3, color="#c9ced6", linewidths=0)
    for a, color, size in ((1.2, MERGED, 150), (0.5, WARM, 90), (0.02, BANK, 45)):
        place = nearest(diagram, a)
        label = f"$T$ = {a:g} $T_c$: {int(diagram.distinct[place])}"
        plane.scatter(*diagram.positions[place].T, s=size, color=color, edgecolors="white", linewidths=1, label=label)
    plane.legend(
        title=f"distinct prototypes of {PROTOTYPES}",
        loc="upper center",
        bbox_to_anchor=(0.5, -0.02),
        ncols=3,
        frameon=False,
        fontsize=9,
    )
    plane.set_aspect("equal")
    plane.set_title("One bank, three temperatures")
    plane.set_xticks([])
    plane.set_yticks([])

    position = diagram.positions @ SIDE
    tree.plot(diagram.relative, position, color=BANK, linewidth=1.3)
    for split in diagram.splits:
        whole = max(int((diagram.relative > split.relative).sum()) - 1, 0)  # the last place before it
        tree.plot(split.relative, position[whole, split.parent[0]], "o", color=WARM, markersize=4.5, zorder=3)
    tree.plot([], [], "o", color=WARM, markersize=4.5, label="a split, found by cooling")
    tree.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.13, 0.0), fontsize=9)
    tree.axvspan(1, float(diagram.relative[0]), color=MERGED, alpha=0.12, linewidth=0)
    tree.axvline(1, color=MERGED, linewidth=1)
    tree.text(1.25, 0.8, "the merged bank\nis stable", color=MERGED, fontsize=9, rotation=90, ha="center")
    tree.set_xscale("log")
    tree.set_xlim(float(diagram.relative[0]), float(diagram.relative[-1]))
    tree.set_xlabel("temperature $T / T_c$, falling")
    tree.set_ylabel("position of each prototype")
    tree.set_title("Below $T_c$ the merged bank splits")
    for axis in (plane, tree):
        axis.spines[["top", "right"]].set_visible(False)
    out.parent.mkdir(parents=True, exist_ok=True)
    mpl.rcParams["svg.hashsalt"] = "ddcl"  # the same picture gives the same file
    figure.savefig(out, dpi=150, metadata={"Date": None} if out.suffix == ".svg" else None)


def main() -> None:
    """Cool, draw, say what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="few temperatures")
    parser.add_argument("--out", type=Path, default=Path("docs/figures/phase_diagram.svg"))
    arguments = parser.parse_args()
    z = mixture(torch.Generator().manual_seed(0))
    grid = torch.logspace(0.2, -2.2, 20 if arguments.quick else 240, dtype=torch.float64)
    diagram = ddcl.phase_diagram(z, PROTOTYPES, relative=grid)
    draw(z, diagram, arguments.out)
    for a in (1.2, 0.9, 0.5, 0.1, 0.02):
        count = int(diagram.distinct[nearest(diagram, a)])
        print(f"T = {a:4g} T_c: {count} distinct prototypes of {PROTOTYPES}")
    print("splits at T / T_c =", ", ".join(f"{split.relative:.4f}" for split in diagram.splits))
    print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
