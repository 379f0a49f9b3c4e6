"""Are explanations true? Take away what they name, and see whether the answer changes more than by chance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddcl.explain.occlusion import without
from ddcl.explain.outputs import Word, _Plain
from ddcl.explain.words import Span
from ddcl.shapes import Float, Int

NAMED_WORDS = 3
"""Words that an explanation names at most: those with the largest positive weights."""
NON_NEGLIGIBLE = 0.01
"""The share from which on a prototype has a part in a mixture."""
LEVEL, RESAMPLES = 0.95, 4000
LEAST_ROWS = 20
"""From fewer nothing is concluded: an interval by resampling is too narrow there."""
FAITHFUL, NOT_SHOWN = "faithful", "not shown"


@dataclass(frozen=True)
class Comparison(_Plain):
    """One thing taken away against another, over the same rows."""

    removed: str
    """What an explanation names."""
    instead: str
    """What is taken away in its place."""
    effect: str
    """What is looked at, and in which unit."""
    rows: int
    named: float
    """The mean effect of taking away what is named."""
    random: float
    """The same of the other."""
    difference: float
    low: float
    """Ends of the 95 % interval of the mean difference, by bootstrap over the rows."""
    high: float
    wins: float
    """The share of rows in which taking away what is named does more; a tie counts half."""
    verdict: str
    """"faithful" if the whole interval is above 0, otherwise "not shown"."""

    def sentence(self) -> str:
        """The verdict with its figures."""
        if not self.rows:
            return f"{self.verdict}: there is no row to compare taking away {self.removed} with {self.instead}"
        why = "" if self.low > 0 else ", which is below 0" if self.high < 0 else ", which holds 0"
        if self.rows < LEAST_ROWS:
            why += f", but fewer than {LEAST_ROWS} rows say nothing"
        return (
            f"{self.verdict}: without {self.removed}, {self.effect} by {self.named:.3f}; without {self.instead}, by "
            f"{self.random:.3f}; difference {self.difference:.3f}, 95 % interval {self.low:.3f} to {self.high:.3f}{why}"
            f", more in {100 * self.wins:.0f} % of {self.rows} rows"
        )


@dataclass(frozen=True)
class DeletionTest(_Plain):
    """All comparisons of a run."""

    comparisons: tuple[Comparison, ...]
    rows: int
    """Rows drawn; a comparison leaves out those that it says nothing about."""
    seed: int
    verdict: str
    """"faithful" if every comparison says so, otherwise "not shown"."""


class Answers(NamedTuple):
    """What a run says of texts or mixtures."""

    shares: Float[Tensor, "n K"]
    probabilities: Float[Tensor, "n C"] | None
    """Of the head's classes, if there is a head."""


def deletion_test(comparisons: Sequence[Comparison], rows: int, seed: int) -> DeletionTest:
    """Comparisons with the verdict over all of them."""
    shown = bool(comparisons) and all(one.verdict == FAITHFUL for one in comparisons)
    return DeletionTest(tuple(comparisons), rows, seed, FAITHFUL if shown else NOT_SHOWN)


