"""Explanations of a run: of its bank, of texts, of embeddings, with whatever the folder still holds."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import ddcl
from ddcl.cli import main
from ddcl.fitting import BadInputError, explaining
from ddcl.fitting.faithfulness import check

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

TEXTS = ["my card was declined", "the cat sat", "my card", "the cats sat the cats", "the cat", "was my card declined"]


@pytest.fixture(scope="module")
def runs(tiny_folder, tmp_path_factory):
    """A run of texts with labels, and one of embeddings without."""
    folder = tmp_path_factory.mktemp("runs")
    texts = TEXTS * 4
    lines = [f"{'bank' if 'card' in text else 'home'},{text}" for text in texts]
    (folder / "messages.csv").write_text("\n".join(["place,message", *lines]) + "\n", encoding="utf-8")
    random = np.random.default_rng(0)
    np.save(folder / "vectors.npy", 8 * np.eye(4, 6)[np.arange(80) % 4] + random.normal(size=(80, 6)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDCL_CACHE", str(folder / "cache"))
        for data, options in (
            ("messages.csv", ["--labels", "place", "--encoder", str(tiny_folder), "--prototypes", "3"]),
            ("vectors.npy", ["--prototypes", "4"]),
        ):
            out = folder / data.partition(".")[0]
            assert main(["fit", str(folder / data), "--out", str(out), "--epochs", "3", *options]) == 0
    return folder


@pytest.fixture
def of_texts(runs):
    return ddcl.load(runs / "messages")


@pytest.fixture
def of_vectors(runs):
    return ddcl.load(runs / "vectors")


def test_a_text_is_explained_by_its_mixture_class_and_nearest_rows(of_texts):
    text = "my card was declined"
    (found,) = of_texts.explain(text, shares=2)
    shares = of_texts.mixture(text)[0]
    order = shares.argsort(descending=True).tolist()
    assert found.text == text
    assert [one.prototype for one in found.shares] == order[:2]
    assert [one.share for one in found.shares] == pytest.approx(shares[order[:2]].tolist())
    assert found.rest == pytest.approx(float(shares[order[2]]), abs=1e-5)
    assert found.confidence == pytest.approx(float(shares.max()))
    assert found.entropy == pytest.approx(float(-(shares * shares.log()).nansum()), abs=1e-5)
    assert found.predicted == of_texts.predict(text)[0]
    assert found.probability == pytest.approx(float(of_texts.probabilities(text).max()))
    cosine = F.normalize(of_texts.folder.rows().at(slice(None)), dim=-1) @ of_texts.embeddings(text)[0]
    assert [one.similarity for one in found.examples] == pytest.approx(cosine.topk(3).values.tolist(), abs=1e-5)
    assert {one.text for one in found.examples} <= {text, "was my card declined", "my card"}
    assert found.examples[0].label == "bank"


def test_words_carry_what_the_share_loses_without_them(of_texts):
    text = "the cat sat"
    (found,) = of_texts.explain(text)
    best = found.shares[0].prototype
    without = of_texts.mixture([" cat sat", "the  sat", "the cat "])[:, best]
    expected = (of_texts.mixture(text)[0, best] - without).tolist()
    assert [(one.word, text[one.start : one.end]) for one in found.words] == [(w, w) for w in text.split()]
    assert [one.weight for one in found.words] == pytest.approx(expected, abs=1e-5)
    assert of_texts.explain(text, words=False)[0].words == ()


def test_only_words_that_the_encoder_reads_are_weighed(of_texts):
    text = "my card " * 5000
    (found,) = of_texts.explain(text)
    assert len(found.words) == 18  # of 20 tokens, but the first and the last
    assert found.words[-1].end == 9 * len("my card ") - 1


def test_several_inputs_none_and_embeddings_are_explained_alike(of_texts):
    assert [one.text for one in of_texts.explain(TEXTS[:2], words=False)] == TEXTS[:2]
    assert of_texts.explain([]) == []
    (found,) = of_texts.explain(of_texts.embeddings("the cat"))
    (same,) = of_texts.explain("the cat", words=False)
    assert (found.text, found.words) == (None, ())
    assert [one.prototype for one in found.shares] == [one.prototype for one in same.shares]


def test_hostile_texts_are_explained_as_texts(of_texts):
    for text in ("", "<script>", "\x1b[2J \x00", "\u202e שלום", "x" * 100_000):
        (found,) = of_texts.explain(text)
        assert found.text == text
        assert sum(one.share for one in found.shares) + found.rest == pytest.approx(1, abs=1e-5)


def test_the_vocabulary_agrees_with_what_the_run_wrote(of_texts):
    found = of_texts.vocabulary(examples=2, outliers=3)
    table = of_texts.folder.read_table("assignments.parquet").to_pydict()
    assert [card.size for card in found.cards] == of_texts.config["result"]["sizes"]
    assert found.outliers[0].entropy == pytest.approx(max(table["entropy"]))
    rows = of_texts.folder.rows().at(slice(None))
    for card in found.cards:
        own = [row for row, number in enumerate(table["prototype"]) if number == card.number]
        labels = [table["label"][row] for row in own]
        assert card.purity == max(map(labels.count, labels)) / len(labels)
        nearest = min((rows[own] - of_texts.prototypes[card.number]).square().sum(-1).tolist())
        chosen = (rows[card.examples[0].row] - of_texts.prototypes[card.number]).square().sum()
        assert float(chosen) == pytest.approx(nearest, abs=1e-6)
        assert len({one.text for one in card.examples}) == len(card.examples)
        assert card.title == ", ".join(term.term for term in card.terms[:3])
    assert {"card", "my card", "declined"} & {term.term for card in found.cards for term in card.terms}


def test_a_name_is_the_title_everywhere_at_once(runs, tmp_path):
    shutil.copytree(runs / "messages", tmp_path / "run")
    found = ddcl.load(tmp_path / "run")
    best = found.explain("the cat", words=False)[0].shares[0].prototype
    found.rename(best, "cats <b>")
    assert found.explain("the cat", words=False)[0].shares[0].title == "cats <b>"
    assert found.vocabulary().cards[best].title == found.vocabulary().cards[best].name == "cats <b>"


def test_embeddings_have_cards_without_terms_and_rows_without_texts(of_vectors):
    found = of_vectors.vocabulary(neighbours=2)
    assert [card.title for card in found.cards] == [f"prototype {number}" for number in range(4)]
    assert all(card.terms == () and card.label is None and len(card.neighbours) == 2 for card in found.cards)
    assert found.cards[0].examples[0].text is None
    (one,) = of_vectors.explain(np.load(of_vectors.settings.source)[:1])
    assert (one.examples[0].row, one.words, one.predicted) == (0, (), None)
    with pytest.raises(BadInputError, match="was fitted to embeddings"):
        of_vectors.explain("a text")


def test_a_row_is_no_example_of_itself(of_vectors):
    found = of_vectors.explainer.explain_rows([5, 6], examples=2, shares=3, words=True)
    rows = of_vectors.folder.rows().at(slice(None))
    near = F.cosine_similarity(rows[5], rows, dim=-1).argsort(descending=True)
    assert [one.row for one in found[0].examples] == near[1:3].tolist()
    with pytest.raises(BadInputError, match="got 80, expected numbers from 0 to 79"):
        of_vectors.explainer.explain_rows([80], examples=2, shares=3, words=True)


def test_a_run_that_kept_neither_texts_nor_embeddings_still_explains(runs, tmp_path):
    shutil.copytree(runs / "messages", tmp_path / "run")
    for name in ("inputs.parquet", "embeddings.npy"):
        (tmp_path / "run" / name).unlink()
    bare = ddcl.load(tmp_path / "run")
    card = max(bare.vocabulary().cards, key=lambda card: card.size)
    assert (card.terms, card.title) == ((), f"prototype {card.number}")
    shown = [one.confidence for one in card.examples]
    assert shown == sorted(shown, reverse=True)
    assert card.examples[0].text is None
    assert card.purity is not None
    (found,) = bare.explain("my card")
    assert found.examples == ()
    assert len(found.words) == 2
    with pytest.raises(BadInputError, match="neither its rows nor its texts"):
        bare.explainer.explain_rows([0], examples=2, shares=3, words=True)
    with pytest.raises(BadInputError, match="neither its rows nor its texts"):
        check(bare)


def test_rows_too_many_to_keep_are_searched_where_they_lie(of_vectors, monkeypatch):
    z = of_vectors.folder.rows().at(slice(0, 3))
    kept = of_vectors.explain(z)
    monkeypatch.setattr(explaining, "IN_MEMORY", 0)
    assert [[e.row for e in one.examples] for one in ddcl.load(of_vectors.folder.path).explain(z)] == [
        [e.row for e in one.examples] for one in kept
    ]


def test_the_deletion_test_of_a_run_compares_prototypes_and_words(of_texts, of_vectors):
    done = []
    found = check(of_texts, rows=10, seed=3, report=lambda number, _: done.append(number))
    assert found == check(ddcl.load(of_texts.folder.path), rows=10, seed=3)
    assert found.rows == 10
    assert done == list(range(1, 11))
    assert [one.removed for one in found.comparisons] == ["the leading prototype"] * 4 + ["the named words"] * 2
    z = of_vectors.folder.rows().at(slice(None))
    found = check(of_vectors, rows=1000)
    assert (found.rows, found.verdict, len(found.comparisons)) == (80, "faithful", 2)
    shares, bank = of_vectors.mixture(z).double(), of_vectors.prototypes.double()
    left = shares.scatter(-1, shares.argmax(-1, keepdim=True), 0)
    moved = left / left.sum(-1, keepdim=True) @ bank - shares @ bank
    mean = float(moved.norm(dim=-1).mean()) / of_vectors.temperature**0.5
    assert found.comparisons[0].named == pytest.approx(mean, rel=1e-3)
    with pytest.raises(BadInputError, match="at least 2"):
        check(of_vectors, rows=1)
    assert torch.is_grad_enabled()
