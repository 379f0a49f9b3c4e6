"""Words by leaving them out, and the test that tells true explanations from random ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ddcl.explain import Word
from ddcl.explain.deletion import (
    Answers,
    carrying,
    compare,
    deletion_test,
    prototype_comparisons,
    word_comparisons,
)
from ddcl.explain.occlusion import state_weights, without, word_groups, word_weights
from ddcl.explain.words import Span, word_spans, words
from ddcl.functional import assignments

VOCABULARY = [f"word{number}" for number in range(30)]
SAID = {"removed": "a", "instead": "b", "effect": "it falls"}


class BagOfWords:
    """An encoder whose embedding is the sum of its words' vectors, and a bank that reads it."""

    def __init__(self, dim=4, prototypes=3, seed=0):
        random = torch.Generator().manual_seed(seed)
        self.vectors = torch.randn(len(VOCABULARY), dim, generator=random).double()
        self.bank = 3 * torch.randn(prototypes, dim, generator=random).double()
        self.temperature = 8.0

    def embed(self, texts):
        counts = torch.zeros(len(texts), len(VOCABULARY)).double()
        for row, text in zip(counts, texts, strict=True):
            for word in words(text):
                row[VOCABULARY.index(word)] += 1
        return counts @ self.vectors

    def shares(self, texts):
        return assignments(self.embed(texts), self.bank, self.temperature)

    def answers(self, texts):
        shares = self.shares(texts)
        return Answers(shares, torch.stack([shares[:, 0], shares[:, 1:].sum(-1)], -1))

    def words_of(self, text, prototype):
        return word_weights(text, lambda texts: self.shares(texts)[:, prototype])


def texts_of(number=120, length=8, seed=0):
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(VOCABULARY, length, replace=False)) for _ in range(number)]


def test_leaving_words_out_of_a_linear_encoder_gives_the_closed_form():
    encoder, text = BagOfWords(prototypes=2), "word3, word7 word3 word20... word11"
    direction = 2 * (encoder.bank[0] - encoder.bank[1]) / encoder.temperature
    found = word_weights(text, lambda texts: torch.logit(encoder.shares(texts)[:, 0]))
    assert [(one.word, text[one.start : one.end]) for one in found] == [(w, w) for w in words(text)]
    expected = [float(encoder.vectors[VOCABULARY.index(one.word)] @ direction) for one in found]
    assert [one.weight for one in found] == pytest.approx(expected)


def test_words_of_a_long_text_are_left_out_together_and_share_the_weight():
    spans = word_spans("a b c d e f g")
    assert [len(group) for group in word_groups(spans, 3)] == [3, 3, 1]
    assert [len(group) for group in word_groups(spans, 7)] == [1] * 7
    assert word_groups([], 3) == []
    scored = []

    def score(texts):
        scored.append(len(texts))
        return torch.tensor([float(len(words(text))) for text in texts])

    found = word_weights("long " * 1000, score)
    assert scored == [1 + 250]
    assert len(found) == 1000
    assert {one.weight for one in found} == {1.0}


def test_leaving_states_out_of_the_mean_gives_the_closed_form():
    text = "one two-three four"
    # before the text, "one", " two", "-", "three four", behind it
    places = [(0, 0), (0, 3), (3, 7), (7, 8), (8, 18), (0, 0)]
    states, direction = torch.randn(6, 5).double(), torch.randn(5).double()
    found = state_weights(text, states, places, lambda means: means @ direction)
    assert [one.word for one in found] == ["one", "two", "three", "four"]
    tokens = [[1], [2], [4], [4]]  # the token of two words is left out with either
    kept = [[place for place in range(6) if place not in gone] for gone in tokens]
    expected = [float((states.mean(0) - states[rest].mean(0)) @ direction) for rest in kept]
    assert [one.weight for one in found] == pytest.approx(expected)
    assert state_weights("...", states[:2], [(0, 0), (0, 3)], lambda _: pytest.fail("scored")) == ()


def test_a_text_without_words_has_no_weights_and_is_not_scored():
    assert word_weights("?! \x1b", lambda _: pytest.fail("scored")) == ()
    assert word_weights("one two", lambda texts: torch.arange(len(texts)), until=2)[0].word == "one"


def test_named_words_are_those_of_largest_positive_weight():
    found = [Word(f"w{weight}", 0, 1, weight) for weight in (0.1, -0.5, 0.4, 0.0, 0.2, 0.3)]
    assert [one.weight for one in carrying(found)] == [0.4, 0.3, 0.2]
    assert carrying(found[1:2]) == []


