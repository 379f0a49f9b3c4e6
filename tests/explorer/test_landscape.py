"""The map and the phases as the page draws them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import ddcl
from ddcl.explorer import ExploredRun
from ddcl.explorer.landscape import Frame, Landscape, entropies


def test_a_frame_shows_everything_from_edge_to_edge():
    points = np.array([[[2.0, 10.0], [4.0, 10.5]], [[3.0, 12.0], [4.0, 11.0]]])
    frame = Frame(points[0], points[1])
    assert frame.places(points) == [[[-1.0, -1.0], [1.0, -0.5]], [[0.0, 1.0], [1.0, 0.0]]]
    assert Frame(points[0][:1]).places(points[0][:1]) == [[0.0, 0.0]]


def test_the_map_has_each_row_with_its_prototype_in_both_layouts(client):
    found = client.get("/api/map").json()
    rows = client.get("/api/rows", params={"limit": 200}).json()["rows"]
    assert found["rows"] == list(range(60))
    assert found["prototype"] == [row["prototype"] for row in rows]
    for layout in ("plane", "neighbours"):
        places = np.array(found[layout]["rows"] + found[layout]["prototypes"])
        assert places.shape == (65, 2)
        assert np.abs(places).max() <= 1
    assert np.abs(np.array(found["neighbours"]["rows"])).max() > 0.9


def test_the_phases_are_those_of_the_run_in_units_of_the_critical_temperature(client, texts_folder):
    kept = ddcl.fitting.RunFolder(texts_folder).phases()
    found = client.get("/api/phases").json()
    assert found["relative"] == pytest.approx([one / kept["critical"] for one in kept["temperatures"]])
    assert found["groups"] == kept["groups"]
    assert found["distinct"] == kept["distinct"] == [len(set(groups)) for groups in kept["groups"]]
    assert np.abs(np.array(found["positions"])).max() <= 1
    assert np.array(found["positions"]).shape == (len(kept["temperatures"]), 5, 2)
    # prototypes of one group are in one place
    for groups, places in zip(found["groups"], found["positions"], strict=True):
        assert len({tuple(place) for place in places}) <= len(set(groups))


def test_rows_are_as_undecided_as_the_mixtures_of_the_fitted_prototypes(vectors_folder):
    fitted = ddcl.load(vectors_folder)
    z = fitted.folder.rows().at(slice(None))
    expected = torch.special.entr(fitted.mixture(z)).sum(-1).mean()
    (found,) = entropies(z, fitted.prototypes, torch.tensor([fitted.temperature]))
    assert found == pytest.approx(float(expected), abs=1e-5)
    (hot,) = entropies(z, fitted.prototypes, torch.tensor([1e9]))
    assert hot == pytest.approx(np.log(3), abs=1e-5)


def test_without_neighbours_or_phases_there_is_the_plane():
    plane = {"rows": [[0.0, 0.0], [1.0, 2.0]], "prototypes": [[0.5, 1.0]]}
    landscape = Landscape({"rows": [3, 4], "pca": plane, "tsne": None}, None)
    drawn = landscape.drawn(np.zeros(5, dtype=np.int32))
    assert drawn == {
        "rows": [3, 4],
        "prototype": [0, 0],
        "plane": {"rows": [[-1.0, -1.0], [1.0, 1.0]], "prototypes": [[0.0, 0.0]]},
    }
    assert landscape.warmed(torch.zeros(1, 2), torch.zeros(1, 2)) is None


def test_a_run_whose_embeddings_are_gone_can_still_be_explored(own_folder):
    for name in ("embeddings.npy", "map.json", "phases.json"):
        (own_folder / name).unlink()
    run = ExploredRun(ddcl.load(own_folder))
    run.warm()
    assert run.map is None
    assert run.phases is None
    assert run.explain_text("my card")["examples"] == []
    with pytest.raises(ddcl.fitting.BadInputError, match="are no longer there"):
        run.explain_row(0)
