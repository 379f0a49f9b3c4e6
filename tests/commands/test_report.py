"""``ddcl report``: the page, the pictures, and what it says when it cannot."""

from __future__ import annotations

import html
import json
import re
import shutil

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


def test_embeddings_that_are_gone_are_said_and_the_rest_is_shown(fitted_once, run, capsys, monkeypatch):
    for name in ("map.json", "phases.json", "comparison.json"):
        (run / name).unlink()
    config = json.loads((run / "config.json").read_text())
    config["settings"]["source"] = str(fitted_once / "moved.npy")
    (run / "config.json").write_text(json.dumps(config))
    assert main(["report", str(run)]) == 0
    assert "without the map, the phases and the comparison" in capsys.readouterr().err
    page = (run / "report.html").read_text()
    assert 'id="map"' not in page
    assert page.count('class="card"') == 5


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["nowhere"], "nowhere is no run folder: it holds no config.json"),
        (["{run}", "--out", "{run}"], "is a folder, expected the name of a file"),
    ],
)
def test_what_can_be_put_right_is_one_sentence_and_status_2(run, capsys, given, said):
    assert main(["report", *(one.format(run=run) for one in given)]) == 2
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