def test_the_interval_is_that_of_the_mean_difference():
    random = np.random.default_rng(1)
    named = random.normal(0.5, 1.0, 400)
    found = compare(named, np.zeros(400), **SAID)
    error = named.std() / 20
    assert found.difference == pytest.approx(named.mean())
    assert (found.low, found.high) == pytest.approx(
        (named.mean() - 1.96 * error, named.mean() + 1.96 * error), abs=0.02
    )
    assert found.wins == pytest.approx((named > 0).mean())
    assert found.verdict == "faithful"


def test_what_the_interval_does_not_settle_is_not_shown_and_the_sentence_says_so():
    assert "holds 0" in compare(np.array([1.0, -1.0, 0.5]), np.zeros(3), **SAID).sentence()
    worse = compare(np.zeros(20), np.ones(20), **SAID)
    assert (worse.verdict, worse.wins) == ("not shown", 0.0)
    assert "below 0" in worse.sentence()
    alone = compare(np.ones(1), np.zeros(1), **SAID)
    assert alone.verdict == "not shown"
    none = compare(np.zeros(0), np.zeros(0), **SAID)
    assert (none.verdict, none.rows) == ("not shown", 0)
    assert "no row" in none.sentence()
    assert deletion_test([worse, compare(np.ones(9), np.zeros(9), **SAID)], 20, 0).verdict == "not shown"
    assert deletion_test([], 0, 0).verdict == "not shown"


def test_true_words_are_faithful_and_permuted_ones_are_not():
    encoder, texts = BagOfWords(), texts_of()
    true = word_comparisons(texts, encoder.words_of, encoder.answers, seed=0)
    assert [one.verdict for one in true] == ["faithful", "faithful"]
    assert true[0].named > 2 * true[0].random
    random = np.random.default_rng(0)

    def permuted(text, prototype):
        found = encoder.words_of(text, prototype)
        weights = random.permutation([one.weight for one in found])
        return [Word(one.word, one.start, one.end, float(w)) for one, w in zip(found, weights, strict=True)]

    assert [one.verdict for one in word_comparisons(texts, permuted, encoder.answers, seed=0)] == ["not shown"] * 2


def test_texts_whose_explanation_names_nothing_or_everything_are_left_out():
    encoder = BagOfWords()
    done = []
    found = word_comparisons(
        ["word1", "", *texts_of(10)], encoder.words_of, encoder.answers, report=lambda n, of: done.append((n, of))
    )
    assert found[0].rows == 10
    assert done[-1] == (12, 12)
    assert word_comparisons(["", "word1"], encoder.words_of, encoder.answers)[0].rows == 0


def test_removed_prototypes_leave_the_mixture_of_the_bank_without_them():
    encoder = BagOfWords(prototypes=2)
    z = encoder.embed(texts_of(30))
    named = torch.zeros(30, dtype=torch.long)
    moved = prototype_comparisons(z, encoder.bank, encoder.temperature, named)[0]
    mean = (assignments(z, encoder.bank, encoder.temperature) @ encoder.bank - encoder.bank[1]).norm(dim=-1).mean()
    assert moved.named == pytest.approx(float(mean) / encoder.temperature**0.5)
    # a bank of two has one other prototype
    mean = (assignments(z, encoder.bank, encoder.temperature) @ encoder.bank - encoder.bank[0]).norm(dim=-1).mean()
    assert moved.random == pytest.approx(float(mean) / encoder.temperature**0.5)


def test_the_leading_prototype_is_faithful_and_a_random_one_is_not():
    encoder = BagOfWords(prototypes=9)
    z = encoder.embed(texts_of(200))
    shares = assignments(z, encoder.bank, encoder.temperature)

    def head(mixtures):  # a class for three prototypes each
        return mixtures.unflatten(-1, (3, 3)).sum(-1)

    settings = {"head": head, "seed": 1}
    leading = prototype_comparisons(z, encoder.bank, encoder.temperature, shares.argmax(-1), **settings)
    assert [one.verdict for one in leading] == ["faithful"] * 4
    assert leading[1].rows < leading[0].rows == 200
    random = torch.randint(9, (200,), generator=torch.Generator().manual_seed(0))
    drawn = prototype_comparisons(z, encoder.bank, encoder.temperature, random, **settings)
    assert drawn[0].verdict == drawn[2].verdict == "not shown"


def test_words_left_out_leave_the_rest_where_it_is():
    assert without("a <b> c", [Span(6, 7), Span(0, 1)]) == " <b> "
    assert without("a", []) == "a"


def test_few_rows_show_nothing_whatever_their_interval():
    found = compare(np.ones(5), np.zeros(5), **SAID)
    assert found.low > 0
    assert found.verdict == "not shown"
    assert "fewer than 20 rows" in found.sentence()
