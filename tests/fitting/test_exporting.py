"""Exported programs: the same values as the fitted model, any batch, nothing kept that differs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_encoder import write_encoder

import ddcl
from ddcl.cli import main
from ddcl.fitting import BadInputError
from ddcl.fitting.exporting import ExportError, MismatchError, checking, exported, files
from ddcl.fitting.exporting.programs import ReadoutProgram, WholeProgram

pytestmark = [
    pytest.mark.compiled,
    # PyTorch's and transformers' own modules warn about each other while tracing
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
FORMATS = ("onnx", "torch")
TEXTS = ["my card was declined", "the cat sat", "my card", "the cats sat the cats", "", "<script>my</script>"]
NAME = '<b>cards "declined" \U0001f4b3 כרטיס\x07'


@pytest.fixture(autouse=True)
def _packages():
    for package in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(package)


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Fitted once for all tests: embeddings, embeddings with a head, texts with a head."""
    pytest.importorskip("pyarrow")
    pytest.importorskip("safetensors")
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("runs")
    random = np.random.default_rng(0)
    of = np.arange(120) % 4
    z = (8 * np.eye(4, 7)[of] + random.normal(size=(120, 7))).astype(np.float32)
    np.save(folder / "z.npy", z)
    np.savez(folder / "z.npz", z=z, team=np.array(["red", "green", "blue", "red"])[of])
    rows = [json.dumps({"text": text, "place": "bank" if "my" in text else "home"}) for text in TEXTS * 4]
    (folder / "texts.jsonl").write_text("\n".join(rows))
    encoder = write_encoder(folder / "tiny")
    asked = {
        "embeddings": ["z.npy", "--prototypes", "5"],
        "head": ["z.npz", "--labels", "team"],
        "texts": ["texts.jsonl", "--labels", "place", "--encoder", str(encoder), "--prototypes", "3"],
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("DDCL_CACHE", str(folder / "cache"))
        for name, (data, *options) in asked.items():
            out = str(folder / name)
            assert main(["fit", str(folder / data), "--out", out, "--epochs", "3", *options]) == 0
    ddcl.load(folder / "head").rename(1, NAME)
    return folder


@pytest.fixture
def fitted(runs):
    return lambda name: ddcl.load(runs / name)


@pytest.fixture(scope="session")
def readouts(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("readouts")
    return {
        name: ddcl.load(runs / "head").export(folder / f"head{files.ENDINGS[name]}", name, opset=opset)
        for name, opset in (("onnx", 20), ("torch", None))
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_a_readout_gives_what_the_fitted_model_gives_in_batches_of_any_size(fitted, readouts, name):
    original, run = fitted("head"), files.load_program(readouts[name].path, name)
    for rows in (1, 2, 13, 500):
        z = 5 * torch.randn(rows, 7)
        found = run({"embeddings": z})
        assert list(found) == ["mixture", "centroid", "prototype", "probabilities"]
        torch.testing.assert_close(found["mixture"], original.mixture(z), rtol=0, atol=1e-5)
        torch.testing.assert_close(found["centroid"], original.transform(z), rtol=0, atol=1e-4)
        torch.testing.assert_close(found["probabilities"], original.probabilities(z), rtol=0, atol=1e-5)
        assert torch.equal(found["prototype"], found["mixture"].argmax(-1))
        names = [original.classes[number] for number in found["probabilities"].argmax(-1)]
        assert names == original.predict(z)


@pytest.mark.slow
def test_the_facts_travel_inside_the_file(readouts, fitted):
    import onnxruntime

    session = onnxruntime.InferenceSession(str(readouts["onnx"].path))
    in_onnx = {name: json.loads(value) for name, value in session.get_modelmeta().custom_metadata_map.items()}
    extra = {files.METADATA: ""}
    torch.export.load(readouts["torch"].path, extra_files=extra)
    for facts in (in_onnx, json.loads(extra[files.METADATA])):
        assert facts["classes"] == ["blue", "green", "red"]
        assert facts["names"] == [None, NAME, None, None, None, None]
        assert facts["temperature"] == fitted("head").temperature
        assert facts["ddcl"] == ddcl.__version__
        assert facts["inputs"] == {"embeddings": ["N", 7]}
        assert facts["outputs"]["probabilities"] == ["N", 3]


@pytest.mark.slow
def test_the_operator_set_is_the_one_asked_for_and_axes_are_named(readouts, fitted, tmp_path):
    import onnx

    def opset(path):
        return {one.domain: one.version for one in onnx.load(path).opset_import}[""]

    assert opset(readouts["onnx"].path) == 20
    usual = fitted("embeddings").export(tmp_path / "usual.onnx")
    assert opset(usual.path) == 18
    graph = onnx.load(usual.path).graph
    shapes = {
        one.name: [axis.dim_param or axis.dim_value for axis in one.type.tensor_type.shape.dim]
        for one in (*graph.input, *graph.output)
    }
    assert shapes == {"embeddings": ["N", 7], "mixture": ["N", 5], "centroid": ["N", 7], "prototype": ["N"]}


@pytest.mark.slow
def test_a_file_of_torch_is_loaded_without_ddcl(fitted, tmp_path):
    done = fitted("embeddings").export(tmp_path / "a.pt2", "torch")
    assert [one.output for one in done.checked.differences] == ["mixture", "centroid", "prototype"]
    z = torch.randn(3, 7)
    torch.save(z, tmp_path / "z.pt")
    code = (
        "import sys, torch\n"
        f"program = torch.export.load({str(done.path)!r}).module()\n"
        f"found = program(embeddings=torch.load({str(tmp_path / 'z.pt')!r}))['prototype']\n"
        "print(found.tolist(), 'ddcl' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == f"{fitted('embeddings').predict(z)} False"


@pytest.mark.parametrize("temperature", [1e-38, 1e-6, 1.0, 1e30])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_no_temperature_and_no_distance_from_the_origin_costs_more_digits_than_the_library(temperature, offset):
    bank = ddcl.PrototypeBank(5, 3, temperature=1.0)
    bank.move_to(torch.randn(1, 5, 3, dtype=torch.float64).float() + offset)
    bank.set_temperature(temperature)
    z = torch.randn(200, 3) + offset
    z[0] = 1e15  # far outside: all distances the same but for rounding
    found = ReadoutProgram(bank, normalise=False)(z)
    assert all(bool(torch.isfinite(one).all()) for one in found.values())
    exact = ddcl.readout(z.double(), bank.prototypes[0].double(), temperature, backend="reference").assignments
    mine, plain = found["mixture"], ddcl.readout(z, bank.prototypes[0], temperature).assignments
    errors = [(one - exact)[1:].square().mean().sqrt() for one in (mine, plain)]
    assert errors[0] <= 2 * errors[1] + 1e-7


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_an_exported_file_takes_the_smallest_temperatures(fitted, tmp_path, name):
    original = fitted("embeddings")
    original.model.set_temperature(1e-37)
    path = original.export(tmp_path / f"a{files.ENDINGS[name]}", name).path
    shares = files.load_program(path, name)({"embeddings": original.folder.rows().at(slice(0, 9))})["mixture"]
    torch.testing.assert_close(shares.sum(-1), torch.ones(9))
    assert bool(((shares == 0) | (shares == 1)).all())


@pytest.fixture(scope="session")
def wholes(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wholes")
    return {name: ddcl.load(runs / "texts").export(folder / f"deployed-{name}", name, "whole") for name in FORMATS}


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_a_whole_model_answers_texts_by_the_code_on_its_page(fitted, wholes, name, monkeypatch, capsys):
    original, done = fitted("texts"), wholes[name]
    assert done.checked.own
    assert done.checked.rows == 72
    texts = [*TEXTS, "cat " * 100]
    monkeypatch.chdir(done.path.parent)
    names: dict[str, object] = {}
    exec(re.sub(r"texts = .*", f"texts = {texts!r}", _code(done.path)), names)
    assert capsys.readouterr().out == f"{original.predict(texts)}\n"
    mixture = torch.as_tensor(names["answer"]["mixture"])
    torch.testing.assert_close(mixture, original.mixture(texts), rtol=0, atol=1e-4)
    facts = json.loads((done.path / "metadata.json").read_text())
    assert (facts["max_tokens"], facts["encoder"], facts["pooling"]) == (20, "tiny", "mean")


@pytest.mark.slow
def test_the_page_of_a_whole_model_in_onnx_needs_neither_torch_nor_transformers_nor_ddcl(wholes):
    wall = (
        "import sys\n"
        "class Wall:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in {'torch', 'transformers', 'ddcl'}: raise ImportError(name)\n"
        "sys.meta_path.insert(0, Wall())\n"
    )
    folder = wholes["onnx"].path
    done = subprocess.run(
        [sys.executable, "-I", "-c", wall + _code(folder)],
        capture_output=True,
        text=True,
        cwd=folder.parent,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert set(eval(done.stdout)) <= {"bank", "home"}


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_nothing_that_is_deployed_names_a_folder_of_the_machine_it_was_made_on(readouts, wholes, name, tmp_path):
    places = [
        str(place).encode() for place in (Path(ddcl.__file__).parent, Path(torch.__file__).parent, tmp_path.parent)
    ]
    for path in (readouts[name].path, *wholes[name].path.iterdir()):
        for content in _contents(path):
            assert not [place for place in places if place in content]


def _contents(path):
    if path.suffix != ".pt2":
        return [path.read_bytes()]
    with zipfile.ZipFile(path) as archive:
        return [archive.read(member) for member in archive.namelist()]


def _code(folder):
    return re.search(r"```python\n(.*?)```", (folder / "usage.md").read_text(), re.DOTALL)[1]


def _sabotage(monkeypatch, change):
    """Have all programs changed after they were made, as a fault in a converter would."""
    made = exported.program_of

    def changed(fitted, what):
        program = made(fitted, what)
        change(program.module)
        return program

    monkeypatch.setattr(exported, "program_of", changed)


def _left(folder):
    return sorted(os.listdir(folder))


@pytest.mark.parametrize(
    ("attribute", "factor", "said"),
    [
        ("temperature", 1.01, "mixture by"),
        ("prototypes", 1.001, "centroid by"),
        ("offsets", float("nan"), "mixture by"),
    ],
)
def test_a_program_that_computes_something_else_is_not_kept(fitted, tmp_path, monkeypatch, attribute, factor, said):
    _sabotage(monkeypatch, lambda module: setattr(module, attribute, getattr(module, attribute) * factor))
    with pytest.raises(MismatchError, match=said):
        fitted("embeddings").export(tmp_path / "a.pt2", "torch")
    assert _left(tmp_path) == []


def test_a_head_that_says_something_else_is_not_kept_either(fitted, tmp_path, monkeypatch):
    _sabotage(monkeypatch, lambda module: module.__setattr__("model", _other_head(module.model)))
    with pytest.raises(MismatchError, match="probabilities by"):
        fitted("head").export(tmp_path / "a.pt2", "torch")
    assert _left(tmp_path) == []


def _other_head(model):
    import copy

    other = copy.deepcopy(model)
    other.head.weight.mul_(1.01)
    return other


def test_a_whole_model_that_reads_its_padding_is_not_kept(fitted, tmp_path, monkeypatch):
    def careless(self, input_ids, attention_mask):
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return self.readout(states.mean(1))

    monkeypatch.setattr(WholeProgram, "forward", careless)
    with pytest.raises(MismatchError, match="mixture by"):
        fitted("texts").export(tmp_path / "deployed", "torch", what="whole")
    assert _left(tmp_path) == []


def test_what_the_packages_cannot_do_is_one_sentence_and_leaves_nothing(fitted, tmp_path, monkeypatch):
    def untraceable(self, embeddings):
        return {"mixture": embeddings if embeddings.sum() > 0 else -embeddings}

    monkeypatch.setattr(ReadoutProgram, "forward", untraceable)
    with pytest.raises(ExportError, match=r"^the program could not be written \(.*\)$"):
        fitted("embeddings").export(tmp_path / "a.pt2", "torch")
    assert _left(tmp_path) == []


def test_an_earlier_export_is_replaced_only_when_asked_and_stays_when_the_new_one_fails(fitted, tmp_path, monkeypatch):
    path = tmp_path / "a.pt2"
    path.write_text("earlier")
    with pytest.raises(BadInputError, match="exists already"):
        fitted("embeddings").export(path, "torch")
    with monkeypatch.context() as patched:
        _sabotage(patched, lambda module: module.temperature.mul_(2))
        with pytest.raises(MismatchError):
            fitted("embeddings").export(path, "torch", force=True)
    assert path.read_text() == "earlier"
    fitted("embeddings").export(path, "torch", force=True)
    assert path.stat().st_size > 1000
    assert _left(tmp_path) == ["a.pt2"]


@pytest.mark.slow
def test_only_a_folder_that_is_an_export_is_replaced(fitted, wholes, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    for what, path in (("whole", precious), ("readout", tmp_path / "folder.pt2")):
        path.mkdir(exist_ok=True)
        with pytest.raises(BadInputError, match="no earlier export"):
            fitted("texts").export(path, "torch", what, force=True)
    assert _left(precious) == ["thesis.txt"]
    deployed = tmp_path / "deployed"
    shutil.copytree(wholes["torch"].path, deployed)
    (deployed / "stale.txt").write_text("of the earlier export")
    fitted("texts").export(deployed, "torch", "whole", force=True)
    assert "stale.txt" not in _left(deployed)
    assert _left(tmp_path) == ["deployed", "folder.pt2", "precious"]


def test_rows_that_are_gone_are_made_up_and_that_is_said(runs, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(runs / "texts", run)
    for name in ("embeddings.npy", "inputs.parquet"):
        (run / name).unlink()
    for what, name in (("readout", "a.pt2"), ("whole", "deployed")):
        done = ddcl.load(run).export(tmp_path / name, "torch", what)
        assert not done.checked.own


def test_more_is_allowed_where_rounding_does_more_but_never_everything(fitted):
    original = fitted("embeddings")
    halfway = (original.prototypes[:1] + original.prototypes[1:2]) / 2
    allowed = []
    for temperature in (1e2, 1.0, 1e-9):
        original.model.set_temperature(temperature)
        allowed.append(checking._allowed(original, halfway, 2.0**-23)["mixture"])
    assert checking.LEAST <= allowed[0] < allowed[1] < allowed[2] == checking.MOST
