"""The orbital regimes: objects as the paper describes them, and what is said of runs on them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from ddcl.experiments.reproduce.debris import STUDY, Setting, execute, runs
from ddcl.experiments.reproduce.debris_notes import notes
from ddcl.experiments.reproduce.orbits import REGIMES, Orbits, catalogued_orbits, orbital_period, synthetic_orbits
from ddcl.experiments.reproduce.projection import principal_components, standardised
from ddcl.experiments.reproduce.study import Done, Run
from ddcl.rivals.clusters import cluster_scores, purity, recalls

AXIS, ECCENTRICITY, SINE, COSINE, NODE, CROSS_SECTION, PERIOD = range(7)


def made_up(case, method, seed, series=None, **metrics):
    return Done({"case": case, "method": method, "seed": seed, "settings": {}}, metrics, series or {}, 1.0, {})


def regime_means(objects):
    return np.stack([objects.features[objects.labels == label].mean(0) for label in range(len(REGIMES))])


def test_periods_are_those_of_kepler():
    assert orbital_period(42164) == pytest.approx(86164, rel=1e-4)  # one sidereal day
    assert orbital_period(4 * 7200.0) == pytest.approx(8 * orbital_period(7200.0))


def test_regimes_are_balanced_and_where_the_paper_puts_them():
    objects = synthetic_orbits(Orbits(), 0)
    assert objects.features.shape == (1600, 7)
    assert np.bincount(objects.labels).tolist() == [400] * 4
    means = regime_means(objects)
    np.testing.assert_allclose(means[:, AXIS] * 42164, [7200, 20200, 42164, 26560], atol=300)
    np.testing.assert_allclose(means[:, ECCENTRICITY], [0, 0, 0, 0.74], atol=0.01)
    np.testing.assert_allclose(means[2:, SINE], np.sin(np.deg2rad([0, 63.4])), atol=0.01)
    # Kepler's third law between the regimes, in units of the largest axis and period
    np.testing.assert_allclose(means[:, PERIOD], means[:, AXIS] ** 1.5, atol=0.01)


def test_features_have_the_noise_of_their_regime():
    objects = synthetic_orbits(Orbits(objects=8000, nodes="one"), 0)
    for label, regime in enumerate(Orbits().regimes()):
        assert 0.02 <= regime.noise <= 0.04
        spread = objects.features[objects.labels == label].std(0)
        np.testing.assert_allclose(spread, regime.noise, rtol=0.06)


def test_the_same_seed_gives_the_same_objects_and_another_seed_others():
    first, again, other = (synthetic_orbits(Orbits(objects=40), seed).features for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_what_the_paper_leaves_open_changes_its_feature_alone():
    base = regime_means(synthetic_orbits(Orbits(), 0))
    polar = regime_means(synthetic_orbits(Orbits(leo_inclination=98.0), 0))
    assert np.flatnonzero(np.abs(polar - base).max(0) > 1e-9).tolist() == [SINE, COSINE]
    alike = synthetic_orbits(Orbits(cross_sections="equal"), 0)
    np.testing.assert_allclose(regime_means(alike)[:, CROSS_SECTION], 1.0, atol=0.01)
    assert synthetic_orbits(Orbits(nodes="one"), 0).features[:, NODE].std() < 0.05


def test_objects_must_be_shared_out_evenly():
    with pytest.raises(ValueError, match="multiple of 4"):
        synthetic_orbits(Orbits(objects=1601), 0)


def test_five_components_keep_as_much_variance_as_the_paper_says():
    features = standardised(torch.from_numpy(synthetic_orbits(Orbits(), 0).features))
    torch.testing.assert_close(features.square().mean(0), torch.ones(7, dtype=features.dtype))
    assert principal_components(features, 5).explained == pytest.approx(0.995, abs=0.004)
    assert principal_components(features, 7).explained == pytest.approx(1.0)
    components = principal_components(features, 5).components
    torch.testing.assert_close(components @ components.mT, torch.eye(5, dtype=features.dtype))


def test_a_constant_column_standardises_to_zero_and_a_wrong_dimension_is_refused():
    assert standardised(torch.ones(3, 2)).tolist() == [[0.0, 0.0]] * 3
    with pytest.raises(ValueError, match="1 to 2"):
        principal_components(torch.randn(3, 2), 3)


def test_satellites_lack_node_and_cross_section(monkeypatch):
    from ddcl.data import Satellites

    elements = {
        "semi_major_axis_km": np.array([7000.0, 42164.0]),
        "eccentricity": np.array([0.0, 0.1]),
        "inclination_deg": np.array([90.0, 0.0]),
        "period_min": np.array([97.0, 1436.0]),
    }
    table = Satellites(["a", "b"], np.array([0, 2]), REGIMES, elements, {}, 0, 0)
    monkeypatch.setattr(
        "ddcl.experiments.reproduce.orbits.load_satellites", lambda elements: table if len(elements) == 4 else None
    )
    objects = catalogued_orbits()
    expected = [[7000 / 42164, 0, 1, 0, 97 / 1436], [1, 0.1, 0, 1, 1]]
    np.testing.assert_allclose(objects.features, expected, atol=1e-12)
    assert objects.labels.tolist() == [0, 2]


def test_a_class_that_no_cluster_is_named_after_has_recall_zero():
    found, labels = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 2, 2, 2])
    assert recalls(found, labels) == [1.0, 0.0, 1.0]
    assert purity(found, labels) == pytest.approx(5 / 6)


def test_scores_do_not_depend_on_how_clusters_are_numbered():
    labels = np.array([0, 0, 1, 1, 2, 2])
    scores = cluster_scores(np.array([2, 2, 0, 0, 1, 1]), labels)
    assert scores == pytest.approx({"acc": 1.0, "nmi": 1.0, "ari": 1.0, "purity": 1.0})


def test_the_full_study_runs_every_case_for_the_epochs_of_the_paper():
    found = runs(False, 2)
    assert {run.seed for run in found} == {0, 1}
    assert len({(run.case, run.method, run.seed) for run in found}) == len(found)
    paper = {run.case: run.settings for run in found if run.method == "the paper's recipe"}
    assert len(paper) == 5
    assert all(setting.epochs == 500 for setting in paper.values())
    assert {run.case for run in runs(True, 1)} == {"synthetic"}


@pytest.mark.parametrize("way", ["paper", "default"])
def test_a_bank_finds_regimes_that_lie_apart_and_is_measured(way):
    apart = Orbits(objects=200, leo_inclination=98.0)
    result = execute(Run("a case", "a method", 0, Setting(way, apart, epochs=4)), "cpu")
    assert result.metrics["acc"] == result.metrics["acc_best"] == 1.0
    assert [result.metrics[f"recall_{name}"] for name in REGIMES] == [1.0] * 4
    assert result.metrics["distinct"] == 4
    assert result.metrics["epochs"] == 4
    assert result.metrics["violations"] == 0
    assert list(result.epochs["epoch"]) == [1, 2, 3, 4]
    assert result.arrays["points"].shape == (200, 2)
    assert result.arrays["prototypes"].shape == (4, 2)
    assert {column.metric for column in STUDY.columns} <= set(result.metrics)


def test_k_means_has_scores_and_no_epochs():
    result = execute(Run("a case", "k-means", 0, Setting("k-means", Orbits(objects=200), dim=None)), "cpu")
    assert not result.epochs
    assert not result.arrays
    assert "acc_best" not in result.metrics
    assert result.metrics["explained"] == 1.0


def test_regimes_that_k_means_cuts_across_stay_cut_whoever_clusters():
    """The paper's figures, 0.756 / 0.751 / 0.667, are those of two regimes found and two mixed evenly."""
    result = execute(Run("synthetic", "k-means", 0, Setting("k-means", Orbits())), "cpu")
    assert [result.metrics[name] for name in ("acc", "nmi", "ari")] == pytest.approx([0.756, 0.751, 0.667], abs=0.02)
    assert [result.metrics[f"recall_{name}"] < 0.6 for name in REGIMES] == [True, True, False, False]


