"""Words of any script, and the terms that tell prototypes apart."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ddcl.explain import terms as terms_module
from ddcl.explain.terms import characteristic_terms
from ddcl.explain.words import word_spans, words

pytest.importorskip("sklearn")

NEWS = [
    "The goalie of the team saved the game",
    "the hockey team won the game in the rink",
    "a hockey game for the team and the goalie",
    "the orbit of the moon and the rocket launch",
    "a rocket launch to the moon is in the news",
    "the shuttle left the orbit for the moon",
]


def found(texts, prototype, K, count=5):
    return [
        [(one.term, one.weight) for one in mine]
        for mine in characteristic_terms(texts, np.array(prototype), K, terms=count)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Can't pay: 20€, twice!", ["Can't", "pay", "20", "twice"]),
        ("naïve cafe\u0301 snake_case", ["naïve", "cafe\u0301", "snake", "case"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("שלום עולם", ["שלום", "עולם"]),
        ("银行卡 card", ["银", "行", "卡", "card"]),
        ("... \x1b[ 🙂 \u202e", []),
        ("", []),
    ],
)
def test_words_are_found_in_any_script_with_their_places(text, expected):
    assert [text[start:end] for start, end in word_spans(text)] == expected


def test_words_beyond_what_is_read_are_left_out():
    assert word_spans("one two three", until=7) == [(0, 3), (4, 7)]


def test_words_that_are_counted_are_lower_case_and_longer_than_a_letter():
    assert words("I AM Straße 银行") == ["am", "strasse", "银", "行"]


def test_weights_are_rate_times_inverse_document_frequency():
    # ww: in all texts of 0, half of 1, so c = (2/3, 1/3); uu everywhere; the others in one prototype alone
    texts = ["ww uu", "ww uu", "ww uu", "xx uu", "yy uu", "zz uu"]
    entropy = -(2 / 3) * math.log(2 / 3) - (1 / 3) * math.log(1 / 3)
    mine = [dict(one) for one in found(texts, [0, 0, 1, 1, 2, 3], 4)]
    assert mine[0] == {"ww": pytest.approx(math.log(4) - entropy)}
    assert mine[1] == {"xx": pytest.approx(0.5 * math.log(4)), "ww": pytest.approx(0.5 * (math.log(4) - entropy))}
    assert mine[2] == {"yy": pytest.approx(math.log(4))}


def test_what_stands_everywhere_is_no_term_without_any_list_of_words():
    for mine in found(NEWS, [0, 0, 0, 1, 1, 1], 2, count=20):
        said = {word for term, _ in mine for word in term.split()}
        assert not said & {"the", "in", "of", "and", "a"}
    hockey, space = ([term for term, _ in mine] for mine in found(NEWS, [0, 0, 0, 1, 1, 1], 2, count=3))
    assert set(hockey) <= {"game", "team", "hockey", "goalie", "hockey game", "hockey team"}
    assert "moon" in space


def test_a_pair_takes_the_place_of_its_word_and_no_word_comes_twice():
    texts = ["my virtual card", "a virtual card please", "virtual card", "rent to pay", "the rent", "rent"]
    first = [term for term, _ in found(texts, [0, 0, 0, 1, 1, 1], 2)[0]]
    assert first[0] == "virtual card"
    assert sum("card" in term for term in first) == 1


def test_signs_of_scripts_without_spaces_are_joined_as_they_are_written():
    texts = ["银行 银行", "我的银行", "猫在家", "猫睡觉"]
    assert found(texts, [0, 0, 1, 1], 2)[0][0][0] == "银行"


def test_texts_without_words_and_prototypes_without_texts_have_no_terms():
    assert found(["", " ", "!?"], [0, 1, 1], 2) == [[], []]
    assert found(["red", "blue"], [0, 2], 4) == [[("red", pytest.approx(math.log(4)))], [], [("blue", math.log(4))], []]
    assert found(["red", "red"], [0, 0], 1) == [[]]


def test_where_no_word_tells_much_the_best_there_are_are_given():
    # three in five against two in five: far below what is called telling
    texts = ["good"] * 3 + ["dull"] * 2 + ["good"] * 2 + ["dull"] * 3
    assert [mine[0][0] for mine in found(texts, [0] * 5 + [1] * 5, 2)] == ["good", "dull"]


def test_of_many_texts_a_sample_is_counted_in_which_small_prototypes_keep_their_rows(monkeypatch):
    monkeypatch.setattr(terms_module, "SAMPLE", 200)
    counted = []
    before = terms_module._counted
    monkeypatch.setattr(terms_module, "_counted", lambda texts: counted.append(len(texts)) or before(texts))
    texts = ["plain words"] * 5000 + ["rare gem"] * 3
    mine = found(texts, [0] * 5000 + [1] * 3, 2)
    assert counted == [103]
    assert [one[0][0] for one in mine] == ["plain words", "rare gem"]


def test_a_text_of_a_hundred_thousand_characters_and_control_signs_does_no_harm():
    texts = ["word " * 20_000, "\x1b \x00 <script> \u202e", "word", "script"]
    assert [one[0][0] for one in found(texts, [0, 1, 0, 1], 2)] == ["word", "script"]
