"""Frozen embeddings to clusters: a bank behind what neighbours tell, at default settings."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from ddcl.nn import ConsensusEncoder, NeighbourhoodEncoder, PrototypeBank
from ddcl.ops import arithmetic_dtype
from ddcl.shapes import Float
from ddcl.training.loop import Trainer
from ddcl.training.progress import Progress
from ddcl.training.recipe import Recipe

_BATCH = 1024


class Clusters(NamedTuple):
    """What :func:`cluster_embeddings` found."""

    indices: Tensor
    """The prototype of each embedding, (N,)."""
    model: nn.Sequential
    """Both encoders, then the bank: ``model(z).indices`` for new embeddings."""
    history: list[Progress]


def cluster_embeddings(
    z: Float[Tensor, "N m"],
    num_prototypes: int,
    *,
    encoder: NeighbourhoodEncoder | None = None,
    consensus_runs: int = 20,
    recipe: Recipe | None = None,
) -> Clusters:
    """Cluster what a frozen encoder makes of texts by who is whose neighbour, not by distance alone as k-means does.

    A :class:`ddcl.NeighbourhoodEncoder` is fitted, a :class:`ddcl.ConsensusEncoder` to its vectors, and a bank is
    trained on what comes out by the default recipe. Made for sentence embeddings; docs/lab/0007 has what was gained,
    and over which range of the settings.

    Args:
        z: embeddings (N, m), on the device to work on.
        num_prototypes: K.
        encoder: not yet fitted; None: one of default settings.
        consensus_runs: how many k-means runs the consensus is of.
        recipe: of the bank; None: the default. Its seed decides everything random.

    Example:
        >>> centers = 3 * torch.randn(4, 16)
        >>> z = centers[torch.arange(400) % 4] + torch.randn(400, 16)
        >>> found = cluster_embeddings(z, 4, recipe=Recipe(epochs=5))
        >>> found.indices.shape, found.model(z[:3]).indices.shape
        (torch.Size([400]), torch.Size([3]))
    """
    recipe = recipe or Recipe()
    dim = z.shape[-1]
    encoder = encoder or NeighbourhoodEncoder(dim, min(64, dim), device=z.device, dtype=arithmetic_dtype(z.dtype))
    vectors = encoder.fit(z).fitted
    place: dict[str, Any] = {"device": vectors.device, "dtype": vectors.dtype}
    width = min(64, consensus_runs * (num_prototypes - 1))
    consensus = ConsensusEncoder(encoder.out_dim, num_prototypes, width, num_runs=consensus_runs, **place)
    vectors = consensus.fit(vectors, generator=torch.Generator().manual_seed(recipe.seed))(vectors)
    with torch.random.fork_rng([vectors.device] if vectors.is_cuda else []):
        torch.manual_seed(recipe.seed)
        bank = PrototypeBank(num_prototypes, width, **place)
        batches = DataLoader(TensorDataset(vectors), batch_size=_BATCH, shuffle=True)
        history = Trainer(bank, recipe, measure_every=max(1, recipe.epochs // 5)).fit(batches)
    with torch.no_grad():
        indices = bank(vectors).indices
    return Clusters(indices, nn.Sequential(encoder, consensus, bank), history)
