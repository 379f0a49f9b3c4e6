"""Embeddings to clusters in one call."""

from __future__ import annotations

import torch

import ddcl


def topics(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Five rings in planes of their own in 24 dimensions, about centres that lie closer than the rings are wide."""
    labels = torch.arange(5).repeat_interleave(120)
    centers = 0.2 * torch.randn(5, 24, generator=generator)
    planes = torch.linalg.qr(torch.randn(5, 24, 2, generator=generator)).Q
    angle = 2 * torch.pi * torch.rand(600, generator=generator)
    ring = torch.einsum("nij,nj->ni", planes[labels], torch.stack([angle.cos(), angle.sin()], -1))
    return centers[labels] + ring + 0.05 * torch.randn(600, 24, generator=generator), labels


def purity(indices: torch.Tensor, labels: torch.Tensor) -> float:
    table = torch.zeros(5, 5)
    table.index_put_((indices, labels), torch.ones(len(labels)), accumulate=True)
    return float(table.max(1).values.sum() / len(labels))


def test_neighbours_make_clusters_that_k_means_does_not_find():
    gains = []
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        z, labels = topics(generator)
        centers = ddcl.kmeans(z, 5, restarts=10, generator=generator).centers
        found = ddcl.cluster_embeddings(z, 5, recipe=ddcl.Recipe(epochs=10))
        gains.append(purity(found.indices, labels) - purity(ddcl.readout(z, centers, 1.0).indices, labels))
        assert found.history[-1].metrics["distinct"] == 5
        assert found.history[-1].troubles == ()
    assert sum(gains) / 3 > 0.1, gains


def test_the_seed_decides_everything(generator):
    z, _ = topics(generator)
    torch.manual_seed(1)
    first = ddcl.cluster_embeddings(z, 5, recipe=ddcl.Recipe(epochs=3, seed=4))
    torch.manual_seed(2)
    again = ddcl.cluster_embeddings(z, 5, recipe=ddcl.Recipe(epochs=3, seed=4))
    assert torch.equal(first.model[2].prototypes, again.model[2].prototypes)


def test_new_embeddings_go_where_their_like_went(generator):
    z, _ = topics(generator)
    held_out = torch.arange(600) % 4 == 0
    found = ddcl.cluster_embeddings(z[~held_out], 5, recipe=ddcl.Recipe(epochs=10))
    whole = torch.empty(600, dtype=torch.int64)
    whole[~held_out], whole[held_out] = found.indices, found.model(z[held_out]).indices
    nearest = ddcl.nearest_neighbours(z[held_out], z[~held_out], 1).flatten()
    assert float((whole[held_out] == found.indices[nearest]).float().mean()) > 0.9
