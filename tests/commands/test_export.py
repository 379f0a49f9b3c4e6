"""``ddcl export``: what it says, and one sentence for what cannot be."""

from __future__ import annotations

import json
import os
import shutil
import sys

import numpy as np
import pytest

from ddcl.cli import main
from ddcl.fitting.exporting import exported

pytestmark = [
    pytest.mark.compiled,
    # PyTorch's own modules warn about each other while tracing
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(scope="session")
def fitted_run(tmp_path_factory):
    pytest.importorskip("pyarrow")
    pytest.importorskip("safetensors")
    folder = tmp_path_factory.mktemp("export")
    random = np.random.default_rng(0)
    np.save(folder / "z.npy", 8 * np.eye(4, 6)[np.arange(80) % 4] + random.normal(size=(80, 6)))
    assert main(["fit", str(folder / "z.npy"), "--out", str(folder / "run"), "--epochs", "2", "--prototypes", "4"]) == 0
    return folder / "run"


def export(*arguments):
    return main(["export", *map(str, arguments)])


def complaint(capsys):
    shown = capsys.readouterr()
    assert shown.out == ""
    (sentence,) = shown.err.splitlines()
    assert sentence.startswith("ddcl export: ")
    return sentence


def test_it_says_what_goes_in_what_comes_out_and_how_near_it_is(fitted_run, tmp_path, capsys):
    assert export(fitted_run, "--format", "torch", "--out", tmp_path / "a.pt2") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith(f"written to {tmp_path / 'a.pt2'} (0.0 MiB")
    assert shown[1:5] == [
        "  in   embeddings (N, 6)",
        "  out  mixture (N, 4)",
        "  out  centroid (N, 6)",
        "  out  prototype (N)",
    ]
    assert shown[5] == "checked against the original on 72 rows of the run, in batches of 1, 7 and 64:"
    for line, name in zip(shown[6:], ("mixture", "centroid", "prototype"), strict=True):
        output, _, _, found, _, allowed = line.split()
        assert output == name
        assert float(found.rstrip(",")) <= float(allowed) < 1e-3


def test_without_a_name_it_lies_in_the_run_folder(fitted_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(fitted_run, run)
    assert export(run, "--format", "torch") == 0
    assert (run / "readout.pt2").is_file()
    assert not list(run.glob("*.partial"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--what", "whole"], "was fitted to embeddings, so there is no encoder to export"),
        (["--out", "model.bin"], "expected the name of a file that ends in .onnx"),
        (["--format", "torch", "--opset", "18"], "only ONNX has operator sets"),
        (["--opset", "7"], "opset: got 7, expected a number from 18 to"),
        (["--out", "there.onnx"], "exists already"),
    ],
)
def test_what_can_be_put_right_is_one_sentence_and_status_2(fitted_run, tmp_path, monkeypatch, capsys, options, said):
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.onnx").write_text("")
    before = set(os.listdir(fitted_run))
    assert export(fitted_run, *options) == 2
    assert said in complaint(capsys)
    assert os.listdir(tmp_path) == ["there.onnx"]
    assert set(os.listdir(fitted_run)) == before


def test_an_unfinished_run_and_what_is_no_run_are_refused(fitted_run, tmp_path, capsys):
    assert export(tmp_path) == 2
    assert "is no run folder" in complaint(capsys)
    run = tmp_path / "run"
    shutil.copytree(fitted_run, run)
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "state": "interrupted"}))
    assert export(run) == 2
    assert "is not finished" in complaint(capsys)


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "onnxscript"])
def test_a_package_that_is_missing_is_named_with_its_extra(fitted_run, monkeypatch, capsys, package):
    monkeypatch.setitem(sys.modules, package, None)
    assert export(fitted_run) == 2
    assert complaint(capsys).endswith("pip install 'ddcl[export]'")


def test_a_program_that_differs_is_a_failure(fitted_run, tmp_path, monkeypatch, capsys):
    made = exported.program_of

    def colder(fitted, what):
        program = made(fitted, what)
        program.module.temperature.div_(3)
        return program

    monkeypatch.setattr(exported, "program_of", colder)
    assert export(fitted_run, "--format", "torch", "--out", tmp_path / "a.pt2") == 1
    assert "nothing was written: the exported program differs from the original: mixture by" in complaint(capsys)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("error", "said"), [(KeyboardInterrupt(), "interrupted"), (OSError(28, "No space"), "No space")]
)
def test_an_interruption_or_a_full_disk_leaves_nothing(fitted_run, tmp_path, monkeypatch, capsys, error, said):
    def broken(program, path, *_):
        path.write_bytes(b"half")
        raise error

    monkeypatch.setattr(exported, "write_program", broken)
    assert export(fitted_run, "--format", "torch", "--out", tmp_path / "a.pt2") == 1
    assert said in complaint(capsys)
    assert os.listdir(tmp_path) == []
