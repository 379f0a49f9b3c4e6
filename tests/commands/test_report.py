"""``ddcl report``: the page, the pictures, and what it says when it cannot."""

from __future__ import annotations

import html
import json
import re
import shutil
import warnings

import numpy as np
import pytest

import ddcl
from ddcl.cli import main

pytest.importorskip("pyarrow")
pytest.importorskip("safetensors")
pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

from ddcl.commands import report as command
from ddcl.report.page import contents


@pytest.fixture(scope="session")
def fitted_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    random = np.random.default_rng(0)
    of = np.arange(120) % 4
    np.save(folder / "vectors.npy", (8 * np.eye(4, 6)[of] + 0.3 * random.normal(size=(120, 6))).astype(np.float32))
    assert (
        main(["fit", str(folder / "vectors.npy"), "--prototypes", "5", "--epochs", "2", "--out", str(folder / "run")])
        == 0
    )
    return folder


@pytest.fixture
def run(fitted_once, tmp_path):
    """A copy that may be spoilt."""
    return shutil.copytree(fitted_once / "run", tmp_path / "run")


def test_the_page_asks_for_nothing_outside_itself(run):
    page = (run / "report.html").read_text()
    written = page[: page.index("<script>")]
    assert set(re.findall(r"(?:src|href)=[\"']?(.)", written)) == {"#"}
    assert not re.search(r"url\(|@import|https?://", page)
    assert "default-src 'none'" in html.unescape(page)
    assert len(page) < 5 * 2**20


def test_a_name_given_since_is_on_the_page_that_is_written_again(run, tmp_path, capsys):
    ddcl.load(run).rename(2, "the <second> corner")
    assert main(["report", str(run), "--out", str(tmp_path / "new" / "page.html")]) == 0
    assert "the &lt;second&gt; corner" in (tmp_path / "new" / "page.html").read_text()
    assert f"written to {tmp_path / 'new' / 'page.html'}" in capsys.readouterr().out


def test_a_run_that_is_not_healthy_says_so_first_and_why(run, capsys):
    config = json.loads((run / "config.json").read_text())
    config["result"] |= {"healthy": False, "troubles": ["prototypes 1 and 2 are in one place"]}
    (run / "config.json").write_text(json.dumps(config))
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    body = page[page.index("<main>") :]
    assert body.index("Not healthy") < body.index("prototypes 1 and 2 are in one place") < body.index("Comparison")


def test_every_picture_is_written_as_svg_and_png(run, tmp_path):
    assert main(["report", str(run), "--figures", str(tmp_path / "figures")]) == 0
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    drawn = ("training", "map", "assignment", "phases", "merges")
    assert names == {f"{name}.{ending}" for name in drawn for ending in ("svg", "png")}


def test_of_many_prototypes_the_largest_have_cards(run, monkeypatch):
    monkeypatch.setattr(contents, "MOST_CARDS", 3)
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    assert page.count('class="card"') == 3
    assert "the largest 3 are shown" in page


def test_only_prototypes_with_a_card_are_linked(run, monkeypatch):
    monkeypatch.setattr(contents, "MOST_CARDS", 2)
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    there = set(re.findall(r'id="([^"]+)"', page))
    links = set(re.findall(r'href="#([^"]+)"', page))
    assert any(link[1:].isdigit() for link in links)
    assert links <= there
    assert '<span class="called">' in page


def test_long_labels_and_control_characters_in_names_are_shown_cut_and_as_pictures(tmp_path):
    labels = ["first " + "a" * 20_000, "second\x07\x1b[31m"]
    column = "bell\x07" + "c" * 2_000
    z = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    np.savez(tmp_path / "labelled.npz", **{"z": z, column: np.array(labels)[np.arange(40) % 2]})
    given = ["--text", "z", "--labels", column, "--prototypes", "3", "--epochs", "1"]
    assert main(["fit", str(tmp_path / "labelled.npz"), "--out", str(tmp_path / "run\x07"), *given]) == 0
    page = (tmp_path / "run\x07" / "report.html").read_text()
    assert len(page) < 2**18
    assert not re.search(r"[\x00-\x08\x0b-\x1f]|\\u0007|\\u001b", page)
    assert "<title>run␇: 3 prototypes</title>" in page
    assert f"bell␇{'c' * 55}…, 2 classes" in page
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert {row["label"] for row in data["rows"]} == {f"first {'a' * 54}…", "second␇␛[31m"}


