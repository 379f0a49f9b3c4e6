"""Starting points: quality, repair, bounds, errors."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import ddcl


def clusters(k: int = 8, each: int = 50, dim: int = 5, spread: float = 0.05) -> tuple[Tensor, Tensor]:
    centers = torch.randn(k, dim) * 5
    return (centers[:, None] + spread * torch.randn(k, each, dim)).flatten(0, 1), centers


def worst_match(found: Tensor, centers: Tensor) -> float:
    return float(torch.cdist(centers, found).min(-1).values.max())


@pytest.mark.parametrize("method", ["kmeans", "kmeans++", "farthest"])
def test_every_well_separated_cluster_gets_a_prototype(method, generator):
    z, centers = clusters()
    found = ddcl.initial_prototypes(z, 8, method=method, generator=generator)
    assert worst_match(found, centers) < (0.05 if method == "kmeans" else 0.4)


def test_kmeans_is_as_good_as_scikit_learns(generator):
    cluster = pytest.importorskip("sklearn.cluster")
    z = torch.randn(2000, 6)
    ours = ddcl.kmeans(z, 12, restarts=10, tolerance=0, generator=generator)
    theirs = cluster.KMeans(12, n_init=10, random_state=0).fit(z.numpy()).inertia_ / len(z)
    assert float(ours.distortion) <= 1.01 * theirs
    _, distance = ddcl.ops.nearest(z, ours.centers)
    torch.testing.assert_close(ours.distortion, distance.mean())


def test_kmeans_with_its_own_seeding_beats_one_random_start(generator):
    z, centers = clusters(k=20, spread=0.01)
    assert worst_match(ddcl.kmeans(z, 20, restarts=1, generator=generator).centers, centers) < 0.05


def test_an_empty_cell_is_moved_to_a_badly_served_token():
    from ddcl.functional.initialisation import _cell_means

    x = torch.tensor([[0.0], [1.0], [50.0]])
    centers = torch.tensor([[0.0], [999.0]])
    indices, distance = ddcl.ops.nearest(x, centers)
    assert (indices == 0).all()
    assert _cell_means(x, indices, distance, centers)[1] == 50


def test_more_restarts_never_hurt():
    z = torch.randn(400, 3)
    few, many = (ddcl.kmeans(z, 10, restarts=n, generator=torch.Generator().manual_seed(1)).distortion for n in (1, 8))
    assert many <= few


@pytest.mark.parametrize("method", ["kmeans", "kmeans++", "farthest"])
def test_the_same_generator_gives_the_same_prototypes(method):
    z = torch.randn(300, 4)
    one, two = (
        ddcl.initial_prototypes(z, 7, method=method, sample=100, generator=torch.Generator().manual_seed(3))
        for _ in range(2)
    )
    assert torch.equal(one, two)


def test_the_sample_is_drawn_evenly_from_all_batches(generator):
    from ddcl.functional.initialisation import _sample

    z = torch.arange(10_000.0)[:, None]
    drawn = _sample(z.split(37), 1, None, None, 2000, generator)[:, 0, 0]
    assert len(drawn.unique()) == 2000
    quarters = torch.histc(drawn, 4, 0, 10_000)
    assert ((quarters - 500).abs() < 5 * 500**0.5).all()


def test_the_default_sample_is_bounded(generator):
    from ddcl.functional.initialisation import _sample

    batches = (torch.randn(50_000, 2) for _ in range(3))
    assert len(_sample(batches, 4, None, None, None, generator)) == 65_536


def test_masked_and_batched_data_give_what_the_bare_tokens_give():
    z, centers = clusters()
    padded = torch.full((8, 60, 5), float("nan"))
    padded[:, :50] = z.view(8, 50, 5)
    mask = torch.arange(60).expand(8, 60) < 50
    for data, m in ((padded, mask), ([(padded[:4], mask[:4]), (padded[4:], mask[4:])], None), (z.split(100), None)):
        assert worst_match(ddcl.kmeans(data, 8, mask=m).centers, centers) < 0.05


def test_each_head_gets_its_own_bank():
    (a, centers_a), (b, centers_b) = clusters(dim=3), clusters(dim=3)
    found = ddcl.kmeans(torch.stack([a, b], 1), 8, num_heads=2)
    assert found.centers.shape == (2, 8, 3)
    assert found.distortion.shape == (2,)
    assert worst_match(found.centers[0], centers_a) < 0.05
    assert worst_match(found.centers[1], centers_b) < 0.05


def test_farthest_point_separates_more_than_kmeans_plus_plus(generator):
    z = torch.randn(500, 2)
    far, seeded = ddcl.farthest_point(z, 10), ddcl.kmeans_plus_plus(z, 10, generator=generator)
    assert ddcl.separation(far) > ddcl.separation(seeded)


def test_fewer_distinct_tokens_than_prototypes_is_said():
    with pytest.warns(UserWarning, match="only 2 distinct tokens for 4 prototypes"):
        ddcl.kmeans(torch.tensor([[0.0], [1.0]]).repeat(10, 1), 4, restarts=1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_dtypes_are_worked_on_in_the_arithmetics_dtype(dtype):
    z, centers = clusters()
    found = ddcl.kmeans(z.to(dtype), 8).centers
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert worst_match(found.float(), centers) < 0.1


@pytest.mark.bad_input
@pytest.mark.parametrize("method", ["kmeans", "kmeans++", "farthest"])
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"z": torch.randn(3, 2)}, ValueError, r"z: got 3 unmasked tokens, expected at least num_prototypes = 4"),
        ({"z": torch.tensor([[1.0], [float("nan")]] * 4)}, ValueError, r"z: 4 of 8 values are NaN or infinite"),
        ({"z": torch.tensor([[1.0], [float("inf")]] * 4)}, ValueError, r"z: 4 of 8 values are NaN or infinite"),
        ({"num_prototypes": 0}, ValueError, r"num_prototypes: got 0, expected an integer of at least 1"),
        ({"num_prototypes": 2.5}, TypeError, r"num_prototypes: got 2.5"),
        ({"sample": 3}, ValueError, r"sample: got 3, expected at least num_prototypes = 4"),
        ({"z": torch.zeros(9, 2, dtype=torch.int64)}, TypeError, r"z: got dtype torch.int64"),
        ({"z": 3}, TypeError, r"z: got int, expected a tensor or an iterable"),
        ({"mask": torch.ones(8, dtype=torch.bool)}, ValueError, r"mask: got shape \(8,\), expected \(9,\)"),
        ({"num_heads": 3}, ValueError, r"z: got shape \(9, 2\), expected \(..., 3, m\)"),
    ],
    ids=lambda x: "-".join(x) if isinstance(x, dict) else None,
)
def test_bad_data_is_refused_by_name(method, arguments, error, message):
    good = {"z": torch.randn(9, 2), "num_prototypes": 4}
    with pytest.raises(error, match=message):
        ddcl.initial_prototypes(**{**good, **arguments}, method=method)


@pytest.mark.bad_input
def test_an_unknown_method_lists_the_known_ones():
    with pytest.raises(ValueError, match="method: got 'random', expected one of 'kmeans', 'kmeans\\+\\+', 'farthest'"):
        ddcl.initial_prototypes(torch.randn(9, 2), 4, method="random")


def test_a_mask_beside_batches_says_where_it_belongs():
    with pytest.raises(TypeError, match="expected pairs"):
        ddcl.kmeans([torch.randn(9, 2)], 4, mask=torch.ones(9, dtype=torch.bool))
