"""The runs of Table 5, its columns, and what its numbers say."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ddcl.data import load_images
from ddcl.experiments.reproduce.study import Column, Done, Paper, Result, Run, Study
from ddcl.experiments.reproduce.summary import average, cases, methods
from ddcl.experiments.reproduce.vq.autoencoder import prepared
from ddcl.experiments.reproduce.vq.measuring import evaluate
from ddcl.experiments.reproduce.vq.quantisers import METHODS
from ddcl.experiments.reproduce.vq.settings import Settings
from ddcl.experiments.reproduce.vq.training import Autoencoder, train

OURS, PAPER = "ddcl, default", "the paper's recipe"
SIZES = (16, 64, 512, 1024)
HELD_OUT = 10
"""One in so many pictures of the training split is kept from training: what is chosen is chosen there."""
SHOWN = 8
"""Pictures drawn again for the figure."""


def case_name(num_codes: int) -> str:
    """How the table names a size."""
    return f"K = {num_codes}"


def runs(quick: bool, seeds: int) -> list[Run]:
    """Every quantiser at every size; quick: three of them, a thousand pictures, two epochs."""
    if quick:
        few = ("EMA, k-means start, restarts", PAPER, OURS)
        small = {"epochs": 2, "batch": 64, "width": 32, "images": 1024}
        return [_run(name, 16, seed, **small) for name in few for seed in range(seeds)]
    # one whole table after the other: an interrupted study has all of its rows
    return [_run(name, size, seed) for seed in range(seeds) for size in SIZES for name in METHODS]


def _run(name: str, size: int, seed: int, **changes: Any) -> Run:
    return Run(case_name(size), name, seed, Settings(quantiser=name, num_codes=size, **changes))


def execute(run: Run, device: str) -> Result:
    """Train one autoencoder and measure it on the test pictures."""
    settings: Settings = run.settings
    known = _images(settings.data, "train")[: settings.images]
    unseen = _images(settings.data, "test")[: settings.images]
    held_out = len(known) // HELD_OUT
    trained = train(known[:-held_out], settings, run.seed, device)
    metrics = evaluate(trained.model, unseen, device)
    chosen_by = evaluate(trained.model, known[-held_out:], device)
    metrics |= {f"held_out_{name}": chosen_by[name] for name in ("mse", "perplexity")}
    first = {name: values[0] for name, values in trained.epochs.items() if name != "epoch"}
    metrics |= {"first_usage": first["usage"], "first_frequent": first["frequent"]}
    metrics["epochs_to_all"] = _epochs_to_all(trained.epochs["usage"])
    return Result(metrics, trained.epochs, _pictures(trained.model, unseen, device) if run.seed == 0 else {})


def _epochs_to_all(usage: Sequence[float]) -> float:
    """The epoch in which every code was taken for the first time; infinity if there is none."""
    return next((epoch for epoch, share in enumerate(usage, start=1) if share >= 1.0), float("inf"))


@torch.no_grad()
def _pictures(model: Autoencoder, images: Tensor, device: str) -> dict[str, np.ndarray]:
    """A few pictures drawn again, for the figure alone."""
    x = prepared(images[:SHOWN].to(device))
    drawn = model.pictures(model.quantiser.hard(model.tokens(x)).value)
    pixels = ((drawn.clamp(-0.5, 0.5) + 0.5) * 255).round().byte().permute(0, 2, 3, 1)
    return {"drawn": pixels.cpu().numpy()}


@lru_cache(maxsize=4)
def _images(name: str, split: str) -> Tensor:
    return load_images(name, split).images


def notes(finished: Sequence[Done]) -> list[str]:
    """Each target of the study, met or missed, from the means over seeds."""
    said = []
    for case in cases(finished):
        here = [one for one in finished if one.case == case]
        size = int(case.rpartition(" ")[2])
        if OURS not in methods(here):
            continue
        ours = average(here, case, OURS, "mse")
        rivals = {name: average(here, case, name, "mse") for name in methods(here) if name not in (OURS, PAPER)}
        if rivals and size != SIZES[0]:
            best = min(rivals, key=rivals.__getitem__)
            share, gap = average(here, case, OURS, "relative_perplexity"), average(here, case, OURS, "gap")
            said.append(
                f"{case}: hard MSE {ours * 1e3:.3f} against {rivals[best] * 1e3:.3f} of the best rival ({best}), "
                f"{_verdict(ours <= rivals[best])}; perplexity {share:.2f} K (0.9 asked), {_verdict(share >= 0.9)}; "
                f"soft-hard gap {gap:.2%} (below 2 % asked), {_verdict(gap < 0.02)}."
            )
        if PAPER in methods(here):
            paper = {name: average(here, case, PAPER, name) for name in ("paper_usage", "perplexity", "mse")}
            said.append(
                f"{case}: under the paper's recipe its own usage figure reads {paper['paper_usage']:.0%}, while the "
                f"perplexity of the codes is {paper['perplexity']:.1f} and the hard MSE {paper['mse'] * 1e3:.1f}."
            )
    return said


def _verdict(met: bool) -> str:
    return "met" if met else "missed"


STUDY = Study(
    name="vq",
    title="Codes for CIFAR-10",
    shows="Table 5, Figure 4",
    runs=runs,
    execute=execute,
    columns=(
        Column("mse", "hard MSE, 1e-3", 3, 1e3),
        Column("soft_mse", "soft MSE, 1e-3", 3, 1e3),
        Column("psnr", "PSNR, dB", 2),
        Column("usage", "hard usage, %", 0, 100),
        Column("perplexity", "perplexity", 1),
        Column("gap", "soft-hard gap, %", 2, 100),
        Column("paper_usage", "the paper's usage, %", 0, 100),
        Column("mse_gap", "hard worse than soft, %", 1, 100),
        Column("first_frequent", "in epoch 1 above 1 %, %", 0, 100),
        Column("first_usage", "taken in epoch 1, %", 0, 100),
        Column("epochs_to_all", "epochs until all were taken", 0),
    ),
    paper=tuple(
        Paper(case_name(size), name, values)
        for size, name, values in (
            (16, "DDCL-Attention", {"first_frequent": 1.0}),
            (16, "VQ-VAE", {"first_frequent": 0.812}),
            (64, "DDCL-Attention", {"first_frequent": 1.0}),
            (64, "VQ-VAE", {"first_frequent": 0.188}),
        )
    ),
    seeds=3,
    needs="ddcl[rivals], CIFAR-10, and for more than --quick a GPU",
    notes=notes,
)
