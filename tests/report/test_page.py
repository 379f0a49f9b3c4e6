"""The parts a run's page is made of."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("jinja2")

from ddcl.explain.outputs import PrototypeCard, Term
from ddcl.report.page.drawing import Scale, round_numbers, tag
from ddcl.report.page.heat import label_map, mixture_map
from ddcl.report.page.hierarchy import hierarchy
from ddcl.report.page.mapping import spread_colours
from ddcl.report.page.merging import branches
from ddcl.report.page.texts import shown


def card(number, size, *terms):
    found = tuple(Term(term, weight) for term, weight in terms)
    return PrototypeCard(number, None, f"title {number}", size, 0.0, None, found, (), None, None, ())


def test_control_characters_are_shown_as_pictures_and_long_texts_are_cut():
    assert shown("a\x07b\x00c\x9bd\ud800e\tf\r\ng") == "a␇b␀c\ufffdd\ufffde\tf\ng"
    assert shown("word " * 100_000) == "word " * 79 + "word…"
    assert shown("exact", 5) == "exact"


def test_what_is_drawn_is_escaped():
    assert str(tag("text", "<b>&", data_x='"')) == '<text data-x="&#34;">&lt;b&gt;&amp;</text>'


def test_numbers_on_an_axis_are_round_and_inside():
    assert round_numbers(0.0, 0.0172) == [0.0, 0.005, 0.01, 0.015]
    assert round_numbers(3.0, 3.0) == [3.0]
    assert Scale(0.19, 1.3, 0, 1, logarithmic=True).ticks() == pytest.approx([0.2, 0.3, 0.5, 0.7, 1.0])
    assert Scale(0.1, 10.0, 0.0, 100.0, logarithmic=True)(1.0) == pytest.approx(50.0)


def test_the_tree_of_merges_is_read_off_the_groups():
    groups = [[0, 1, 2, 3], [0, 1, 2, 2], [0, 0, 2, 2], [0, 0, 0, 0]]
    (top,) = branches({"groups": groups, "temperatures": [1.0, 2.0, 4.0, 8.0], "critical": 4.0})
    assert (top.members, top.at) == ((0, 1, 2, 3), 2.0)
    assert [(part.members, part.at) for part in top.parts] == [((0, 1), 1.0), ((2, 3), 0.5)]
    assert [leaf.members for leaf in top.parts[0].parts] == [(0,), (1,)]


def test_groups_that_never_meet_are_trees_of_their_own():
    tops = branches({"groups": [[0, 1, 2], [0, 1, 1]], "temperatures": [1.0, 2.0], "critical": 1.0})
    assert [top.members for top in tops] == [(1, 2), (0,)]


def test_an_upper_prototype_is_called_by_the_terms_of_its_rows_and_one_without_any_is_left_out():
    cards = [card(0, 10, ("card", 1.0)), card(1, 90, ("refund", 1.0), ("card", 0.1)), card(2, 5, ("pin", 3.0))]
    tops = hierarchy([[1, 1, 2], [0, 0, 0]], cards)
    assert [(top.level, top.number, top.size) for top in tops] == [(2, 0, 105)]
    assert [(node.number, node.title) for node in tops[0].below] == [(1, "refund, card"), (2, "pin")]
    assert [leaf.number for leaf in tops[0].below[0].below] == [1, 0]


def test_the_heat_map_of_labels_has_shares_of_labelled_rows_and_no_empty_prototype():
    found = label_map(np.array([0, 0, 0, 2, 2, 3]), ["b", "b", "a", "a", None, None], 4)
    assert found.columns == ("a", "b")
    assert found.rows == (2, 0)
    np.testing.assert_allclose(found.shares, [[1, 0], [1 / 3, 2 / 3]])


def test_the_heat_map_without_labels_is_the_mean_mixture_of_each_prototype_s_rows():
    leading = np.array([[0, 1], [0, 2], [2, 0]])
    weights = np.array([[0.9, 0.1], [0.7, 0.3], [0.6, 0.4]])
    found = mixture_map(leading, weights, ["x", "y", "z"])
    assert found.rows == (0, 2)
    np.testing.assert_allclose(found.shares, [[0.8, 0.15], [0.4, 0.6]])


def test_neighbours_on_the_map_have_different_colours():
    places = np.stack(np.meshgrid(np.arange(8.0), np.arange(8.0)), -1).reshape(-1, 2)
    colours = np.array(spread_colours(places))
    apart = np.square(places[:, None] - places).sum(-1)
    near = apart == 1
    assert not (near & (colours[:, None] == colours)).any()
    assert len(set(colours)) == 8


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("count", [9, 40, 200])
def test_colours_keep_clear_of_the_nearest_wherever_prototypes_lie(count, seed):
    places = np.random.default_rng(seed).normal(size=(count, 2))
    colours = np.array(spread_colours(places))
    apart = np.square(places[:, None] - places).sum(-1)
    np.fill_diagonal(apart, np.inf)
    same = colours[apart.argsort(1)[:, :7]] == colours[:, None]
    assert not same[:, 0].any(), "the nearest has another colour, in both directions"
    assert same.mean() < 0.02, "and nearly all of the next six"


def test_prototypes_in_one_place_have_several_colours():
    assert len(set(spread_colours(np.zeros((8, 2))))) == 8
    assert spread_colours(np.zeros((1, 2))) == [0]
