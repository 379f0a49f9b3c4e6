"""What a run is drawn from: the heating of its bank, the map, and k-means beside it."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch

from ddcl.cli import main
from ddcl.fitting import charts, finished_run
from ddcl.fitting.charts import map_of, phases_of
from ddcl.fitting.comparing import comparison_of
from ddcl.fitting.heating import heat
from ddcl.fitting.layout import neighbour_map, principal_plane
from ddcl.functional import critical_temperature


def pairs_of_clusters(scale=1.0):
    """Four clusters, 0 and 1 near each other, 2 and 3 too; far between the pairs."""
    centers = torch.tensor([[-10.0, -2.0], [-10.0, 2.0], [10.0, -2.0], [10.0, 2.0]])
    rows = centers.repeat(60, 1) + 0.2 * torch.randn(240, 2, generator=torch.Generator().manual_seed(0))
    return scale * rows, scale * centers


def heated(scale=1.0):
    rows, centers = pairs_of_clusters(scale)
    critical = float(critical_temperature(rows, gradient="stop"))
    return heat(rows, centers, reading=critical / 200, critical=critical)


def test_near_prototypes_become_one_before_far_ones_do():
    found = heated()
    seen = [tuple(row) for row in found.groups.tolist()]
    assert list(dict.fromkeys(seen)) == [(0, 1, 2, 3), (0, 0, 2, 2), (0, 0, 0, 0)]
    assert found.distinct.tolist() == sorted(found.distinct.tolist(), reverse=True)
    # two points at distance 2a part at T = 2 a^2, whatever is far away: here a = 2 along, a = 10 across
    pair_met = float(found.temperatures[seen.index((0, 0, 2, 2))])
    all_met = float(found.temperatures[seen.index((0, 0, 0, 0))])
    assert pair_met == pytest.approx(2 * 2**2, rel=0.35)
    assert all_met == pytest.approx(found.critical, rel=0.35)


def test_merged_prototypes_are_in_one_place_and_the_rest_where_their_rows_are():
    found = heated()
    assert torch.equal(found.positions[-1, 0], found.positions[-1, 3])
    assert torch.allclose(found.positions[0], pairs_of_clusters()[1], atol=0.1)


def test_heating_does_not_depend_on_the_units_of_the_data():
    assert torch.equal(heated().groups, heated(scale=1000.0).groups)


def test_the_plane_shows_the_widest_directions_and_keeps_distances_within_it():
    rows = torch.randn(101, 7, generator=torch.Generator().manual_seed(0)) * torch.tensor([9.0, 5.0] + [0.01] * 5)
    seen = principal_plane(rows).of(rows)
    assert torch.allclose(torch.cdist(seen, seen), torch.cdist(rows, rows), atol=0.1)
    assert float(seen[:, 0].std()) > float(seen[:, 1].std())


def test_rows_of_one_dimension_have_a_plane_too():
    assert principal_plane(torch.tensor([[1.0], [2.0], [6.0]])).of(torch.tensor([[4.0]])).tolist() == [[1.0, 0.0]]


def test_a_map_of_neighbours_is_the_same_for_the_same_seed_and_none_for_a_handful():
    pytest.importorskip("sklearn")
    rows = pairs_of_clusters()[0][:40]
    assert torch.equal(neighbour_map(rows, 3), neighbour_map(rows, 3))
    assert neighbour_map(rows[:3], 3) is None
    assert neighbour_map(torch.ones(9, 4), 3) is None


@pytest.fixture(scope="session")
def fitted_once(tmp_path_factory):
    pytest.importorskip("sklearn")
    folder = tmp_path_factory.mktemp("charts")
    z, of = blobs()
    np.savez(folder / "labelled.npz", z=z, team=np.array(["red", "green", "blue", "red"])[of])
    data, out = str(folder / "labelled.npz"), str(folder / "run")
    assert main(["fit", data, "--labels", "team", "--epochs", "2", "--out", out]) == 0
    return folder / "run"


@pytest.fixture
def run(fitted_once, tmp_path):
    """A copy that may be spoilt."""
    return finished_run(shutil.copytree(fitted_once, tmp_path / "run"))


def blobs():
    """Four clusters far apart, and which one each row is of."""
    of = np.arange(200) % 4
    return (8 * np.eye(4, 6)[of] + 0.3 * np.random.default_rng(0).normal(size=(200, 6))).astype(np.float32), of


def test_charts_are_kept_and_made_again_when_they_are_gone(run):
    written = {name: (run.path / name).read_bytes() for name in ("map.json", "phases.json", "comparison.json")}
    for name in written:
        (run.path / name).unlink()
    assert run.map() is None
    assert run.phases() is None
    map_of(run), phases_of(run), comparison_of(run)
    assert {name: (run.path / name).read_bytes() for name in written} == written
    (run.path / "map.json").write_text('{"rows": []}')
    assert map_of(run) == run.map() == {"rows": []}


def test_the_map_has_a_place_for_every_row_and_prototype_and_the_phases_are_in_its_plane(run):
    K, found, phases = run.settings.prototypes, run.map(), run.phases()
    assert found["rows"] == list(range(200))
    for layout in (found["pca"], found["tsne"]):
        assert np.shape(layout["rows"]) == (200, 2)
        assert np.shape(layout["prototypes"]) == (K, 2)
    prototypes = run.read_model()["bank.prototypes"][0].numpy()
    mean, directions = np.array(found["plane"]["mean"]), np.array(found["plane"]["directions"])
    np.testing.assert_allclose((prototypes - mean) @ directions.T, found["pca"]["prototypes"], atol=1e-3)
    n = len(phases["temperatures"])
    assert np.shape(phases["positions"]) == (n, K, 2)
    assert np.shape(phases["groups"]) == (n, K)
    assert phases["distinct"] == [len(set(labels)) for labels in phases["groups"]]
    assert phases["reading"] == json.loads((run.path / "config.json").read_text())["result"]["reading"]["temperature"]


def test_a_bank_too_large_to_heat_is_not(run, monkeypatch):
    monkeypatch.setattr(charts, "MOST_HEATED", run.settings.prototypes - 1)
    assert phases_of(run) is None


def test_bank_and_k_means_are_compared_on_the_rows_held_out(run):
    found = comparison_of(run)
    held = sum(run.read_table("assignments.parquet")["held_out"].to_pylist())
    assert (found["measured_rows"], found["learned_rows"], found["held_out"]) == (held, 200 - held, True)
    assert found["restarts"] == 10
    for method in ("bank", "kmeans"):
        assert found[method]["purity"] == 1.0
        assert 0 < found[method]["distortion"] < 1


def test_a_broken_file_is_made_again(tmp_path, vectors):
    assert main(["fit", str(vectors), "--out", str(tmp_path / "run"), "--prototypes", "3", "--epochs", "2"]) == 0
    path = tmp_path / "run" / "phases.json"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert phases_of(finished_run(tmp_path / "run")) == json.loads(whole)


def test_the_plane_of_the_map_holds_far_from_the_origin(tmp_path):
    z = np.random.default_rng(0).normal(size=(200, 5)).astype(np.float32) * 20 + 1e5
    np.save(tmp_path / "far.npy", z)
    assert (
        main(["fit", str(tmp_path / "far.npy"), "--out", str(tmp_path / "run"), "--prototypes", "3", "--epochs", "2"])
        == 0
    )
    folder = finished_run(tmp_path / "run")
    plane, drawn = map_of(folder)["plane"], map_of(folder)["pca"]["rows"]
    found = (z[map_of(folder)["rows"]] - np.array(plane["mean"])) @ np.array(plane["directions"]).T
    assert np.abs(found - np.array(drawn)).max() < 0.1
