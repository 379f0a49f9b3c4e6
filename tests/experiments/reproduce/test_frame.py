"""The frame of the reproductions: runs, records, tables and the command around them."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

from ddcl.cli import main
from ddcl.commands.reproduce import command, page
from ddcl.experiments.reproduce import STUDIES, Run, load_study
from ddcl.experiments.reproduce.dynamics import Watch, best, thinned
from ddcl.experiments.reproduce.record import load_arrays, read, those_of, without
from ddcl.experiments.reproduce.registry import Entry
from ddcl.experiments.reproduce.running import Place, in_order, record_file, run_study
from ddcl.experiments.reproduce.summary import average, spread, table, values
from ddcl.training import Progress


@pytest.fixture
def study(monkeypatch):
    """A study of nothing, entered in the list."""
    spec = spec_from_file_location("made_up_study", Path(__file__).parent / "made_up_study.py")
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "made_up_study", module)
    spec.loader.exec_module(module)
    monkeypatch.setitem(STUDIES, "nothing", Entry("made_up_study", "nothing at all"))
    return module.STUDY


def reproduce(*arguments):
    return main(["reproduce", *map(str, arguments)])


def test_a_record_gives_back_what_was_run(study, tmp_path):
    runs = study.runs(True, 2)
    finished = run_study("nothing", runs, Place(tmp_path), "ddcl reproduce nothing")
    assert read(record_file(tmp_path, "nothing")) == finished
    assert [(one.method, one.seed) for one in finished] == [("theirs", 0), ("theirs", 1), ("ours", 0), ("ours", 1)]
    last = finished[-1]
    assert last.metrics == {"acc": 0.85, "third": 0.333333}  # six digits
    assert last.epochs == {"epoch": [1, 2], "acc": [0.1, 0.85]}
    assert last.origin["command"] == "ddcl reproduce nothing"
    assert {"torch", "commit", "device"} <= set(last.origin)
    assert np.array_equal(load_arrays(tmp_path / "nothing-arrays", "easy", "ours", 1)["points"], np.eye(2))
    assert load_arrays(tmp_path / "nothing-arrays", "easy", "ours", 7) == {}


def test_resuming_runs_what_is_missing_and_only_that(study, tmp_path):
    runs, seen = study.runs(True, 2), []
    run_study("nothing", runs[:3], Place(tmp_path), "first")
    finished = run_study(
        "nothing", runs, Place(tmp_path), "second", resume=True, progress=lambda *told: seen.append(told[:2])
    )
    assert seen == [(1, 1)]
    assert [one.origin["command"] for one in finished] == ["first", "first", "first", "second"]


def test_without_resume_a_record_begins_anew(study, tmp_path):
    runs = study.runs(True, 2)
    run_study("nothing", runs, Place(tmp_path), "first")
    run_study("nothing", runs[:1], Place(tmp_path), "second")
    assert [one.origin["command"] for one in read(record_file(tmp_path, "nothing"))] == ["second"]


def test_a_line_cut_off_by_an_interruption_is_run_again_and_the_record_stays_readable(study, tmp_path):
    runs = study.runs(True, 2)
    run_study("nothing", runs, Place(tmp_path), "first")
    path = record_file(tmp_path, "nothing")
    path.write_text(path.read_text()[:-40])
    assert len(read(path)) == 3
    finished = run_study("nothing", runs, Place(tmp_path), "second", resume=True)
    assert [one.origin["command"] for one in finished] == ["first", "first", "first", "second"]
    assert in_order(runs, read(path)) == finished


def test_a_run_with_other_settings_is_another_run(study, tmp_path):
    runs = study.runs(True, 1)
    finished = run_study("nothing", runs, Place(tmp_path), "first")
    assert without(runs, finished) == []  # though a tuple came back as a list
    longer = [replace(run, settings=replace(run.settings, epochs=3)) for run in runs]
    assert without(longer, finished) == longer
    assert those_of(longer, finished) == []
    assert those_of(runs[:1], finished) == finished[:1]


def test_whoever_ends_first_runs_stay_in_the_order_asked_for(study, tmp_path):
    runs = study.runs(False, 2)
    finished = run_study("nothing", runs, Place(tmp_path), "all")
    assert in_order(runs, finished[::-1]) == finished


def test_a_table_has_the_paper_before_ours_and_mean_and_spread_over_seeds(study, tmp_path):
    finished = run_study("nothing", study.runs(False, 3), Place(tmp_path), "all")
    lines = table(study, finished).splitlines()
    assert lines[0] == "|  | method | ACC | loss | third, % | runs |"
    assert lines[2] == "| easy | *the paper: Theirs* | 0.40 | - | - | - |"
    assert lines[3] == "|  | theirs | 0.60 ± 0.10 | - | 33.3 ± 0.0 | 3 |"
    assert lines[5] == "| hard | theirs | 0.60 ± 0.10 | - | 33.3 ± 0.0 | 3 |"
    assert len(lines) == 7  # no row for what the paper reports of a case that was not run
    assert page(study, finished).splitlines()[-1] == "- 12 runs"
    assert page(replace(study, notes=None), finished).endswith(lines[-1])


def test_figures_of_a_row(study, tmp_path):
    finished = run_study("nothing", study.runs(True, 2), Place(tmp_path), "all")
    assert values(finished, "easy", "ours", "acc") == [0.75, 0.85]
    assert average(finished, "easy", "ours", "acc") == pytest.approx(0.8)
    assert np.isnan(average(finished, "easy", "nobody", "acc"))
    assert spread([], 2) == "-"
    assert spread([0.5], 2) == "0.50"
    assert spread([0.5, float("nan")], 2) == "nan"
    never = float("inf")
    assert (spread([never], 0), spread([2, never, 4], 0)) == ("never", "3 in 2 of 3")


def test_the_command_writes_record_and_page(study, tmp_path, capsys):
    assert reproduce("nothing", "--quick", "--no-figures", "--out", tmp_path) == 0
    shown = capsys.readouterr()
    assert (tmp_path / "nothing.md").read_text() == shown.out
    assert "## Nothing (Table 0)" in shown.out
    assert "nothing 2 / 2" in shown.err
    assert len(read(record_file(tmp_path, "nothing"))) == 2


def test_cases_methods_and_seeds_can_be_chosen(study, tmp_path):
    given = ("--seeds", 2, "--cases", "HARD", "--methods", "our", "--no-figures", "--out", tmp_path)
    assert reproduce("nothing", *given) == 0
    found = read(record_file(tmp_path, "nothing"))
    assert [(one.case, one.method, one.seed) for one in found] == [("hard", "ours", 0), ("hard", "ours", 1)]
    assert found[0].origin["command"] == "ddcl reproduce nothing --seeds 2 --cases HARD --methods our"


def test_a_recorded_command_has_no_paths_of_the_machine():
    given = Namespace(quick=True, seeds=None, cases=["two words"], methods=None, device="cuda", out=Path("/here"))
    assert command("vq", given) == "ddcl reproduce vq --quick --cases 'two words' --device cuda"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a study, or --all"),
        (("something",), "there is no study 'something'"),
        (("nothing", "--seeds", "0"), "--seeds: got 0, expected at least 1"),
        (("nothing", "--jobs", "-1"), "--jobs: got -1, expected at least 1"),
        (("nothing", "--cases", "other"), "no run has such a case and method"),
        (("nothing", "--device", "elsewhere"), "no such data here"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_line_with_status_2(study, arguments, message, tmp_path, capsys):
    assert reproduce(*arguments, "--no-figures", "--out", tmp_path) == 2
    assert message in capsys.readouterr().err


def test_an_unknown_study_is_refused_by_name():
    with pytest.raises(ValueError, match="got 'something', expected one of debris"):
        load_study("something")


@pytest.mark.slow
def test_two_processes_give_the_same_as_one(tmp_path):
    pytest.importorskip("sklearn")
    study = load_study("debris")
    runs = [run for run in study.runs(True, 1) if run.method.startswith("k-means")]
    one, two = (
        run_study("debris", runs, Place(tmp_path / str(jobs), jobs=jobs), "ddcl reproduce debris") for jobs in (1, 2)
    )
    assert [(a.run, a.metrics) for a in one] == [(b.run, b.metrics) for b in two]
    assert [b.origin["threads"] for b in two] == [1, 1]


def test_watching_keeps_measured_epochs_and_scores():
    watch = Watch(lambda: {"acc": 0.5})
    told = {"total": 1.0, "bank/0/entropy": 2.0, "smallest_margin": 3.0}
    for epoch, metrics in enumerate([told, {}, told], start=1):
        watch(Progress(epoch, 3, epoch, 3, 0.25, 1.0, metrics))
    expected = {"epoch": [1, 3], "total": [1, 1], "bank/0/entropy": [2, 2], "loss": [0.25, 0.25], "acc": [0.5, 0.5]}
    assert watch.epochs == expected


def test_the_best_epoch_is_the_first_of_the_highest():
    assert best({"epoch": [1, 5, 9], "acc": [0.1, 0.7, 0.7]}, "acc") == (0.7, 5)


def test_thinning_keeps_first_and_last_and_all_of_a_short_run():
    long = {"epoch": list(range(1, 501)), "acc": [0.0] * 500}
    short = thinned(long, 60)
    assert len(short["epoch"]) == len(short["acc"]) == 60
    assert (short["epoch"][0], short["epoch"][-1]) == (1, 500)
    assert short["epoch"] == sorted(set(short["epoch"]))
    assert thinned(short, 60) == short


def test_settings_are_recorded_whole(study, tmp_path):
    run_study("nothing", study.runs(True, 1), Place(tmp_path), "all")
    line = json.loads(record_file(tmp_path, "nothing").read_text().splitlines()[0])
    assert line["run"] == {"case": "easy", "method": "theirs", "seed": 0, "settings": {"epochs": 2, "sizes": [2, 3]}}
    assert Run("a case", "a method", 0).described()["settings"] == {}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "drawn"), [("debris", 4), ("ablation", 1)])
def test_the_quick_version_of_a_study_runs_from_the_command_to_its_pictures(name, drawn, tmp_path, capsys):
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    assert reproduce(name, "--quick", "--out", tmp_path) == 0
    study = load_study(name)
    finished = read(record_file(tmp_path, name))
    assert those_of(study.runs(True, 1), finished) == finished
    assert len(finished) == len(study.runs(True, 1))
    assert capsys.readouterr().out == page(study, finished) + "\n"
    assert len(list(tmp_path.glob("*.svg"))) == drawn