def test_notes_tell_the_course_of_the_papers_run_as_a_mean_over_seeds():
    series = {"separation": [3.0, 4.0, 3.5, 3.25], "relative_entropy": [0.25, 0.2, 0.1, 0.05]}
    recall = {f"recall_{name}": 1.0 for name in REGIMES}
    finished = [
        made_up(
            "synthetic",
            "the paper's recipe",
            seed,
            {"epoch": [1, 40, 60, 500], "variance": [0.4, 0.5 + 0.2 * seed, 0.3, 0.1]} | series,
            **recall,
        )
        for seed in (0, 1)
    ]
    said = "\n".join(notes(finished))
    assert "V 0.4, 0.6, 0.1 (the paper: rises, then decays), S(P) 3, 4, 3.25 (grows" in said
    assert "H / ln K 0.25, 0.2, 0.05 (falls from 1)" in said


def test_notes_compare_seed_by_seed_with_the_paper_and_count_what_failed():
    recall = {f"recall_{name}": share for name, share in zip(REGIMES, (0.5, 0.5, 1.0, 1.0), strict=True)}
    health = {"hottest": 0.11, "epochs": 500, "violations": 0, "paper_violations": 420}
    finished = []
    for seed, (theirs, ours) in enumerate([(0.75, 0.77), (0.76, 0.78)]):
        finished.append(made_up("synthetic", "k-means, m = 5", seed, acc=theirs, **recall))
        paper = {"acc": theirs, "acc_best": ours, "distinct": 4 - seed, **health, **recall}
        finished.append(made_up("synthetic", "the paper's recipe", seed, **paper))
    said = "\n".join(notes(finished))
    assert "best epoch: ACC +0.0200 ± 0.0000 over 2 seeds" in said
    assert "margin of +0.016 is met" in said
    assert "last epoch: ACC +0.0000 ± 0.0000 over 2 seeds" in said
    assert "margin of +0.016 is not met" in said
    assert "recall below 0.9 for LEO, MEO (k-means, m = 5; the paper's recipe)" in said
    assert "merged in 1 of 2 runs" in said
    assert "violated in 0 of 1000 epochs measured, the paper's L = min d + V in 840" in said
    assert "would score ACC 0.750, NMI 0.750, ARI 0.66" in said
