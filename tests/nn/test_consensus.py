"""Vectors that count on how many runs two tokens part."""

from __future__ import annotations

import pytest
import torch

import ddcl


def test_squared_distances_count_the_runs_that_part_two_tokens(generator):
    x = torch.randn(83, 3, dtype=torch.float64, generator=generator)
    encoder = ddcl.ConsensusEncoder(3, 4, 15, num_runs=5, dtype=torch.float64).fit(x, generator=generator)
    codes = encoder.codes(x)
    parted = (codes[:, None] != codes).sum(-1)
    assert len(parted.unique()) > 2  # the runs do not all agree
    torch.testing.assert_close(torch.cdist(encoder(x), encoder(x)).square(), 2 / 5 * parted.double())


def test_vectors_lie_about_the_origin_along_their_leading_directions(generator):
    x = torch.randn(200, 3, dtype=torch.float64, generator=generator)
    encoder = ddcl.ConsensusEncoder(3, 4, 6, num_runs=5, dtype=torch.float64).fit(x, generator=generator)
    moments = ddcl.covariance(encoder(x))
    torch.testing.assert_close(moments.mean, torch.zeros(6, dtype=torch.float64))
    torch.testing.assert_close(moments.matrix, moments.matrix.diagonal().sort(descending=True).values.diag())


def test_what_was_fitted_is_saved_and_serves_any_leading_shape_and_dtype(generator):
    x = torch.randn(50, 3, generator=generator)
    encoder = ddcl.ConsensusEncoder(3, 4, 6, num_runs=5).fit(x, generator=generator)
    other = ddcl.ConsensusEncoder(3, 4, 6, num_runs=5)
    other.load_state_dict(encoder.state_dict())
    assert torch.equal(other(x.reshape(5, 10, 3)), encoder(x).reshape(5, 10, 6))
    assert encoder(x.bfloat16()).dtype == torch.bfloat16


def test_more_dimensions_than_there_are_is_refused():
    with pytest.raises(ValueError, match=r"out_dim: got 64, expected at most R \(K - 1\) = 15"):
        ddcl.ConsensusEncoder(3, 4, num_runs=5)