def compare(
    named: np.ndarray, random: np.ndarray, *, removed: str, instead: str, effect: str, seed: int = 0
) -> Comparison:
    """Paired effects, (n,) each, with the interval of their mean difference.

    Example:
        >>> more = np.linspace(0.2, 0.4, 50)
        >>> compare(more, more - 0.1, removed="a", instead="b", effect="c falls").verdict
        'faithful'
        >>> compare(more, more[::-1], removed="a", instead="b", effect="c falls").verdict
        'not shown'
    """
    said = {"removed": removed, "instead": instead, "effect": effect}
    difference = np.asarray(named, dtype=np.float64) - np.asarray(random, dtype=np.float64)
    number = len(difference)
    if not number:
        return Comparison(**said, rows=0, named=0, random=0, difference=0, low=0, high=0, wins=0, verdict=NOT_SHOWN)
    drawn = np.random.default_rng(seed).integers(number, size=(RESAMPLES, number))
    low, high = np.quantile(difference[drawn].mean(1), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Comparison(
        **said,
        rows=number,
        named=float(np.mean(named)),
        random=float(np.mean(random)),
        difference=float(difference.mean()),
        low=float(low),
        high=float(high),
        wins=float((difference > 0).mean() + 0.5 * (difference == 0).mean()),
        verdict=FAITHFUL if number >= LEAST_ROWS and low > 0 else NOT_SHOWN,
    )


def carrying(words: Sequence[Word], most: int = NAMED_WORDS) -> list[Word]:
    """The words that an explanation names: those of largest positive weight, the largest first."""
    return sorted((word for word in words if word.weight > 0), key=lambda word: -word.weight)[:most]


@torch.no_grad()
def prototype_comparisons(
    z: Float[Tensor, "n m"],
    prototypes: Float[Tensor, "K m"],
    temperature: float,
    named: Int[Tensor, " n"],
    *,
    head: Callable[[Float[Tensor, "n K"]], Float[Tensor, "n C"]] | None = None,
    seed: int = 0,
) -> list[Comparison]:
    """Take the named prototype out of the bank, against a random other one, and a random one that has a part.

    What is left of the mixture is brought to sum 1 again, as a bank without that prototype would have it.

    Args:
        z: rows.
        prototypes: the bank, of at least two.
        temperature: T.
        named: the prototype that the explanation of each row names first.
        head: mixtures to the probabilities of classes, if there is a head.
        seed: of the draws.
    """
    random = np.random.default_rng(seed)
    logits = -torch.cdist(z.double(), prototypes.double()).square() / temperature
    shares = logits.softmax(-1)
    other = torch.ones_like(shares).scatter(-1, named[:, None], 0.0)
    drawn_any = _drawn(other, random)
    taking_part = other * (shares >= NON_NEGLIGIBLE)
    some = taking_part.any(-1)
    drawn_part = torch.where(some, _drawn(torch.where(some[:, None], taking_part, other), random), drawn_any)
    movement = "the soft centroid moves (in units of the root of T)"
    effects = {movement: _movement(logits, prototypes.double() / temperature**0.5)}
    if head is not None:
        effects["the probability of the predicted class falls"] = _fall(logits, head)
    found = []
    for effect, of in effects.items():
        done = of(named)
        for instead, drawn, counted in (
            ("a random other one", drawn_any, torch.ones_like(some)),
            (f"a random other one with a share of {100 * NON_NEGLIGIBLE:.0f} % or more", drawn_part, some),
        ):
            pair = (one[counted].cpu().numpy() for one in (done, of(drawn)))
            found.append(compare(*pair, removed="the leading prototype", instead=instead, effect=effect, seed=seed))
    return found


def word_comparisons(
    texts: Sequence[str],
    words_of: Callable[[str, int], Sequence[Word]],
    answers: Callable[[Sequence[str]], Answers],
    *,
    seed: int = 0,
    report: Callable[[int, int], None] | None = None,
) -> list[Comparison]:
    """Take the named words out of texts, against equally many words drawn from the same text.

    Texts whose explanation names no word, or all of them, say nothing and are left out.

    Args:
        texts: to explain.
        words_of: the words of a text with their weights for a prototype.
        answers: what the run says of texts.
        seed: of the draws.
        report: called with how many texts are done and how many there are.
    """
    random = np.random.default_rng(seed)
    falls: dict[str, list[tuple[float, float]]] = {}
    for number, text in enumerate(texts):
        whole = answers([text])
        best = int(whole.shares[0].argmax())
        words = words_of(text, best)
        named = carrying(words)
        if 0 < len(named) < len(words):
            drawn = [words[place] for place in random.choice(len(words), len(named), replace=False)]
            both = answers([without(text, _spans(named)), without(text, _spans(drawn))])
            fall = whole.shares[0, best] - both.shares[:, best]
            falls.setdefault("the share of the explained prototype falls", []).append(_pair(fall))
            if whole.probabilities is not None and both.probabilities is not None:
                predicted = int(whole.probabilities[0].argmax())
                fall = whole.probabilities[0, predicted] - both.probabilities[:, predicted]
                falls.setdefault("the probability of the predicted class falls", []).append(_pair(fall))
        if report is not None:
            report(number + 1, len(texts))
    found = []
    for effect, pairs in (falls or {"the share of the explained prototype falls": []}).items():
        named_fall, drawn_fall = np.array(pairs).reshape(-1, 2).T
        said = {"removed": "the named words", "instead": "equally many random words", "effect": effect}
        found.append(compare(named_fall, drawn_fall, **said, seed=seed))
    return found


def _spans(words: Sequence[Word]) -> list[Span]:
    return [Span(word.start, word.end) for word in words]


def _pair(fall: Tensor) -> tuple[float, float]:
    named, drawn = fall.tolist()
    return named, drawn


def _drawn(weights: Tensor, random: np.random.Generator) -> Tensor:
    """One column of each row, evenly from those of weight 1."""
    chances = torch.from_numpy(random.random(weights.shape)).to(weights.device)
    return (chances * weights).argmax(-1)


def _left(logits: Tensor, removed: Tensor) -> Tensor:
    """The mixtures of a bank without one prototype."""
    return logits.scatter(-1, removed[:, None], float("-inf")).softmax(-1)


def _movement(logits: Tensor, prototypes: Tensor) -> Callable[[Tensor], Tensor]:
    before = logits.softmax(-1) @ prototypes
    return lambda removed: (_left(logits, removed) @ prototypes - before).norm(dim=-1)


def _fall(logits: Tensor, head: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    before = head(logits.softmax(-1).float())
    predicted = before.argmax(-1, keepdim=True)
    probability = before.gather(-1, predicted)
    return lambda removed: (probability - head(_left(logits, removed).float()).gather(-1, predicted))[:, 0]
