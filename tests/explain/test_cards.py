"""Cards: sizes, purity, neighbours, typical rows, titles, outliers; and the nearest rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ddcl.explain import Term
from ddcl.explain.cards import ReadRows, purity, titles, vocabulary
from ddcl.explain.nearest import distances_to_own, nearest_rows

BANK = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 8.0], [100.0, 0.0]])


def rows(**more):
    return ReadRows(
        prototype=np.array([0, 1, 0, 0, 1, 2]),
        confidence=np.array([0.9, 0.8, 0.5, 0.7, 0.6, 1.0]),
        entropy=np.array([0.3, 0.5, 1.2, 0.8, 0.9, 0.0]),
        **more,
    )


def cards_of(read, *, typical=(3.0, 2.0, 1.0, 0.5, 1.0, 0.0), names=(None,) * 4, terms=((),) * 4, outliers=2):
    return vocabulary(
        read,
        np.array(typical),
        BANK,
        4.0,
        names=names,
        terms=terms,
        examples=2,
        outliers=outliers,
        neighbours=2,
    )


def test_a_card_counts_its_rows_and_shows_the_nearest_first():
    found = cards_of(rows(texts=[f"text {number}" for number in range(6)]))
    first = found.cards[0]
    assert (first.size, first.coverage, first.confidence) == (3, 0.5, pytest.approx(0.7))
    assert [one.row for one in first.examples] == [3, 2]
    assert first.examples[0].text == "text 3"
    assert found.rows == 6
    empty = found.cards[3]
    assert (empty.size, empty.coverage, empty.confidence, empty.examples) == (0, 0.0, None, ())


def test_neighbours_are_told_by_their_distance_in_roots_of_the_temperature():
    found = cards_of(rows()).cards
    assert [(one.prototype, one.distance) for one in found[0].neighbours] == [(1, 2.5), (2, 4.0)]
    assert [(one.prototype, one.distance) for one in found[2].neighbours] == [(1, 2.5), (0, 4.0)]


def test_purity_is_the_part_of_the_most_frequent_label_among_the_labelled_rows():
    labels = ["b", "a", "b", None, "a", None]
    assert purity(labels, np.array([0, 1, 2, 3])) == ("b", pytest.approx(2 / 3))
    assert purity(["b", "a"], np.array([0, 1])) == ("a", 0.5)
    assert purity(labels, np.array([3, 5])) == (None, None)
    found = cards_of(rows(labels=labels)).cards
    assert [(one.label, one.purity) for one in found] == [("b", 1.0), ("a", 1.0), (None, None), (None, None)]
    assert cards_of(rows()).cards[0].purity is None


def test_a_title_is_the_name_or_the_terms_or_the_number():
    terms = [[Term("red", 2.0), Term("fox", 1.0), Term("den", 0.5), Term("sly", 0.1)], [Term("blue", 1.0)], []]
    assert titles([None, "the sea", None], terms) == ["red, fox, den", "the sea", "prototype 2"]
    found = cards_of(rows(), names=(None, "sea", None, None))
    assert [card.title for card in found.cards] == ["prototype 0", "sea", "prototype 2", "prototype 3"]
    assert found.cards[0].neighbours[0].title == "sea"


def test_outliers_are_the_rows_of_largest_entropy():
    assert [one.row for one in cards_of(rows()).outliers] == [2, 4]
    assert cards_of(rows(), outliers=0).outliers == ()


def test_a_text_said_over_and_over_is_shown_once():
    found = cards_of(rows(texts=["same", "x", "same", "same", "y", "z"]))
    assert [one.row for one in found.cards[0].examples] == [3]


def test_nearest_rows_are_those_of_brute_force_however_they_are_cut():
    rows_, asked = torch.randn(97, 5), torch.randn(11, 5)
    cosine = F.cosine_similarity(asked[:, None], rows_[None], dim=-1)
    expected = cosine.sort(dim=-1, descending=True)
    directions = F.normalize(rows_, dim=-1)
    for size in (1, 13, 97):
        found = nearest_rows(asked, directions.split(size), 4)
        assert found.rows.tolist() == expected.indices[:, :4].tolist()
        torch.testing.assert_close(found.cosine, expected.values[:, :4])
    assert nearest_rows(asked, [directions[:3]], 7).rows.shape == (11, 3)
    assert nearest_rows(asked, [], 7).rows.shape == (11, 0)


def test_distances_are_to_the_own_prototype_of_each_row():
    z, own = torch.randn(10, 2), torch.arange(10) % 4
    expected = (z - BANK[own]).square().sum(-1)
    torch.testing.assert_close(distances_to_own(z.split(3), BANK, own), expected)
