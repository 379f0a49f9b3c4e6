"""What the documents show runs, and nothing in them depends on the machine they were written on."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
PARADIGMS = [page for page in PAGES if page.parent.name == "paradigms" and page.name != "README.md"]
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.name != "__init__.py")


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page)], ids=lambda p: p.name)
def test_the_code_on_a_page_runs_from_top_to_bottom(page, capsys, tmp_path):
    names: dict[str, object] = {"__name__": "page"}
    # a page may set variables and fill a cache
    with patch.dict(os.environ, {"DDCL_CACHE": str(tmp_path)}):
        for block in python_blocks(page):
            exec(compile(block, str(page), "exec"), names)
    # a comment "# prints X" after a print is a promise
    promised = [
        line.split("# prints ", 1)[1].strip()
        for block in python_blocks(page)
        for line in block.splitlines()
        if "# prints " in line
    ]
    printed = capsys.readouterr().out.splitlines()
    assert printed[: len(promised)] == promised
    if page in PARADIGMS:  # the picture on the page is what its code draws: `make figures` saves it
        assert names["figure"].axes


@pytest.mark.slow
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda p: p.name)
def test_an_example_runs_quickly_and_says_something(script, tmp_path):
    done = subprocess.run(
        [sys.executable, str(script), "--quick"], capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_inside_the_repository_lead_somewhere(page):
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PARADIGMS, ids=lambda p: p.name)
def test_a_paradigm_has_code_and_the_picture_drawn_by_it(page):
    text = page.read_text()
    assert len(python_blocks(page)) >= 2
    assert f"](figures/{page.stem}.svg)" in text
    assert f"({page.name})" in (page.parent / "README.md").read_text()


def test_the_speed_table_in_the_readme_is_the_committed_record():
    with (ROOT / "benchmarks" / "results" / "core.csv").open() as file:
        record = {(r["N"], r["m"], r["K"], r["pass"], r["implementation"]): r for r in csv.DictReader(file)}
    lines = re.findall(
        r"^\| (\d+), (\d+), (\d+) \| (.+), (.+) \| (.+), (.+) \| (.+) \|$", (ROOT / "README.md").read_text(), re.M
    )
    assert len(lines) == 12
    for N, m, K, *shown in lines:
        cells = [record[N, m, K, p, i] for p in ("forward", "forward+backward") for i in ("plain", "cdist")]
        expected = [f"{float(cell['ratio_to_eager']):.2f}" for cell in cells]
        assert shown == [*expected, f"{float(cells[2]['memory_ratio_to_eager']):.1f}"]


def test_the_figures_of_a_million_rows_are_the_committed_record():
    with (ROOT / "benchmarks" / "results" / "fit.csv").open() as file:
        ours, theirs = csv.DictReader(file)
    assert (ours["method"], ours["N"], theirs["method"]) == ("ddcl fit", "1000000", "MiniBatchKMeans")
    memory = float(ours["peak_mib"]) / 1024
    longer, distortion = (float(ours[name]) / float(theirs[name]) for name in ("seconds", "distortion"))
    shown = f"take {memory:.1f} GiB of memory and {longer:.2f} times as long as scikit-learn's `MiniBatchKMeans`"
    assert f"{shown}, at {distortion:.3f} of its distortion" in (ROOT / "docs" / "fit.md").read_text()


def test_the_figures_of_the_deletion_test_are_the_committed_record():
    from ddcl.explain.deletion import Comparison, DeletionTest
    from ddcl.explain.markdown import check_markdown

    record = json.loads((ROOT / "results" / "explain.json").read_text())
    found = DeletionTest(
        tuple(Comparison(**one) for one in record["comparisons"]), record["rows"], record["seed"], record["verdict"]
    )
    table = "\n".join(line for line in check_markdown(found).splitlines() if line.startswith("|"))
    page = (ROOT / "docs" / "explain.md").read_text()
    assert table in page
    assert f"{record['run']['prototypes']} prototypes" in page


def test_the_speed_of_exported_programs_is_the_committed_record():
    with (ROOT / "benchmarks" / "results" / "export.csv").open() as file:
        record = {(r["what"], r["batch"], r["program"]): float(r["ratio_to_fitted"]) for r in csv.DictReader(file)}
    one, text, texts = (
        f"{record[(*cell, 'onnx')]:.2f}" for cell in (("readout", "1"), ("whole", "1"), ("whole", "64"))
    )
    shown = f"one embedding take {one} of the time they take by `fitted`, those of one text {text}, "
    assert f"{shown}those of 64 texts {texts}" in (ROOT / "docs" / "deploy.md").read_text()


def test_the_gpu_table_in_the_readme_is_the_committed_record():
    with (ROOT / "results" / "kernels.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["item"] == "whole" and row["median_ms"]]
    record = {(r["candidate"], int(r["N"]), int(r["m"]), int(r["K"]), r["kind"], r["timed_by"]): r for r in rows}
    lines = re.findall(
        r"^\| 2\^(\d+), (\d+), (\d+) \| (.+) \| (.+) \| (.+) \|$", (ROOT / "README.md").read_text(), re.M
    )
    assert len(lines) == 7
    for power, m, K, *shown in lines:
        size = (2 ** int(power), int(m), int(K))
        expected = []
        for kind in ("forward", "forward+backward"):
            ours = record[("operation:triton", *size, kind, "graph")]
            time, floor = float(ours["median_ms"]), float(ours["floor_ms"])
            compiled = record.get(("compiled", *size, kind, "graph"))
            ratio = f"{float(compiled['median_ms']) / time:.1f}" if compiled else "-"
            expected.append(f"{time:.3f} ms, {100 * floor / time:.0f} %, {ratio}")
        ours = record[("operation:triton", *size, "forward+backward", "graph")]
        others = [record[(name, *size, "forward+backward", "events")] for name in ("plain", "vq-ema")]
        memory = [f"{float(ours['memory_ratio']):.2f}", *(f"{float(row['memory_ratio']):.0f}" for row in others)]
        assert shown == [*expected, ", ".join(memory)]


def test_the_collapse_table_in_the_readme_is_the_committed_record():
    from ddcl.experiments.collapse import battery

    table = battery.summary(battery.read(ROOT / "results" / "collapse.csv"))
    assert table in (ROOT / "README.md").read_text()


def test_the_clustering_figures_in_the_readme_are_the_committed_record():
    with (ROOT / "results" / "newsgroups.csv").open() as file:
        rows = list(csv.DictReader(file))
    ours, theirs = (sum(float(row[name]) for row in rows) / len(rows) for name in ("acc", "kmeans_acc"))
    assert f"(accuracy {ours:.3f} against {theirs:.3f}, {len(rows)} seeds" in (ROOT / "README.md").read_text()
    assert all(row["distinct"] == "20" for row in rows)


def test_the_table_of_sets_is_the_catalogue():
    from ddcl.data import SETS

    lines = []
    for known in SETS.values():
        rows = " / ".join(f"{count:,} {split}" for split, count in known.rows.items())
        homes = ", ".join(f"{home.package}: {home.address}" for home in known.homes) or "-"
        homes = "comes with ddcl" if known.shipped else homes
        cells = (known.name, known.kind, rows, len(known.classes), known.licence, known.attribution, homes)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    assert "\n".join(lines) in (ROOT / "docs" / "data.md").read_text()