def test_the_page_says_nothing_of_where_the_run_lay(fitted_once, run):
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    assert str(run.parent) not in page
    assert str(fitted_once) not in page
    assert "ddcl.load(&#39;run&#39;)" in page


def test_embeddings_that_are_gone_are_said_and_the_rest_is_shown(fitted_once, run, capsys, monkeypatch):
    for name in ("map.json", "phases.json", "comparison.json"):
        (run / name).unlink()
    config = json.loads((run / "config.json").read_text())
    config["settings"]["source"] = str(fitted_once / "moved.npy")
    (run / "config.json").write_text(json.dumps(config))
    assert main(["report", str(run)]) == 0
    said = capsys.readouterr().err
    assert said.startswith("without the map, the phases and the comparison with k-means: the embeddings of ")
    assert said.count("\n") == 1
    page = (run / "report.html").read_text()
    assert "Left out: the map, the phases and the comparison with k-means, as the embeddings" in page
    assert 'id="map"' not in page
    assert page.count('class="card"') == 5


@pytest.mark.parametrize(
    ("gone", "name", "mark"),
    [
        ("map.json", "the map", 'id="map"'),
        ("phases.json", "the phases", 'id="phases"'),
        ("comparison.json", "the comparison with k-means", "Beside k-means"),
    ],
)
def test_without_embeddings_only_what_is_not_in_the_folder_is_left_out(fitted_once, run, capsys, gone, name, mark):
    (run / gone).unlink()
    config = json.loads((run / "config.json").read_text())
    config["settings"]["source"] = str(fitted_once / "moved.npy")
    (run / "config.json").write_text(json.dumps(config))
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().err.startswith(f"without {name}: ")
    page = (run / "report.html").read_text()
    assert f"Left out: {name}, as the embeddings" in page
    there = {one for one in ('id="map"', 'id="phases"', "Beside k-means") if one in page}
    assert there == {'id="map"', 'id="phases"', "Beside k-means"} - {mark}


def test_a_whole_page_leaves_nothing_out(run):
    assert "Left out" not in (run / "report.html").read_text()


def test_titles_in_any_script_are_drawn_without_a_warning(run, tmp_path, capsys):
    ddcl.load(run).rename(0, "tab\tbell\x07 \u6f22\u5b57 \u05e9\u05dc\u05d5\u05dd $\\frac$")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["report", str(run), "--figures", str(tmp_path / "figures")]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["nowhere"], "nowhere is no run folder: it holds no config.json"),
        (["{run}", "--out", "{run}"], "is a folder, expected the name of a file"),
        (["{run}", "--figures", "{run}/config.json"], "config.json is a file, expected the name of a folder"),
        (["{run}", "--figures", "{run}/config.json/new"], "config.json is a file, expected the name of a folder"),
    ],
)
def test_what_can_be_put_right_is_one_sentence_and_status_2(run, capsys, given, said):
    (run / "report.html").unlink()
    assert main(["report", *(one.format(run=run) for one in given)]) == 2
    assert not (run / "report.html").exists()
    complaint = capsys.readouterr().err
    assert said in complaint
    assert complaint.count("\n") == 1


def test_a_page_that_cannot_be_written_is_status_1_and_leaves_the_old_one(run, capsys, monkeypatch):
    def full(*_):
        raise OSError("No space left on device")

    before = (run / "report.html").read_bytes()
    monkeypatch.setattr("ddcl.data.shards.os.fsync", full)
    assert main(["report", str(run)]) == 1
    assert "failed: No space left on device" in capsys.readouterr().err
    assert (run / "report.html").read_bytes() == before
    assert not list(run.glob("*.partial"))


def test_a_fit_whose_report_fails_is_a_fit_all_the_same(fitted_once, tmp_path, capsys, monkeypatch):
    def fail(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(command, "write_page", fail)
    data = str(fitted_once / "vectors.npy")
    assert main(["fit", data, "--prototypes", "4", "--epochs", "1", "--out", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert "the report could not be written (No space left on device); the run is whole without it" in shown
    assert ddcl.load(tmp_path / "run").prototypes.shape == (4, 6)
