"""What docs/reproduce shows is what the committed records say."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs" / "reproduce").glob("*.md"))
SPEC = spec_from_file_location("fill_reproductions", ROOT / "docs" / "fill_reproductions.py")
filling = module_from_spec(SPEC)
SPEC.loader.exec_module(filling)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_and_sentences_on_a_page_are_those_of_its_record(page):
    text = page.read_text(encoding="utf-8")
    assert filling.filled(text) == text, "run `python docs/fill_reproductions.py`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_marks_every_part_it_takes_from_a_record(page):
    text = page.read_text(encoding="utf-8")
    opened = text.count("<!-- table:") + text.count("<!-- notes:")
    assert opened == text.count("<!-- end -->") == len(list(filling.MARKED.finditer(text)))


def test_a_page_that_differs_from_its_record_is_noticed():
    text = "before\n<!-- table: debris -->\n\n| made up |\n\n<!-- end -->\nafter"
    found = filling.filled(text)
    assert "made up" not in found
    assert "| synthetic |" in found
    assert found.startswith("before\n")
    assert found.endswith("\nafter")


def test_the_readmes_table_is_what_the_records_say():
    from ddcl.experiments.reproduce.record import read
    from ddcl.experiments.reproduce.summary import average

    def figure(name, case, method, metric, digits=3, scale=1.0):
        value = average(read(filling.RECORDS / f"{name}.jsonl"), case, method, metric)
        return f"{scale * value:.{digits}f}"

    paper, encoders = "the paper's recipe", ("all-MiniLM-L6-v2", "all-mpnet-base-v2")

    def both(case, method, metric):
        return "; ".join(figure("readout", f"{case}, {encoder}", method, metric) for encoder in encoders)

    sst2, news, linear = "SST-2 (K = 2)", "20 Newsgroups (K = 20)", "CLS + logistic regression"
    orbits = [figure("debris", "synthetic", method, "acc") for method in ("k-means, m = 5", paper, "default")]
    rival, grey, ours = (
        figure("vq", "K = 64", method, "mse", digits, 1e3)
        for method, digits in (("EMA, k-means start, restarts", 2), (paper, 1), ("ddcl, default", 2))
    )
    usage = [figure("vq", "K = 64", method, "paper_usage", 0, 100) for method in (paper, "ddcl, default")]
    rows = [
        f"| orbital regimes, ACC (k-means {orbits[0]}) | 0.772 | {orbits[1]} | {orbits[2]} |",
        f"| SST-2, test accuracy ({linear} {both(sst2, linear, 'test_accuracy')}) "
        f"| 0.867 with BERT | {both(sst2, paper, 'test_accuracy')} | {both(sst2, 'default', 'test_accuracy')} |",
        f"| 20 Newsgroups, ACC (k-means {both(news, 'k-means on mean pooling', 'acc')}) | 0.175 with BERT "
        f"| {both(news, paper, 'acc')} | {both(news, 'default', 'acc')} |",
        f"| CIFAR-10 codes, K = 64, hard MSE, 1e-3 (best rival {rival}) | not reported | {grey}, grey pictures "
        f"| {ours} |",
        f"| the same, usage by the paper's figure | 100 % | {usage[0]} % | {usage[1]} % |",
    ]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for row in rows:
        assert row in text, row
