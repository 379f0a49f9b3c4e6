"""`ddcl fit` from end to end: what it writes, what it says, and what it does when something is wrong."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import ddcl
from ddcl.cli import main
from ddcl.commands import fit as command
from ddcl.fitting import folder as folders
from ddcl.training import loop

parquet = pytest.importorskip("pyarrow.parquet")
pytestmark = [
    # the packages warn about each other
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
QUICK = ["--epochs", "4"]


def files(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def run(*arguments):
    return main(["fit", *map(str, arguments)])


def complaint(capsys):
    said = capsys.readouterr().err
    assert "Traceback" not in said
    last = said.splitlines()[-1]
    assert last.startswith("ddcl fit: ")
    return last


def metrics_without_times(out):
    return [{**json.loads(line), "seconds": 0} for line in (out / "metrics.jsonl").read_text().splitlines()]


def interrupting_at(monkeypatch, epoch):
    def stop(self, progress, figures):
        if progress.epoch == epoch:
            raise KeyboardInterrupt

    monkeypatch.setattr(command._Live, "__call__", stop)


def test_embeddings_become_a_run_folder_with_every_file(vectors, tmp_path, capsys):
    out = tmp_path / "run"
    assert run(vectors, "--out", out, *QUICK) == 0
    run_itself = {"config.json", "model.safetensors", "metrics.jsonl", "assignments.parquet"}
    assert set(files(out)) == run_itself | {"map.json", "phases.json", "comparison.json", "report.html"}
    shown = capsys.readouterr()
    assert f"report: {out / 'report.html'}" in shown.out
    assert "prototypes: 4 (auto: of 2 to 32, the number that stays the same" in shown.err
    assert "healthy: 4 of 4 prototypes stand apart, 100% in use" in shown.out
    assert f"ddcl.load({str(out)!r})" in shown.out
    config = json.loads((out / "config.json").read_text())
    assert (config["format"], config["state"], config["settings"]["rows"]) == (1, "done", 200)
    assert config["result"]["sizes"] == [50] * 4
    lines = metrics_without_times(out)
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4]
    assert all(line["figures"]["distinct"] == 4 for line in lines)
    assert lines[-1]["exact"] == config["result"]["metrics"]


def test_assignments_have_a_row_for_each_input_in_order(vectors, tmp_path):
    assert run(vectors, "--out", tmp_path / "run", "--prototypes", "5", *QUICK) == 0
    table = parquet.read_table(tmp_path / "run" / "assignments.parquet")
    assert {field.name: str(field.type) for field in table.schema} == {
        "row": "int64",
        "id": "string",
        "prototype": "int32",
        "confidence": "float",
        "entropy": "float",
        "prototypes": "list<element: int32>",
        "weights": "list<element: float>",
    }
    found = table.to_pydict()
    shares = ddcl.load(tmp_path / "run").mixture(np.load(vectors))
    assert found["row"] == list(range(200))
    assert found["prototype"] == shares.argmax(-1).tolist() == [row[0] for row in found["prototypes"]]
    np.testing.assert_allclose(found["confidence"], shares.amax(-1), rtol=1e-6)
    entropy = -(shares * shares.clamp_min(1e-30).log()).sum(-1)
    np.testing.assert_allclose(found["entropy"], entropy, atol=1e-6)
    np.testing.assert_allclose(found["weights"], shares.topk(3).values, rtol=1e-6)


def test_texts_are_embedded_kept_and_labelled(messages, tiny_folder, tmp_path, capsys):
    out = tmp_path / "run"
    arguments = ["--encoder", tiny_folder, "--labels", "place", "--prototypes", "4", "--out", out, *QUICK]
    assert run(messages, *arguments) == 0
    kept = parquet.read_table(out / "inputs.parquet").to_pydict()
    assert list(kept) == ["row", "id", "text", "label"]
    assert kept["text"][:2] == ["my card was declined", "the cat sat"]
    embeddings = np.load(out / "embeddings.npy")
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1, rtol=1e-5)
    table = parquet.read_table(out / "assignments.parquet").to_pydict()
    assert table["predicted"] == table["label"] == ["bank", "home"] * 8
    assert sum(table["held_out"]) == 2
    accuracy = json.loads((out / "config.json").read_text())["result"]["accuracy"]
    assert (accuracy["held_out_rows"], accuracy["head"]) == (2, 1.0)
    assert "accuracy on 2 held-out rows: 100.0% (logistic regression" in capsys.readouterr().out


def test_texts_are_data_whatever_they_hold(tiny_folder, tmp_path):
    texts = ["<script>alert(1)</script>", 'a "quoted" one', "שלום עולם", "card " * 20_000, "", "the cat sat"]
    source = tmp_path / "a.jsonl"
    source.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    assert run(source, "--encoder", tiny_folder, "--prototypes", "2", "--out", tmp_path / "run", *QUICK) == 0
    assert parquet.read_table(tmp_path / "run" / "inputs.parquet")["text"].to_pylist() == texts
    fitted = ddcl.load(tmp_path / "run")
    assert (
        fitted.predict(texts) == parquet.read_table(tmp_path / "run" / "assignments.parquet")["prototype"].to_pylist()
    )


def test_the_names_of_text_files_are_their_ids(tiny_folder, tmp_path):
    (tmp_path / "texts").mkdir()
    for name, text in (("b.txt", "the cat sat"), ("a.txt", "my card was declined"), ("c.txt", "the cats")):
        (tmp_path / "texts" / name).write_text(text)
    options = ["--encoder", tiny_folder, "--prototypes", "2", "--out", tmp_path / "run", *QUICK]
    assert run(tmp_path / "texts", *options) == 0
    for name in ("assignments.parquet", "inputs.parquet"):
        assert parquet.read_table(tmp_path / "run" / name)["id"].to_pylist() == ["a.txt", "b.txt", "c.txt"]


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(vectors, tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        assert run(vectors, "--prototypes", "7", "--seed", seed, "--out", tmp_path / name, *QUICK) == 0
    a, b, c = (files(tmp_path / name) for name in "abc")
    assert a["model.safetensors"] == b["model.safetensors"] != c["model.safetensors"]
    assert a["assignments.parquet"] == b["assignments.parquet"]


@pytest.mark.slow
def test_a_real_ctrl_c_leaves_a_checkpoint_and_one_sentence(vectors, tmp_path):
    out = tmp_path / "run"
    command_line = [sys.executable, "-m", "ddcl", "fit", str(vectors), "--out", str(out), "--epochs", "1000000"]
    # a shell may start this in the background, where the signal is ignored
    ready = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
    with subprocess.Popen(command_line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **ready) as process:
        for _ in range(600):
            if (out / "checkpoint.pt").exists() or process.poll() is not None:
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        shown, said = process.communicate(timeout=60)
    assert process.returncode == 1, said
    assert shown == ""
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith("ddcl fit: interrupted; `ddcl fit ")
    assert json.loads((out / "config.json").read_text())["state"] == "interrupted"


@pytest.mark.parametrize("epoch", [1, 3])
def test_an_interrupted_run_goes_on_to_the_same_bits(vectors, tmp_path, monkeypatch, capsys, epoch):
    assert run(vectors, "--prototypes", "7", "--out", tmp_path / "whole", *QUICK) == 0
    out = tmp_path / "broken"
    with monkeypatch.context() as patched:
        interrupting_at(patched, epoch)
        assert run(vectors, "--prototypes", "7", "--out", out, *QUICK) == 1
    assert complaint(capsys).endswith(f"--out {out} --resume` goes on from the last epoch")
    assert json.loads((out / "config.json").read_text())["state"] == "interrupted"
    with pytest.raises(ValueError, match=rf"is not finished \(interrupted, {epoch} of 4 epochs\)"):
        ddcl.load(out)
    assert run(vectors, "--out", out, "--resume") == 0  # what was asked for then is known
    whole, broken = files(tmp_path / "whole"), files(out)
    assert whole["model.safetensors"] == broken["model.safetensors"]
    assert whole["assignments.parquet"] == broken["assignments.parquet"]
    assert metrics_without_times(out) == metrics_without_times(tmp_path / "whole")
    assert "checkpoint.pt" not in broken


def test_a_run_on_texts_with_labels_goes_on_with_its_columns_and_encoder(messages, tiny_folder, tmp_path, monkeypatch):
    asked = ["--encoder", tiny_folder, "--text", "message", "--labels", "place", "--prototypes", "3", "--seed", "5"]
    assert run(messages, *asked, "--out", tmp_path / "whole", *QUICK) == 0
    with monkeypatch.context() as patched:
        interrupting_at(patched, 2)
        assert run(messages, *asked, "--out", tmp_path / "broken", *QUICK) == 1
    assert run(messages, "--out", tmp_path / "broken", "--resume") == 0
    whole, broken = (files(tmp_path / name) for name in ("whole", "broken"))
    for name in ("model.safetensors", "assignments.parquet", "inputs.parquet", "embeddings.npy"):
        assert whole[name] == broken[name]


def test_a_run_that_was_killed_before_its_first_epoch_begins_again(vectors, tmp_path, monkeypatch):
    out = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(folders.RunFolder, "stop", lambda _: None)  # nothing is tidied up after a kill
        patched.setattr(loop.Trainer, "fit", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run(vectors, "--out", out, *QUICK) == 1
    assert json.loads((out / "config.json").read_text())["state"] == "running"
    assert run(vectors, "--out", out, "--resume", *QUICK) == 0
    assert len(metrics_without_times(out)) == 4


def test_a_run_stopped_before_its_first_epoch_leaves_nothing(vectors, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(loop.Trainer, "fit", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    assert run(vectors, "--out", tmp_path / "run", *QUICK) == 1
    assert "nothing was written" in complaint(capsys)
    assert not (tmp_path / "run").exists()


def test_a_full_disk_at_the_very_beginning_leaves_nothing(vectors, tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folders, "whole_file", full)
    assert run(vectors, "--out", tmp_path / "run", *QUICK) == 1
    assert "No space left on device" in complaint(capsys)
    assert not (tmp_path / "run").exists()


def test_held_out_rows_are_none_to_start_prototypes_from(labelled, tmp_path, capsys):
    assert run(labelled, "--labels", "team", "--prototypes", "190", "--out", tmp_path / "run", *QUICK) == 2
    assert "180 rows are left to learn from, fewer than the 190 prototypes" in complaint(capsys)
    assert not (tmp_path / "run").exists()


def test_a_full_disk_at_the_first_checkpoint_leaves_nothing(vectors, tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(loop, "save_checkpoint", full)
    assert run(vectors, "--out", tmp_path / "run", *QUICK) == 1
    assert "No space left on device" in complaint(capsys)
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="files have no limit of their size there")
def test_a_checkpoint_that_breaks_off_while_it_is_written_asks_for_the_disk(vectors, tmp_path, capsys):
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, before[1]))  # enough for config.json, too little for a checkpoint
    try:
        status = run(vectors, "--out", tmp_path / "run", *QUICK)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert status == 1
    assert complaint(capsys).endswith("checkpoint.pt could not be written: is the disk full?")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", ["write_model", "write_table", "finish"])
def test_a_full_disk_at_the_end_leaves_a_run_that_can_go_on(vectors, tmp_path, monkeypatch, capsys, method):
    def full(*_):
        raise OSError(28, "No space left on device")

    out = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(folders.RunFolder, method, full)
        assert run(vectors, "--out", out, *QUICK) == 1
    assert "No space left on device" in complaint(capsys)
    assert json.loads((out / "config.json").read_text())["state"] == "interrupted"
    assert not list(out.glob("*.partial"))
    assert run(vectors, "--out", out, "--resume", *QUICK) == 0
    assert ddcl.load(out).prototypes.shape == (4, 6)


def test_a_file_that_breaks_off_while_it_is_written_never_gets_its_name(vectors, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folders, "_safetensors", lambda: type("Full", (), {"save": full}))
    assert run(vectors, "--out", tmp_path / "run", *QUICK) == 1
    assert set(files(tmp_path / "run")) == {"config.json", "metrics.jsonl", "checkpoint.pt"}


def test_an_earlier_run_is_never_touched(vectors, tmp_path, capsys):
    out = tmp_path / "run"
    assert run(vectors, "--out", out, *QUICK) == 0
    before = files(out)
    assert run(vectors, "--out", out, *QUICK) == 2
    assert "exists already" in complaint(capsys)
    assert run(vectors, "--out", out, "--resume", *QUICK) == 0
    assert "is done already" in capsys.readouterr().err
    assert files(out) == before


def test_an_unfinished_run_goes_on_only_with_its_own_settings_and_data(vectors, tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    with monkeypatch.context() as patched:
        interrupting_at(patched, 2)
        assert run(vectors, "--out", out, *QUICK) == 1
    before = files(out)
    for change in (["--seed", "1"], ["--epochs", "5"], ["--prototypes", "3"]):
        assert run(vectors, "--out", out, "--resume", *change) == 2
        assert "was begun otherwise: now" in complaint(capsys)
    np.save(vectors, np.load(vectors) + 1)
    assert run(vectors, "--out", out, "--resume", *QUICK) == 2
    assert "digest" in complaint(capsys)
    assert files(out) == before


@pytest.mark.parametrize(
    ("name", "content", "options", "said"),
    [
        ("a.csv", b"text,kind\na,b\nc,d\n", ["--text", "body"], "there is no column 'body'"),
        ("a.csv", b"", [], "holds no rows"),
        ("a.csv", b"text\nalone\n", [], "holds one row"),
        ("a.csv", b"text,kind\na,b\nc,b\n", ["--labels", "kind"], "holds one class ('b')"),
        ("a.csv", b"text\na\nc\n", ["--prototypes", "3"], "got 3 for 2 rows"),
        ("a.csv", b"text\n\xff\n", [], "not UTF-8: byte 0xff at offset 5"),
        ("a.csv", b"text\na\nc\n", ["--encoder", "no/such-encoder"], "encoder 'no/such-encoder' is no folder"),
        ("a.csv", b"text\na\nc\n", ["--device", "cuda:77"], "'cuda:77' is not on this machine"),
        ("a.csv", b"text\na\nc\n", ["--prototypes", "1"], "expected at least 2"),
        ("a.csv", b"text\na\nc\n", ["--epochs", "0"], "expected at least 1"),
        ("gone.csv", None, [], "no such file"),
        ("fake.npy", b"hello", [], "is no .npy file of numbers, or not a whole one"),
        ("a.csv", b"text\na\nc\n", ["--encoder", "."], "the encoder's folder . holds no config.json"),
    ],
)
def test_what_the_user_can_put_right_is_one_sentence_and_status_2(tmp_path, capsys, name, content, options, said):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert run(tmp_path / name, "--out", tmp_path / "run", *options) == 2
    assert said in complaint(capsys)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("array", "options", "said"),
    [
        (np.array([[1.0, 2.0], [3.0, np.nan]]), [], "row 1 holds NaN"),
        (np.ones((9, 2)), ["--prototypes", "3"], "all rows are the same"),
        (np.ones((60, 2)), [], "all rows are the same"),
        (np.arange(12.0).reshape(6, 2).repeat(3, 0), ["--prototypes", "8"], "only 6 distinct"),
        (np.eye(5), ["--encoder", "all-MiniLM-L6-v2"], "holds embeddings, which need none"),
        (1e30 * np.eye(5), [], "its numbers are too large for squared distances in float32"),
        (1e-30 * np.eye(5), [], "its numbers are too small for squared distances in float32"),
        (np.zeros((60, 2)), [], "all rows are the same"),
    ],
)
def test_embeddings_that_cannot_be_fitted_are_refused_too(tmp_path, capsys, array, options, said):
    np.save(tmp_path / "a.npy", array)
    assert run(tmp_path / "a.npy", "--out", tmp_path / "run", *options) == 2
    assert said in complaint(capsys)
    assert not (tmp_path / "run").exists()


def test_a_run_without_a_folder_s_name_gets_one_of_its_own(vectors, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(vectors, *QUICK) == 0
    (made,) = (tmp_path / "runs").iterdir()
    assert made.name.startswith("vectors-")
    assert run(vectors, "--resume") == 2
    assert "name the folder" in complaint(capsys)


def test_trouble_is_told_in_the_verdict(vectors, tmp_path):
    assert run(vectors, "--out", tmp_path / "run", *QUICK) == 0
    folder = folders.open_run(tmp_path / "run")
    result = {**folder.config["result"], "healthy": False, "troubles": ["dead prototypes (head 0)"]}
    folder.finish(result)
    assert command.summary(folder).startswith("not healthy: 4 of 4")
    assert "\n  dead prototypes (head 0)\n" in command.summary(folder)


def test_the_live_line_shows_loss_temperature_and_health():
    figures = {"total": 0.5, "reconstruction": 0.4, "variance": 0.1, "relative_temperature": 0.03}
    note = command.live_note({**figures, "distinct": 12.0, "usage": 0.75})
    assert note == "L 0.5 = R 0.4 + V 0.1, T/T_c 0.03, distinct 12, usage 75%"


@pytest.mark.parametrize("seed", ["-1", "1.5", str(2**64)])
def test_a_seed_that_is_none_is_refused(vectors, tmp_path, capsys, seed):
    with pytest.raises(SystemExit) as stop:
        run(vectors, "--out", tmp_path / "run", f"--seed={seed}")
    assert stop.value.code == 2
    assert f"got '{seed}', expected a whole number from 0" in capsys.readouterr().err


def test_labels_that_no_file_can_hold_are_made_sound(tiny_folder, tmp_path):
    source = tmp_path / "a.jsonl"
    rows = [
        {"text": "my card " * (number + 1), "la\ud800bel": "\ud800" if number % 2 else "home"} for number in range(8)
    ]
    source.write_text("\n".join(map(json.dumps, rows)))
    options = ["--labels", "la?bel", "--encoder", tiny_folder, "--prototypes", "2", "--out", tmp_path / "run", *QUICK]
    assert run(source, *options) == 0
    fitted = ddcl.load(tmp_path / "run")
    assert fitted.classes == ("?", "home")
    fitted.rename(0, "\ud800")
    assert fitted.names[0] == "?"


def test_held_out_rows_have_no_part_in_the_model(labelled, tmp_path):
    from safetensors.numpy import load_file

    options = ["--labels", "team", "--prototypes", "6", "--levels", "6", "3", "--epochs", "3"]
    assert run(labelled, "--out", tmp_path / "one", *options) == 0
    table = ddcl.load(tmp_path / "one").folder.read_table("assignments.parquet")
    held = np.flatnonzero(table["held_out"].to_numpy())
    assert len(held) == 20
    arrays = dict(np.load(labelled))
    arrays["z"][held] = 50.0
    np.savez(labelled, **arrays)
    assert run(labelled, "--out", tmp_path / "two", *options) == 0
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    assert all(np.array_equal(one[name], two[name]) for name in one)


def test_a_seed_beyond_32_bits_is_a_seed(vectors, tmp_path, capsys):
    assert run(vectors, "--out", tmp_path / "run", "--prototypes", "4", "--epochs", "2", "--seed", "5000000000") == 0
    assert (tmp_path / "run" / "comparison.json").exists()
    assert "could not" not in capsys.readouterr().err


def test_what_fails_after_the_run_is_done_is_a_sentence(vectors, tmp_path, monkeypatch, capsys):
    def fails(*_):
        raise MemoryError

    monkeypatch.setattr("ddcl.fitting.run.write_charts", fails)
    assert run(vectors, "--out", tmp_path / "run", "--prototypes", "4", "--epochs", "2") == 0
    assert "could not be written (MemoryError)" in capsys.readouterr().err
    assert folders.RunFolder(tmp_path / "run").state == "done"


def test_a_finished_run_is_not_another_one(vectors, tmp_path, capsys):
    asked = ["--out", tmp_path / "run", "--prototypes", "4", "--epochs", "2"]
    assert run(vectors, *asked) == 0
    assert run(vectors, *asked, "--resume") == 0
    assert run(vectors, "--out", tmp_path / "run", "--prototypes", "5", "--resume") == 2
    assert "is done, with --prototypes 4, not 5" in capsys.readouterr().err
    assert run(tmp_path / "nothing.npy", "--out", tmp_path / "run", "--resume") == 2
    assert "was not of" in capsys.readouterr().err


def test_labels_that_are_not_numbers_are_missing(tmp_path):
    z = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    labels = np.where(np.arange(60) % 3 == 2, np.nan, np.arange(60) % 3)
    np.savez(tmp_path / "some.npz", z=z, y=labels)
    assert run(tmp_path / "some.npz", "--labels", "y", "--out", tmp_path / "run", "--epochs", "2") == 0
    assert ddcl.load(tmp_path / "run").classes == ("0.0", "1.0")
