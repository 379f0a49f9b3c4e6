"""Pictures of the reproductions: drawn from records alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ddcl.experiments.reproduce import STUDIES, Result, Run
from ddcl.experiments.reproduce.ablation import ARMS, Setting
from ddcl.experiments.reproduce.debris import Setting as OrbitSetting
from ddcl.experiments.reproduce.orbits import Orbits
from ddcl.experiments.reproduce.record import append, done, save_arrays
from ddcl.experiments.reproduce.running import record_file
from ddcl.report.reproduction import draw
from ddcl.report.reproduction.ablation import draw_ratios
from ddcl.report.reproduction.maps import draw_map
from ddcl.report.reproduction.six_panels import draw_dynamics

pytest.importorskip("matplotlib")

NAMES = ("total", "reconstruction", "variance", "quantization", "separation", "entropy", "acc", "nmi", "ari")
EPOCHS = {"epoch": [1, 2, 3], **{name: [3.0 + i, 2.0 + i, 1.0 + i] for i, name in enumerate(NAMES)}}


def ablation(arm, ratio, seed=0, **metrics):
    run = Run("digits", f"{arm}, ratio {ratio:g}", seed, Setting("digits", None, None, arm, ratio))
    figures = {"acc_best": 0.8, "acc": 0.7, "separation": 1.0, "separation_start": 2.0} | metrics
    return done(run, Result(figures, EPOCHS), 1.0, {})


def test_the_six_panels_show_the_series_by_name():
    figure = draw_dynamics(EPOCHS, num_prototypes=4, title="a run")
    titles = [axes.get_title() for axes in figure.axes[:6]]
    assert titles[0] == "$L_q = R + V$"
    assert titles[5] == "phase portrait"
    terms = {line.get_label(): list(line.get_ydata()) for line in figure.axes[0].lines}
    assert terms == {"$L_q$": [3, 2, 1], "$R$": [4, 3, 2], "$V$": [5, 4, 3], "min $d$": [6, 5, 4]}
    entropy, mark = figure.axes[3].lines
    assert list(entropy.get_ydata()) == EPOCHS["entropy"]
    assert mark.get_ydata()[0] == pytest.approx(math.log(4))
    assert figure.axes[5].collections[0].get_offsets().tolist() == [[5, 7], [4, 6], [3, 5]]


def test_a_prefix_chooses_one_bank_of_several_and_what_is_missing_is_left_out():
    figure = draw_dynamics({"epoch": [1, 2], "level1/0/variance": [2.0, 1.0]}, prefix="level1/0/")
    assert [len(axes.lines) for axes in figure.axes[:6]] == [1, 1, 0, 0, 0, 0]


def test_a_map_has_a_panel_for_each_grouping_and_a_star_for_each_prototype():
    points, groups = np.arange(10.0).reshape(5, 2), np.array([0, 0, 1, 1, 1])
    panels = [("true", groups, ["low", "high"]), ("found", 1 - groups, None)]
    left, right = draw_map(points, panels, prototypes=np.zeros((3, 2))).axes
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["low", "high"]
    assert right.get_legend() is None
    assert [len(dots.get_offsets()) for dots in left.collections] == [2, 3, 3]
    assert [len(dots.get_offsets()) for dots in right.collections] == [3, 2, 3]


def test_ratios_have_a_row_for_each_temperature_with_three_portraits():
    ratios = (0.001, 0.01, 0.1, 0.5, 1.0)
    finished = [ablation(arm, ratio, seed, acc=0.1 * seed) for arm in ARMS for ratio in ratios for seed in (4, 0)]
    figure = draw_ratios(finished)
    titled = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titled == [title for arm in ARMS for title in (arm, "ratio 0.001", "ratio 0.1", "ratio 1")]
    bars = figure.axes[0].containers
    assert [bar.get_height() for bar in bars[0]] == pytest.approx([0.8] * 5)
    assert [bar.get_height() for bar in bars[1]] == pytest.approx([0.2] * 5)
    lines = [line for axes in figure.axes for line in axes.lines if line.get_label() == "$S(P)$ over its start"]
    assert [list(line.get_ydata()) for line in lines] == [pytest.approx([0.5] * 5)] * 3


def test_a_record_of_two_ratios_has_two_portraits():
    figure = draw_ratios([ablation("paper's T", ratio) for ratio in (0.001, 1.0)])
    assert [axes.get_title() for axes in figure.axes if axes.get_title()] == ["paper's T", "ratio 0.001", "ratio 1"]


def test_files_are_written_for_what_the_record_has(tmp_path):
    for method, way in (("k-means, m = 5", "k-means"), ("the paper's recipe", "paper"), ("default", "default")):
        run = Run("synthetic", method, 0, OrbitSetting(way, Orbits()))
        arrays = {
            "points": np.eye(4)[:, :2],
            "labels": np.arange(4),
            "found": np.array([0, 0, 1, 1]),
            "prototypes": np.zeros((4, 2)),
        }
        result = Result({"acc": 1.0}, EPOCHS, arrays if way == "paper" else {})
        append(done(run, result, 1.0, {}), record_file(tmp_path, "debris"))
        save_arrays(run, result, tmp_path / "debris-arrays")
    paths = draw("debris", tmp_path, tmp_path / "figures")
    names = ["synthetic_paper_map", "synthetic_paper_dynamics", "synthetic_default_dynamics"]
    assert [path.name for path in paths] == [f"debris_{name}.svg" for name in names]
    assert all(path.read_text().startswith("<?xml") for path in paths)


def test_the_same_record_gives_the_same_file(tmp_path):
    append(ablation("default", 1.0), record_file(tmp_path, "ablation"))
    (first,) = draw("ablation", tmp_path)
    drawn = first.read_bytes()
    (again,) = draw("ablation", tmp_path)
    assert again.name == "ablation_digits.svg"
    assert again.read_bytes() == drawn


def test_a_study_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match=f"got 'nothing', expected one of {', '.join(STUDIES)}"):
        draw("nothing", tmp_path)
