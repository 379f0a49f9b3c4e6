"""Default settings on 20 Newsgroups: does a bank of 20 prototypes find what k-means finds?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from ddcl.data import embed, load_texts
from ddcl.nn import PrototypeBank
from ddcl.rivals.accuracy import accuracy
from ddcl.training import Recipe, Trainer, init_banks

PROTOTYPES, BATCH = 20, 1024


@dataclass(frozen=True)
class Clustering:
    """One seed."""

    seed: int
    kmeans_acc: float
    kmeans_inertia: float
    start_acc: float
    """Of the bank's own start: k-means with 10 restarts too, by this library."""
    acc: float
    inertia: float
    relative_entropy: float
    """H / ln K at the end."""
    distinct: int
    usage: float
    seconds: float


def load() -> tuple[Tensor, list[int]]:
    """Unit-norm embeddings of the training split by all-MiniLM-L6-v2, and their labels."""
    texts = load_texts("20newsgroups")
    return embed(texts.texts, max_tokens=128), texts.labels


def cluster(z: Tensor, labels: list[int], seed: int) -> Clustering:
    """k-means with 10 restarts, and a bank at default settings."""
    from sklearn.cluster import KMeans

    rival = KMeans(PROTOTYPES, n_init=10, random_state=seed).fit(z.numpy())
    began = time.monotonic()
    torch.manual_seed(seed)
    bank = PrototypeBank(PROTOTYPES, z.shape[-1])
    loader = DataLoader(TensorDataset(z), batch_size=BATCH, shuffle=True)
    # the recipe's own first step, taken here to look at what it gives
    recipe = Recipe(seed=seed, init=None)
    init_banks(bank, loader, restarts=recipe.restarts, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        start = bank(z).indices.tolist()
    last = Trainer(bank, recipe, measure_every=10).fit(loader)[-1].metrics
    with torch.no_grad():
        found = bank(z)
    return Clustering(
        seed=seed,
        kmeans_acc=accuracy(rival.labels_.tolist(), labels),
        kmeans_inertia=float(rival.inertia_),
        start_acc=accuracy(start, labels),
        acc=accuracy(found.indices.tolist(), labels),
        inertia=last["quantization"] * len(z),
        relative_entropy=last["relative_entropy"],
        distinct=int(last["distinct"]),
        usage=last["usage"],
        seconds=time.monotonic() - began,
    )


def run_all(seeds: Iterable[int], progress: Callable[[Clustering], None] | None = None) -> list[Clustering]:
    """Every seed."""
    z, labels = load()
    found = []
    for seed in seeds:
        found.append(cluster(z, labels, seed))
        if progress is not None:
            progress(found[-1])
    return found


def rows(found: Iterable[Clustering]) -> list[dict[str, object]]:
    """For a table on disk; seconds are left out, since the machine may have been busy."""
    return [
        {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in asdict(one).items()}
        | {"seconds": ""}
        for one in found
    ]


def summary(found: list[Clustering]) -> str:
    """Means over the first five seeds and over all, with the verdicts the project asks for."""
    lines = []
    for label, chosen in (("first 5 seeds", found[:5]), (f"all {len(found)} seeds", found)):
        ours, theirs = (np.array([getattr(one, name) for one in chosen]) for name in ("acc", "kmeans_acc"))
        lines.append(
            f"{label}: ACC {ours.mean():.4f} +- {ours.std(ddof=1):.4f}, k-means with 10 restarts {theirs.mean():.4f} "
            f"+- {theirs.std(ddof=1):.4f}, difference {ours.mean() - theirs.mean():+.4f} (asked for: at least -0.005)"
        )
        gain = ours - np.array([one.start_acc for one in chosen])
        error = gain.std(ddof=1) / len(gain) ** 0.5
        lines.append(f"{label}: gain over the bank's own k-means start {gain.mean():+.4f}, standard error {error:.4f}")
    lines.append(f"largest H / ln K: {max(one.relative_entropy for one in found):.3f} (asked for: under 0.5)")
    lines.append(f"fewest distinct prototypes: {min(one.distinct for one in found)} (asked for: {PROTOTYPES})")
    return "\n".join(lines)
