"""What a bank learns from labels: where it starts, what it descends, and that a head on it is right."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import ddcl
from ddcl.cli import main
from ddcl.fitting.batches import LabelledBatches, Rows
from ddcl.fitting.classes import UNLABELLED, Classes
from ddcl.fitting.lessons import QUANTISATION, _log_shares, lessons_for, share_out
from ddcl.fitting.mixtures import class_logits
from ddcl.fitting.settings import Settings, usual_effort

CLASSES = ("a", "b", "c")


def settings(rows, prototypes, dim):
    effort = usual_effort(rows, prototypes, epochs=2, by_class=True)
    return Settings(
        **vars(effort),
        source="",
        digest="",
        kind="embeddings",
        rows=rows,
        dim=dim,
        text_column=None,
        label_column="y",
        classes=CLASSES,
        encoder=None,
        fingerprint=None,
        max_tokens=None,
        normalise=False,
        prototypes=prototypes,
        prototypes_reason="as given",
        levels=None,
        seed=0,
        device="cpu",
        held_out=0.1,
    )


def lessons(prototypes=5, rows=60, dim=4):
    """Three classes about three corners, some rows without a label, the last five held out."""
    z = torch.randn(rows, dim) + 6 * torch.eye(3, dim)[torch.arange(rows) % 3]
    numbers = torch.arange(rows) % 3
    numbers[:6] = UNLABELLED
    found = Classes(numbers, np.arange(rows - 5, rows))
    return lessons_for(Rows(z.numpy(), normalise=False), settings(rows, prototypes, dim), found)


def test_prototypes_start_in_the_class_they_stand_for():
    found = lessons()
    assert found.of_prototypes.tolist() == [0, 0, 1, 1, 2]
    bank = ddcl.PrototypeBank(5, 4)
    found.start(bank)
    assert bank.prototypes[0][:, :3].argmax(-1).tolist() == found.of_prototypes.tolist()


def test_the_loss_is_the_missing_share_of_the_own_class_and_the_quantisation():
    found = lessons()
    bank = ddcl.PrototypeBank(5, 4, temperature=7.0)
    found.start(bank)
    z, numbers = 4 * torch.randn(9, 4), torch.tensor([0, 1, 2, UNLABELLED, 0, 1, 2, 0, UNLABELLED])
    shares = ddcl.readout(z, bank.prototypes[0], 7.0).assignments
    of_class = shares @ F.one_hot(found.of_prototypes, 3).float()
    labelled = numbers >= 0
    missed = F.nll_loss(of_class[labelled].log(), numbers[labelled])
    expected = missed + QUANTISATION * bank(z).loss.total / found.trace
    torch.testing.assert_close(found.loss(bank, (z, numbers)), expected, rtol=1e-5, atol=1e-5)
    nobody = torch.full_like(numbers, UNLABELLED)
    torch.testing.assert_close(found.loss(bank, (z, nobody)), QUANTISATION * bank(z).loss.total / found.trace)


def test_far_rows_of_a_cold_bank_still_pull_their_class():
    found = lessons()
    bank = ddcl.PrototypeBank(5, 4, temperature=1e-3)  # shares of all other classes are 0 in float32
    found.start(bank)
    found.loss(bank, (bank.prototypes[0][:1].detach(), torch.tensor([2]))).backward()
    gradient = bank.prototypes.grad[0]
    assert torch.isfinite(gradient).all()
    assert gradient[4].norm() > 0


def test_held_out_rows_are_neither_drawn_nor_started_from():
    found = lessons()
    drawn = [row for z, _ in found.batches(60) for row in z.tolist()]
    held = found.rows.at(found.classes.held_out).tolist()
    assert len(drawn) == 55
    assert not any(row in drawn for row in held)
    started = [row for sample in found.samples for row in sample.tolist()]
    assert len(started) == 49
    assert not any(row in started for row in held)


def test_batches_keep_rows_and_classes_together():
    z = np.arange(40, dtype=np.float32)[:, None]
    batches = LabelledBatches(Rows(z, normalise=False), 16, 40, chosen=np.arange(3, 30), numbers=torch.arange(40))
    seen = torch.cat([torch.stack([rows[:, 0], numbers.float()]) for rows, numbers in batches], dim=1)
    assert (seen[0] == seen[1]).all()
    assert sorted(seen[0].tolist()) == list(range(3, 30))


def test_classes_of_few_different_rows_get_no_more_prototypes_than_those():
    assert share_out(7, [50, 30, 5], [1, 30, 5]) == [1, 5, 1]
    z = torch.zeros(60, 2)
    z[1::3] = torch.randn(20, 2)
    found = Classes(torch.arange(60) % 3, np.arange(0))
    shared = lessons_for(Rows(z.numpy(), normalise=False), settings(60, 6, 2), found)
    assert shared.of_prototypes.tolist() == [0, 1, 1, 1, 1, 2]


def test_without_a_row_for_each_prototype_or_a_prototype_for_each_class_there_are_no_lessons():
    z = torch.zeros(60, 2)
    z[1::3] = torch.randn(20, 2)
    found = Classes(torch.arange(60) % 3, np.arange(0))
    rows = Rows(z.numpy(), normalise=False)
    assert lessons_for(rows, settings(60, 22, 2), found) is not None
    assert lessons_for(rows, settings(60, 23, 2), found) is None
    assert lessons_for(rows, settings(60, 2, 2), found) is None
    few = Classes(torch.where(torch.arange(60) < 9, torch.arange(60) % 3, UNLABELLED), np.arange(0))
    assert lessons_for(rows, settings(60, 10, 2), few) is None


@pytest.fixture(scope="module")
def rings(tmp_path_factory):
    """Two classes that no plane parts: a disc and the ring about it; a tenth of the labels are missing."""
    path = tmp_path_factory.mktemp("rings") / "rings.npz"
    random = np.random.default_rng(0)
    inner, turn = np.arange(400) % 2 == 0, random.uniform(0, 2 * np.pi, 400)
    radius = np.where(inner, 0.5, 3.0) + 0.2 * random.normal(size=400)
    labels = np.where(inner, "disc", "ring").astype(object)
    labels[::10] = ""
    np.savez(path, z=np.stack([radius * np.cos(turn), radius * np.sin(turn)], 1), y=labels.astype(str))
    return path


def fit(*arguments):
    assert main(["fit", *map(str, arguments), "--epochs", "10"]) == 0


@pytest.fixture(scope="module")
def of_rings(rings):
    pytest.importorskip("sklearn")
    fit(rings, "--labels", "y", "--prototypes", "10", "--out", rings.parent / "run")
    return ddcl.load(rings.parent / "run")


def test_a_bank_learns_what_no_plane_can_tell(of_rings):
    accuracy = of_rings.config["result"]["accuracy"]
    assert accuracy["head"] > 0.95
    assert accuracy["logistic_regression"] < 0.7


def test_logits_are_sums_over_prototypes_of_weight_times_share(of_rings, rings):
    z = np.load(rings)["z"][:50]
    state = of_rings.folder.read_model()
    assert state["head.weight"].shape == (2, 10)
    shares = of_rings.mixture(z)
    parts = shares[:, None] * state["head.weight"]  # (n, C, K)
    logits = class_logits(of_rings.model, shares)
    torch.testing.assert_close(parts.sum(-1) + state["head.bias"], logits)
    torch.testing.assert_close(logits.softmax(-1), of_rings.probabilities(z))


def test_fewer_prototypes_than_classes_still_give_a_head(labelled, tmp_path):
    fit(labelled, "--labels", "team", "--prototypes", "2", "--out", tmp_path / "run")
    fitted = ddcl.load(tmp_path / "run")
    assert fitted.probabilities(np.load(labelled)["z"]).shape == (200, 3)


def test_shares_are_right_far_from_the_origin():
    torch.manual_seed(0)
    z, prototypes = torch.randn(50, 8), torch.randn(6, 8)
    near = _log_shares(z.double(), prototypes.double(), torch.tensor(1.0))
    far = _log_shares(z + 1000, prototypes + 1000, torch.tensor(1.0))
    assert (far.exp() - near.exp()).abs().max() < 0.01  # what float32 leaves of the rows themselves


def test_rows_that_are_all_the_same_cannot_be_learned_from():
    rows = Rows(np.ones((21, 4), dtype=np.float32), normalise=False)
    found = Classes(torch.arange(21) % 3, np.arange(18, 21))
    with pytest.raises(ddcl.fitting.BadInputError, match="all rows are the same"):
        lessons_for(rows, settings(21, 3, 4), found)
