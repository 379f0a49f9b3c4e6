"""The satellite catalogue: typed columns, and an account of what was left out."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from ddcl.data import MissingDataError, available, load_satellites

ROWS = """\
name,orbit_class,semi_major_axis_km,eccentricity,inclination_deg,period_min,perigee_km,apogee_km
"Low, one",LEO,6949.0,0.001,36.9,96.0,566,576
Far,GEO,42164.0,0.0,0.1,1436,35780,35790
No period,LEO,7000.0,0.002,97.5,,600,620
Nonsense,LEO,7000.0,575,97.5,97,600,620
Stretched,Elliptical,26560.0,0.74,63.4,718,500,39800
Bare,MEO,,,55,718,,
"""


@pytest.fixture
def _catalogue(tmp_path, monkeypatch):
    (tmp_path / "ucs_satellites").mkdir()
    with gzip.open(tmp_path / "ucs_satellites" / "ucs_satellites.csv.gz", "wt") as file:
        file.write(ROWS)
    monkeypatch.setenv("DDCL_DATA", str(tmp_path))


@pytest.mark.usefixtures("_catalogue")
def test_rows_without_an_element_or_with_an_impossible_one_are_dropped_and_counted():
    table = load_satellites()
    assert table.names == ["Low, one", "Far", "Stretched"]
    assert [table.classes[label] for label in table.labels] == ["LEO", "GEO", "Elliptical"]
    np.testing.assert_array_equal(table.elements["eccentricity"], [0.001, 0.0, 0.74])
    assert table.elements["apogee_km"].dtype == np.float64
    assert (len(table), table.dropped, table.impossible) == (3, 3, 1)
    assert table.missing == {
        "semi_major_axis_km": 1,
        "eccentricity": 1,
        "inclination_deg": 0,
        "period_min": 1,
        "perigee_km": 1,
        "apogee_km": 1,
    }


@pytest.mark.usefixtures("_catalogue")
def test_asking_for_fewer_elements_keeps_more_rows():
    table = load_satellites(["inclination_deg", "semi_major_axis_km"])
    assert table.names == ["Low, one", "Far", "No period", "Nonsense", "Stretched"]
    assert table.matrix("semi_major_axis_km", "inclination_deg")[1].tolist() == [42164.0, 0.1]
    with pytest.raises(ValueError, match=r"elements: got \['mass'\]; known: semi_major_axis_km"):
        load_satellites(["mass"])


def test_without_the_file_its_origin_is_named(monkeypatch):
    monkeypatch.delenv("DDCL_DATA", raising=False)
    with pytest.raises(MissingDataError, match=r"ucs_satellites\.csv\.gz .*ucsusa\.org"):
        load_satellites()


@pytest.mark.usefixtures("_catalogue")
def test_available_says_what_is_where(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.parquet").touch()
    found = {one.name: one for one in available()}
    assert found["ucs_satellites"].where == str(tmp_path)
    assert found["mine"].splits == ("train",)
    assert found["imdb"].where is None
    assert found["imdb"].splits == ()
    assert found["digits"].where in {"scikit-learn", None}


def test_the_real_catalogue_has_four_unbalanced_classes():
    if not any(one.name == "ucs_satellites" and one.where for one in available()):
        pytest.skip("needs the set in a data folder (DDCL_DATA)")
    table = load_satellites()
    # docs/data.md tells these
    assert (len(table), table.dropped, table.impossible) == (7560 - 72, 72, 7)
    assert load_satellites(["semi_major_axis_km", "eccentricity", "inclination_deg"]).dropped == 20
    counts = np.bincount(table.labels, minlength=4)
    assert counts.argmax() == table.classes.index("LEO")
    assert counts.min() > 50
