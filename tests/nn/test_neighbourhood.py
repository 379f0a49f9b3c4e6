"""The encoder that neighbours make."""

from __future__ import annotations

import pytest
import torch

import ddcl


def arcs(per_arc: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Two long arcs about each other, in 6 dimensions: neighbours tell them apart, distances do not."""
    angle = torch.pi * torch.rand(2, per_arc, generator=generator)
    upper = torch.stack([angle[0].cos(), angle[0].sin()], -1)
    lower = torch.stack([1 - angle[1].cos(), 0.3 - angle[1].sin()], -1)
    plane = torch.cat([upper, lower]) + 0.05 * torch.randn(2 * per_arc, 2, generator=generator)
    z = torch.cat([plane, 0.05 * torch.randn(2 * per_arc, 4, generator=generator)], -1)
    return z, torch.arange(2).repeat_interleave(per_arc)


def test_vectors_are_the_formula_written_out(generator):
    z = torch.randn(61, 7, dtype=torch.float64, generator=generator)
    encoder = ddcl.NeighbourhoodEncoder(7, 3, num_neighbours=4, share=0.6, steps=9, dtype=torch.float64).fit(z)
    h = ddcl.smooth_over(ddcl.neighbour_graph(z, 4), z - z.mean(0), share=0.6, steps=9)
    u = h / h.norm(dim=-1, keepdim=True)
    V = torch.linalg.svd(u - u.mean(0), full_matrices=False).Vh[:3].T
    y = (u - u.mean(0)) @ V
    y = y / y.norm(dim=-1, keepdim=True)
    # directions are known up to their sign
    torch.testing.assert_close(encoder.fitted @ encoder.fitted.T, y @ y.T)


def test_a_new_vector_obeys_the_equation_of_the_fitted(generator):
    z, new = torch.randn(50, 5, generator=generator), torch.randn(3, 5, generator=generator)
    encoder = ddcl.NeighbourhoodEncoder(5, 5, num_neighbours=6, share=0.7).fit(z)
    around = encoder.smoothed[ddcl.nearest_neighbours(new, z, 6)].mean(1)
    h = 0.3 * (new - z.mean(0)) + 0.7 * around
    y = (h / h.norm(dim=-1, keepdim=True) - encoder.common) @ encoder.directions
    torch.testing.assert_close(encoder(new), y / y.norm(dim=-1, keepdim=True))


def test_neither_the_origin_nor_the_scale_of_the_embeddings_matters(generator):
    z = torch.randn(80, 6, dtype=torch.float64, generator=generator)
    make = {"num_neighbours": 5, "dtype": torch.float64}
    one = ddcl.NeighbourhoodEncoder(6, 4, **make).fit(z).fitted
    other = ddcl.NeighbourhoodEncoder(6, 4, **make).fit(7 * z + 3).fitted
    torch.testing.assert_close(one @ one.T, other @ other.T)


def test_it_separates_what_neighbours_tell_apart_and_k_means_does_not(generator):
    z, arc = arcs(300, generator)

    def agreement(vectors):
        centers = ddcl.kmeans(vectors, 2, generator=generator).centers
        share = (ddcl.readout(vectors, centers, 1.0).indices == arc).float().mean()
        return float(torch.maximum(share, 1 - share))

    assert agreement(z) < 0.9
    encoder = ddcl.NeighbourhoodEncoder(6, 2, num_neighbours=10, share=0.999, steps=3000).fit(z)
    assert agreement(encoder.fitted) > 0.98


def test_new_vectors_come_with_any_leading_shape_and_keep_their_dtype(generator):
    encoder = ddcl.NeighbourhoodEncoder(5, 2, num_neighbours=3).fit(torch.randn(20, 5, generator=generator))
    new = torch.randn(2, 3, 5, generator=generator)
    assert encoder(new).shape == (2, 3, 2)
    torch.testing.assert_close(encoder(new)[1, 2], encoder(new[1, 2]))
    assert encoder(new.bfloat16()).dtype == torch.bfloat16


def test_what_it_was_fitted_to_is_saved_and_loaded(generator):
    z, new = torch.randn(30, 5, generator=generator), torch.randn(4, 5, generator=generator)
    encoder = ddcl.NeighbourhoodEncoder(5, 3, num_neighbours=4).fit(z)
    other = ddcl.NeighbourhoodEncoder(5, 3, num_neighbours=4)
    other.load_state_dict(encoder.state_dict())
    assert torch.equal(other(new), encoder(new))
    assert torch.equal(other.fitted, encoder.fitted)


def test_it_keeps_a_copy_of_what_it_was_fitted_to(generator):
    z = torch.randn(30, 5, generator=generator)
    encoder = ddcl.NeighbourhoodEncoder(5, 3, num_neighbours=4).fit(z)
    before = encoder(torch.ones(1, 5))
    z.zero_()
    assert torch.equal(encoder(torch.ones(1, 5)), before)


def test_errors_say_what_to_do():
    with pytest.raises(RuntimeError, match="call fit first"):
        ddcl.NeighbourhoodEncoder(5, 3)(torch.randn(2, 5))
    with pytest.raises(ValueError, match="out_dim: got 64, expected at most dim = 5"):
        ddcl.NeighbourhoodEncoder(5)
    with pytest.raises(ValueError, match=r"z: got shape \(9, 4\), expected \(N, 5\)"):
        ddcl.NeighbourhoodEncoder(5, 3).fit(torch.randn(9, 4))
