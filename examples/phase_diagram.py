"""Draw how a bank splits as the temperature falls: the picture at the top of the README.

    python examples/phase_diagram.py [--quick] [--out docs/figures/phase_diagram.svg]

The bank is cooled from above the critical temperature by soft k-means steps (the fixed points of mode "stop");
at each temperature its position is the limit of those steps from the position before.
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


def mixture(generator: torch.Generator, each: int = 150) -> Tensor:
    """Eight clusters on the plane in two groups of two pairs."""
    corners = torch.tensor([[x, y] for x in (-4.0, 4.0) for y in (-2.0, 2.0)])
    centers = torch.cat([corners + torch.tensor([0.9, 0.25]), corners - torch.tensor([0.9, 0.25])])
    noise = torch.randn(len(centers), each, 2, generator=generator, dtype=torch.float64)
    return (centers.double()[:, None] + 0.22 * noise).flatten(0, 1)


def cool(z: Tensor, relative: Tensor, steps: int, generator: torch.Generator) -> list[Tensor]:
    """The bank's resting place at each temperature, in units of T_c."""
    critical = float(ddcl.critical_temperature(z, gradient="stop"))
    spread = float(ddcl.covariance(z).trace) ** 0.5
    bank = z.mean(0).expand(PROTOTYPES, 2).clone()
    found = []
    for a in relative.tolist():
        # a nudge far below anything visible: an unstable rest point is left only if something moves it
        bank = bank + 1e-5 * spread * torch.randn(bank.shape, generator=generator, dtype=torch.float64)
        for _ in range(steps):
            q = ddcl.assignments(z, bank, a * critical)
            bank = (q.mT @ z) / q.sum(0)[:, None]
        found.append(bank)
    return found


def draw(z: Tensor, relative: Tensor, banks: list[Tensor], out: Path) -> None:
    """Two panels: the data with banks at three temperatures, and the tree of splits."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    plane, tree = figure.subplots(1, 2)
    plane.scatter(*z.T, s=3, color="#c9ced6", linewidths=0)
    for a, color, size in ((1.2, "#d1495b", 150), (0.5, "#edae49", 90), (0.02, "#00798c", 45)):
        bank = banks[int((relative - a).abs().argmin())]
        count = int(ddcl.distinct_prototypes(bank, ddcl.covariance(z).trace, tolerance=1e-4))
        plane.scatter(
            *bank.T, s=size, color=color, edgecolors="white", linewidths=1, label=f"$T$ = {a:g} $T_c$: {count}"
        )
    plane.legend(
        title="distinct prototypes of 8",
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

    path = torch.stack(banks)
    position = path[..., 0] + 0.9 * path[..., 1]  # a view from the side in which no two branches cross
    for k in range(PROTOTYPES):
        tree.plot(relative, position[:, k], color="#00798c", linewidth=1.3)
    tree.axvspan(1, float(relative.max()), color="#d1495b", alpha=0.12, linewidth=0)
    tree.axvline(1, color="#d1495b", linewidth=1)
    tree.text(1.25, 0.8, "the merged bank\nis stable", color="#d1495b", fontsize=9, rotation=90, ha="center")
    tree.set_xscale("log")
    tree.invert_xaxis()
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
    parser.add_argument("--quick", action="store_true", help="few temperatures and steps")
    parser.add_argument("--out", type=Path, default=Path("docs/figures/phase_diagram.svg"))
    arguments = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    z = mixture(generator)
    relative = torch.logspace(0.2, -2.2, 20 if arguments.quick else 240, dtype=torch.float64)
    banks = cool(z, relative, steps=10 if arguments.quick else 400, generator=generator)
    draw(z, relative, banks, arguments.out)
    trace = ddcl.covariance(z).trace
    for a in (1.2, 0.9, 0.5, 0.1, 0.02):
        bank = banks[int((relative - a).abs().argmin())]
        count = int(ddcl.distinct_prototypes(bank, trace, tolerance=1e-4))
        print(f"T = {a:4g} T_c: {count} distinct prototypes of {PROTOTYPES}")
    print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
