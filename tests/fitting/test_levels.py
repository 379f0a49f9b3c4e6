"""A hierarchy: prototypes of prototypes, from the request to the run that is loaded."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import ddcl
from ddcl.cli import main
from ddcl.commands import fit as command
from ddcl.fitting import BadInputError
from ddcl.fitting.levels import levels_above

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
SIZES = (8, 4, 2)


def nested(rows=240, dim=7):
    """Two groups of two of two clusters, each split at a smaller scale than the one above, and where each row is."""
    random = np.random.default_rng(0)
    of = np.arange(rows) % 8
    z = 0.1 * random.normal(size=(rows, dim))
    for bit, scale in ((4, 16.0), (2, 6.0), (1, 2.0)):
        z[:, bit.bit_length()] += scale * ((of & bit) > 0)
    return z.astype(np.float32), of


@pytest.fixture(scope="session")
def nested_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("nested") / "nested.npz"
    z, of = nested()
    np.savez(path, z=z, team=np.array(["red", "blue"])[of >> 2])
    return path


@pytest.fixture(scope="session")
def run_folder(nested_file):
    pytest.importorskip("safetensors")
    out = nested_file.parent / "run"
    sizes = map(str, SIZES)
    assert (
        main(["fit", str(nested_file), "--labels", "team", "--levels", *sizes, "--epochs", "4", "--out", str(out)]) == 0
    )
    return out


def run(*arguments):
    return main(["fit", *map(str, arguments)])


def test_groups_within_groups_are_found_at_every_level(run_folder):
    fitted = ddcl.load(run_folder)
    z, of = nested()
    for level, bits in enumerate((0, 1, 2)):
        shares = fitted.mixture(z, level=level)
        torch.testing.assert_close(shares.sum(-1), torch.ones(len(z)))
        found = shares.argmax(-1).tolist()
        assert len(set(zip(found, of >> bits, strict=True))) == SIZES[level]  # one prototype, one group
    assert [bank.num_prototypes for bank in fitted.levels] == list(SIZES)
    torch.testing.assert_close(fitted.mixture(z), fitted.mixture(z, level=0))
    with pytest.raises(BadInputError, match="expected a number from 0 to 2"):
        fitted.mixture(z, level=3)


def test_a_level_reads_the_soft_centroids_of_the_one_below(run_folder):
    fitted = ddcl.load(run_folder)
    first, second, third = fitted.levels
    centroid = first(torch.from_numpy(nested()[0])).centroid
    torch.testing.assert_close(fitted.mixture(nested()[0], level=1), second(centroid).assignments)
    torch.testing.assert_close(fitted.mixture(nested()[0], level=2), third(second(centroid).centroid).assignments)


def test_the_folder_says_what_the_levels_are(run_folder):
    fitted = ddcl.load(run_folder)
    config = json.loads((run_folder / "config.json").read_text())
    assert config["settings"]["levels"] == list(SIZES)
    result = config["result"]
    assert [len(level["sizes"]) for level in result["levels"]] == [4, 2]
    assert [level["healthy"] for level in result["levels"]] == [True, True]
    assert all(level["relative_temperature"] < 1 for level in result["levels"])
    assert result["parents"] == fitted.parents
    table = fitted.folder.read_table("assignments.parquet").to_pydict()
    # in groups that stand apart a row's path is that of its prototype
    below = [result["parents"][0][number] for number in table["prototype"]]
    assert table["level_1"] == below
    assert table["level_2"] == [result["parents"][1][number] for number in below]
    assert np.bincount(table["level_2"]).tolist() == result["levels"][1]["sizes"]
    assert table["predicted"] == table["label"]
    state = fitted.folder.read_model()
    assert state["levels.2.prototypes"].shape == (2, 7)
    assert state["levels.1.temperature"].shape == (1,)
    assert "level 2: 2 of 2 prototypes stand apart" in command.summary(fitted.folder)


def test_a_run_from_before_there_were_levels_is_loaded(vectors, tmp_path):
    assert run(vectors, "--epochs", "2", "--prototypes", "4", "--out", tmp_path / "run") == 0
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    assert config["settings"].pop("levels") is None
    assert config["result"].pop("levels") is None
    assert config["result"].pop("parents") is None
    path.write_text(json.dumps(config))
    fitted = ddcl.load(tmp_path / "run")
    assert (len(fitted.levels), fitted.parents) == (1, [])
    assert "healthy: 4 of 4" in command.summary(fitted.folder)


def test_an_interrupted_hierarchy_goes_on_to_the_same_bits(nested_file, tmp_path, monkeypatch):
    seen = []

    def stop(self, progress, figures):
        seen.append(progress.epoch)
        if seen == [1, 2, 1]:  # within the second level
            raise KeyboardInterrupt

    asked = ["--levels", "2", "--prototypes", "8", "--epochs", "2"]
    with monkeypatch.context() as patched:
        patched.setattr(command._Live, "__call__", stop)
        assert run(nested_file, *asked, "--out", tmp_path / "broken") == 1
        assert seen == [1, 2, 1]
    assert run(nested_file, "--out", tmp_path / "broken", "--resume", "--levels", "6", "3") == 2
    assert run(nested_file, "--out", tmp_path / "broken", "--resume") == 0
    assert run(nested_file, *asked, "--out", tmp_path / "whole") == 0
    for name in ("model.safetensors", "assignments.parquet"):
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_sizes_that_are_not_given_are_quarters_and_said(vectors, tmp_path, capsys):
    assert levels_above(40, 3) == (40, 10, 2)
    assert levels_above(3, 2) == (3, 2)
    assert run(vectors, "--prototypes", "9", "--levels", "4", "--epochs", "1", "--out", tmp_path / "run") == 0
    said = capsys.readouterr().err
    assert "levels: 9 2 (each a quarter of the one below, and none above 2, so 2 levels instead of 4)" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--levels", "1"], "got 1, expected at least 2 levels"),
        (["--levels", "8", "1"], "got a level of 1 prototypes"),
        (["--levels", "8", "8"], "got 8 above 8, expected fewer"),
        (["--levels", "8", "2", "4"], "got 4 above 2"),
        (["--levels", "300", "4"], "--levels: got 300 for 200 rows"),
        (["--levels", "8", "4", "--prototypes", "9"], "--prototypes: got 9, expected 8"),
        (["--levels", "2", "--prototypes", "2"], "leaves none above it"),
    ],
)
def test_levels_that_cannot_be_are_refused_in_one_sentence(vectors, tmp_path, capsys, options, said):
    assert run(vectors, *options, "--out", tmp_path / "run") == 2
    complaint = capsys.readouterr().err.splitlines()[-1]
    assert complaint.startswith("ddcl fit: ")
    assert said in complaint
    assert not (tmp_path / "run").exists()
