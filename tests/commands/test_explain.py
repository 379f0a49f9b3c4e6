"""``ddcl explain`` on the command line: what it shows, in which form, and what it refuses."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from tiny_encoder import write_encoder

import ddcl
from ddcl.cli import main

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

HOSTILE = "<script>alert(1)</script> \x1b[2J the cat"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of texts with labels, a hostile one among them, and one of embeddings."""
    for package in ("pyarrow", "safetensors", "sklearn", "transformers"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("runs")
    texts = ["my card was declined", "the cat sat", "my card", "the cats sat the cats"] * 4 + [HOSTILE]
    rows = [{"text": text, "place": "bank" if "card" in text else "home"} for text in texts]
    (folder / "messages.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    np.save(folder / "vectors.npy", 8 * np.eye(3, 5)[np.arange(30) % 3] + np.random.default_rng(0).normal(size=(30, 5)))
    encoder = write_encoder(folder / "tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDCL_CACHE", str(folder / "cache"))
        for data, options in (
            ("messages.jsonl", ["--labels", "place", "--encoder", str(encoder), "--prototypes", "3"]),
            ("vectors.npy", ["--prototypes", "3"]),
        ):
            out = folder / data.partition(".")[0]
            assert main(["fit", str(folder / data), "--out", str(out), "--epochs", "2", *options]) == 0
    return folder


@pytest.fixture
def explain(runs, capsys):
    """Runs the command on one of the runs; gives its status, output and complaints."""

    def call(run, *arguments):
        capsys.readouterr()
        status = main(["explain", str(runs / run), *map(str, arguments)])
        said = capsys.readouterr()
        return status, said.out, said.err

    return call


def test_without_texts_the_vocabulary_is_shown(explain, runs):
    status, out, _ = explain("messages")
    assert status == 0
    found = ddcl.load(runs / "messages").vocabulary()
    assert out.startswith("3 prototypes of 17 rows")
    for card in found.cards:
        assert f"prototype {card.number}: {card.title}" in out
        assert f"{card.size} rows ({100 * card.coverage:.1f} %)" in out
    assert "the most undecided rows" in out
    assert "\x1b" not in out
    status, out, _ = explain("messages", "--format", "json")
    assert json.loads(out) == json.loads(json.dumps(found.as_json()))
    assert explain("messages", "--format", "markdown")[1].startswith("# 3 prototypes of 17 rows\n\n## prototype ")


def test_some_cards_alone_can_be_asked_for(explain):
    _, out, _ = explain("messages", "--prototype", "2", "0", "--format", "json")
    assert [card["number"] for card in json.loads(out)["cards"]] == [2, 0]
    out = explain("messages", "--prototype", "1", "--examples", "0")[1]
    assert "prototype 1: " in out
    assert "typical" not in out
    assert explain("messages", "--prototype", "3")[::2] == (
        2,
        "ddcl explain: --prototype: got 3, expected numbers from 0 to 2\n",
    )


def test_options_may_stand_between_the_run_and_the_texts(explain, runs):
    status, out, _ = explain("messages", "--format", "json", "my card", "--examples", 1, "the cat")
    assert status == 0
    expected = ddcl.load(runs / "messages").explain(["my card", "the cat"], examples=1)
    for shown, one in zip(json.loads(out), expected, strict=True):
        assert shown["text"] == one.text
        assert [share["prototype"] for share in shown["shares"]] == [share.prototype for share in one.shares]
        assert [word["word"] for word in shown["words"]] == [word.word for word in one.words]
        assert len(shown["examples"]) == 1


def test_a_text_gets_a_block_with_its_mixture_class_words_and_rows(explain, runs):
    out = explain("messages", HOSTILE)[1]
    assert out.startswith("“<script>alert(1)</script> \\x1b[2J the cat”\n  ")
    assert "% prototype " in out
    assert f"  class: {ddcl.load(runs / 'messages').predict(HOSTILE)[0]} (" in out
    assert "  nearest: 1.00 “<script>" in out
    assert "carried by" in out
    assert "carried by" not in explain("messages", HOSTILE, "--no-words")[1]
    assert "\\<script\\>" in explain("messages", HOSTILE, "--format", "markdown")[1]


def test_words_are_marked_on_a_terminal_alone(explain, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" not in explain("messages", "my card")[1]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert "\x1b[1;4m" in explain("messages", "my card")[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in explain("messages", "my card")[1]


def test_a_file_or_standard_input_holds_a_text_on_each_line(explain, tmp_path, monkeypatch):
    path = tmp_path / "new.txt"
    path.write_text("my card\n\nthe cat\n", encoding="utf-8")
    read = json.loads(explain("messages", "--file", path, "--format", "json", "--no-words")[1])
    assert [one["text"] for one in read] == ["my card", "the cat"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the cat sat\n")))
    assert "“the cat sat”" in explain("messages", "--file", "-")[1]
    path.write_bytes(b"ok\n\xff\n")
    status, _, said = explain("messages", "--file", path)
    assert status == 2
    assert "not UTF-8: byte 0xff at offset 3 (line 2)" in said
    path.write_text("\n")
    assert explain("messages", "--file", path)[2] == f"ddcl explain: --file: {path} holds no text\n"
    assert "there is no file" in explain("messages", "--file", tmp_path / "none")[2]


def test_rows_are_explained_by_their_numbers(explain):
    _, out, _ = explain("vectors", "--rows", 3, 0)
    assert [line for line in out.splitlines() if not line.startswith(" ")] == ["row 3", "", "row 0"]
    assert "## row 3" in explain("vectors", "--rows", 3, "--format", "markdown")[1]
    assert "“my card was declined”" in explain("messages", "--rows", 0)[1]
    assert explain("vectors", "--rows", 30)[0] == 2


def test_the_deletion_test_says_how_it_was_made(explain, tmp_path):
    status, out, _ = explain("messages", "--check", "--sample", 6, "--seed", 4)
    assert status == 0
    assert out.splitlines()[-1].startswith("verdict: ")
    assert len(out.splitlines()) == 7
    path = tmp_path / "new" / "check.json"
    status, out, said = explain("messages", "--check", "--sample", 6, "--seed", 4, "--format", "json", "--out", path)
    assert (status, out) == (0, "")
    assert said.endswith(f"written to {path}\n")
    found = json.loads(path.read_text())
    assert found["environment"]["command"] == "ddcl explain RUN --check --sample 6 --seed 4"
    assert (found["rows"], found["seed"], len(found["comparisons"])) == (6, 4, 6)
    assert found["run"]["prototypes"] == 3
    assert "## Deletion test" in explain("vectors", "--check", "--format", "markdown")[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["vectors", "a text"], "was fitted to embeddings"),
        (["none"], "is no run folder"),
        (["messages", "a text", "--check"], "ask for different things"),
        (["messages", "--rows", "1", "--prototype", "1"], "ask for different things"),
        (["messages", "--examples", "-1"], "expected 0 or more"),
        (["messages", "--out", "."], "is a folder"),
        (["messages", "--device", "cuda:99"], "is not on this machine"),
        (["messages", "--check", "--sample", "1"], "at least 2"),
    ],
)
def test_what_can_be_put_right_is_one_sentence_and_status_2(explain, arguments, said):
    status, out, complaint = explain(*arguments)
    assert (status, out) == (2, "")
    assert said in complaint
    assert complaint.startswith("ddcl explain: ")
    assert complaint.count("\n") == 1


def test_an_unfinished_run_is_refused_with_the_way_to_go_on(explain, runs, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    config = json.loads((runs / "messages" / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "state": "interrupted"}))
    status, _, said = explain(folder)
    assert status == 2
    assert "is not finished (interrupted, 0 of 2 epochs)" in said
    assert "--resume" in said


def test_a_failure_to_write_leaves_nothing_behind(explain, tmp_path):
    (tmp_path / "file").write_text("in the way")
    status, _, said = explain("vectors", "--out", tmp_path / "file" / "below.txt")
    assert status == 1
    assert said.startswith("ddcl explain: failed: ")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_bytes_that_are_no_text_become_question_marks(explain):
    assert explain("messages", "my \udcff card")[1].startswith("“my ? card”")
