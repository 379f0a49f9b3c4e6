"""Whatever stands in a text is shown as text."""

from __future__ import annotations

import json
import unicodedata

import pytest

from ddcl.explain import Example, Explanation, Neighbour, PrototypeCard, Share, Term, Vocabulary, Word
from ddcl.explain.deletion import Comparison, DeletionTest
from ddcl.explain.markdown import check_markdown, explanation_markdown, vocabulary_markdown
from ddcl.explain.plain import check_text, explanation_text, vocabulary_text
from ddcl.explain.showing import in_markdown, neutral, one_line

HOSTILE = [
    "<script>alert(1)</script> & <b>",
    "\x1b[2J\x1b]0;title\x07 cleared \x9b31m",
    "right \u202eto\u202c left שלום \u2066x\u2069",
    "lines\r\nof | a * table_ # [link](x)\x00\x85\u2028",
    "half \ud800 a pair",
    '"quotes" \\ `code` $x$',
    "x" * 100_000,
    "",
]


def explained(text):
    share = Share(3, text, 0.624)
    near = Example(7, None, text, text, 3, 0.9, 0.1, similarity=0.85)
    return Explanation(text, (share,), 0.376, 0.624, 0.7, text, 0.5, (near,), (Word(text[:5], 0, len(text[:5]), 0.4),))


def vocabulary_of(text):
    example = Example(7, text, text, text, 0, 0.9, 0.1)
    card = PrototypeCard(
        0, text, text, 1, 1.0, 0.9, (Term(text, 1.0),), (example,), text, 1.0, (Neighbour(0, text, 2.0),)
    )
    return Vocabulary((card,), (example,), 1)


def harmless(shown):
    bad = [one for one in shown if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp") and one != "\n"]
    return not bad and len(shown) < 10_000


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_control_sign_of_a_text_reaches_a_terminal_or_a_page(text):
    found = vocabulary_of(text)
    for shown in (
        vocabulary_text(found, found.cards),
        vocabulary_markdown(found, found.cards),
        explanation_text(explained(text), mark=False),
        explanation_markdown(explained(text)),
    ):
        assert harmless(shown)
    marked = explanation_text(explained(text), mark=True)
    assert harmless(marked.replace("\x1b[1;4m", "").replace("\x1b[0m", ""))
    assert json.loads(json.dumps(explained(text).as_json()))["text"] == text


@pytest.mark.parametrize("text", HOSTILE[:-1], ids=range(len(HOSTILE) - 1))
def test_in_markdown_nothing_of_a_text_is_markup(text):
    shown = in_markdown(one_line(text))
    for sign in "`*_[]<>|~&#$":
        assert shown.count(sign) == shown.count(f"\\{sign}")
    assert len(explanation_markdown(explained(text)).splitlines()) == len(
        explanation_markdown(explained("calm")).splitlines()
    )


def test_letters_of_every_script_and_joined_emoji_stay_as_they_are():
    text = "café שלום हिन्दी 银行 👩\u200d🚀"
    assert neutral(text) == text
    assert one_line("a\tb\n  c") == "a b c"
    assert one_line("abcdef", width=4) == "abc…"


def test_a_mixture_reads_as_a_sentence():
    found = Explanation(
        text="my card was declined",
        shares=(Share(3, "card payments declined", 0.62), Share(5, "prototype 5", 0.28)),
        rest=0.1,
        confidence=0.62,
        entropy=0.9,
        predicted="cards",
        probability=0.9,
        examples=(Example(4, None, "declined card", "cards", 3, 0.8, 0.5, similarity=0.912),),
        words=(Word("my", 0, 2, -0.1), Word("card", 3, 7, 0.25), Word("declined", 12, 20, 0.5)),
    )
    assert explanation_text(found, mark=False).splitlines() == [
        "“my card was declined”",
        "  62 % prototype 3 (card payments declined), 28 % prototype 5, 10 % others",
        "  class: cards (90 %)",
        "  carried by: declined +0.50, card +0.25",
        "  nearest: 0.91 “declined card” (cards)",
    ]
    assert explanation_text(found, mark=True).splitlines()[0] == (
        "“my \x1b[1;4mcard\x1b[0m was \x1b[1;4mdeclined\x1b[0m”"
    )


def test_the_verdict_stands_at_the_end_with_how_many_comparisons_share_it():
    one = Comparison("a", "b", "c falls", 9, 0.5, 0.1, 0.4, 0.3, 0.5, 1.0, "faithful")
    other = Comparison("a", "d", "c falls", 9, 0.5, 0.5, 0.0, -0.1, 0.1, 0.5, "not shown")
    assert check_text(DeletionTest((one,), 9, 0, "faithful")).splitlines()[-1] == (
        "verdict: faithful (in all 1 comparisons, 9 rows, seed 0)"
    )
    found = DeletionTest((one, other), 9, 0, "not shown")
    assert "not shown (in 1 of 2 comparisons" in check_text(found)
    assert check_markdown(found).count("| not shown |") == 1
