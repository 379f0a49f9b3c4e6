"""Neighbours against brute force, smoothing against the matrix it stands for."""

from __future__ import annotations

import pytest
import torch

import ddcl
from ddcl.functional import neighbours


def dense_walk(z: torch.Tensor, k: int) -> torch.Tensor:
    """P as an N x N matrix."""
    distances = torch.cdist(z, z).fill_diagonal_(torch.inf)
    near = torch.zeros(len(z), len(z), dtype=z.dtype).scatter_(1, distances.topk(k, largest=False).indices, 1.0)
    both = near + near.T
    return both / both.sum(1, keepdim=True)


@pytest.mark.parametrize("at_once", [7, 8192])  # several blocks of references, one
@pytest.mark.parametrize("skip_self", [False, True])
def test_neighbours_are_those_of_all_pairwise_distances(at_once, skip_self, monkeypatch):
    monkeypatch.setattr(neighbours, "_REFERENCES_AT_ONCE", at_once)
    z = torch.randn(53, 5, dtype=torch.float64) + 100  # far from the origin
    points = z if skip_self else torch.randn(11, 5, dtype=torch.float64) + 100
    distances = torch.cdist(points, z)
    if skip_self:
        distances.fill_diagonal_(torch.inf)
    expected = distances.topk(9, largest=False).indices
    assert torch.equal(ddcl.nearest_neighbours(points, z, 9, skip_self=skip_self), expected)


def test_blocks_of_points_change_nothing(monkeypatch):
    z = torch.randn(41, 3, dtype=torch.float64)
    whole = ddcl.nearest_neighbours(z, z, 4, skip_self=True)
    monkeypatch.setattr(neighbours, "block_rows", lambda *_: 6)
    assert torch.equal(ddcl.nearest_neighbours(z, z, 4, skip_self=True), whole)


def test_a_copy_of_a_point_is_its_neighbour_and_the_point_itself_is_not():
    z = torch.tensor([[0.0], [0.0], [5.0]])
    assert ddcl.nearest_neighbours(z, z, 1, skip_self=True).flatten().tolist()[:2] == [1, 0]


@pytest.mark.parametrize("steps", [1, 3])
def test_smoothing_is_the_matrix_it_stands_for(steps):
    z, x = torch.randn(37, 4, dtype=torch.float64), torch.randn(37, 3, dtype=torch.float64)
    P, expected = dense_walk(z, 5), x
    for _ in range(steps):
        expected = 0.7 * P @ expected + 0.3 * x
    found = ddcl.smooth_over(ddcl.neighbour_graph(z, 5), x, share=0.7, steps=steps)
    torch.testing.assert_close(found, expected)


def test_smoothing_tends_to_its_closed_form():
    z = torch.randn(37, 4, dtype=torch.float64)
    limit = 0.2 * torch.linalg.solve(torch.eye(37, dtype=z.dtype) - 0.8 * dense_walk(z, 5), z)
    torch.testing.assert_close(ddcl.smooth_over(ddcl.neighbour_graph(z, 5), z, share=0.8, steps=200), limit)


def test_smoothing_leaves_what_is_the_same_for_all_and_without_a_share_everything():
    graph = ddcl.neighbour_graph(torch.randn(29, 3), 4)
    constant = torch.ones(29, 2) * torch.tensor([3.0, -1.0])
    torch.testing.assert_close(ddcl.smooth_over(graph, constant), constant)
    x = torch.randn(29, 2)
    assert torch.equal(ddcl.smooth_over(graph, x, share=0.0), x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_single(dtype):
    z = torch.randn(31, 4).to(dtype)
    graph = ddcl.neighbour_graph(z, 3)
    assert torch.equal(graph.targets, ddcl.neighbour_graph(z.float(), 3).targets)
    found = ddcl.smooth_over(graph, z)
    assert found.dtype == dtype
    assert torch.equal(found, ddcl.smooth_over(graph, z.float()).to(dtype))


@pytest.mark.bad_input
def test_what_cannot_be_done_is_named():
    z = torch.randn(5, 2)
    with pytest.raises(ValueError, match="num_neighbours: got 5, expected at most 4"):
        ddcl.neighbour_graph(z, 5)
    with pytest.raises(ValueError, match=r"points: got shape \(5, 2\), expected \(N, 3\)"):
        ddcl.nearest_neighbours(z, torch.randn(5, 3), 1)
    with pytest.raises(ValueError, match="points: got 2, expected the 5 reference points"):
        ddcl.nearest_neighbours(z[:2], z, 1, skip_self=True)
    with pytest.raises(ValueError, match="share: got 1"):
        ddcl.smooth_over(ddcl.neighbour_graph(z, 2), z, share=1.0)
    with pytest.raises(ValueError, match=r"x: got shape \(4, 2\), expected \(5, m\)"):
        ddcl.smooth_over(ddcl.neighbour_graph(z, 2), z[:4])
