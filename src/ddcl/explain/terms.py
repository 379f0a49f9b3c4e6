"""What the texts of a prototype have that those of the others have not: class-based tf-idf over words and pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ddcl.explain.outputs import Term
from ddcl.explain.words import joined, words

SAMPLE = 10_000
"""Texts that are counted, as evenly from the prototypes as they have any: more change no list that is read."""
CHARACTERS = 1000
"""Of each text; an encoder reads hardly further."""
TELLING = 0.2
"""A word with a lower idf (as a part of the largest, ln K) stands nearly everywhere and is left out while there are
others; so is a pair with such a word in it."""
_STUCK = 0.5
"""A pair takes the place of its word if so many of the word's texts have it."""
_CANDIDATES = 200


def characteristic_terms(
    texts: Sequence[str], prototype: np.ndarray, num_prototypes: int, terms: int, *, seed: int = 0
) -> list[tuple[Term, ...]]:
    r"""The leading terms of every prototype, largest weight first; none where it has no texts with words.

    The texts of a prototype are one document. With :math:`r_{tk}` the share of its texts that term t occurs in, and
    :math:`c_t` how those shares of a term are spread over the prototypes (:math:`\sum_k c_{tk} = 1`),

    .. math:: w_{tk} = r_{tk}\,(\ln K - H(c_t)).

    The second factor is the inverse document frequency, with the number of prototypes a term occurs in counted as
    :math:`\exp H`: 0 for what is as frequent everywhere, so that no list of stop words is needed, in any language.
    That of a pair is the geometric mean with that of its less telling word. A term all of whose words are there
    already is left out; a pair that goes with a word takes its place, with its weight.

    Args:
        texts: one for each row.
        prototype: (N,), the nearest prototype of each row.
        num_prototypes: K.
        terms: how many for each.
        seed: of the draw, where there are many texts.

    Example:
        >>> found = characteristic_terms(["a red fox", "the red fox", "the blue sea"], np.array([0, 0, 1]), 2, terms=2)
        >>> [[term.term for term in one] for one in found]
        [['red fox'], ['blue sea']]
    """
    rows = _drawn(prototype, num_prototypes, seed)
    nothing: list[tuple[Term, ...]] = [()] * num_prototypes
    counted = _counted([texts[row][:CHARACTERS] for row in rows.tolist()])
    if counted is None or num_prototypes < 2 or terms < 1:
        return nothing
    names, counts = counted
    rates = _rates(counts, prototype[rows], num_prototypes)
    idf, least = _idf(names, rates)
    weight = np.sqrt(idf * least)
    telling = least >= TELLING * np.log(num_prototypes)
    found = []
    for number in range(num_prototypes):
        mine = rates[number]
        order = np.argsort(-mine.data * weight[mine.indices], kind="stable")[:_CANDIDATES]
        places, frequency = mine.indices[order], mine.data[order]
        clear = telling[places] if telling[places].any() else weight[places] > 0
        chosen = zip(names[places[clear]], (frequency * weight[places])[clear], frequency[clear], strict=True)
        found.append(_without_repeats(list(chosen), terms))
    return found


def _drawn(prototype: np.ndarray, num_prototypes: int, seed: int) -> np.ndarray:
    """Rows to count: all if they are few, otherwise equally many of each prototype, or what it has."""
    if len(prototype) <= SAMPLE:
        return np.arange(len(prototype))
    random = np.random.default_rng(seed)
    each = max(1, SAMPLE // num_prototypes)
    shuffled = random.permutation(len(prototype))
    shuffled = shuffled[np.argsort(prototype[shuffled], kind="stable")]
    sizes = np.bincount(prototype, minlength=num_prototypes)
    place = np.arange(len(prototype)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.sort(shuffled[place < each])


def _counted(texts: Sequence[str]) -> tuple[np.ndarray, Any] | None:
    """Terms, and in which texts they stand (a sparse matrix of 0 and 1); None if there is no word."""
    try:
        from sklearn.feature_extraction.text import CountVectorizer
    except ImportError as error:
        raise ImportError("terms of prototypes need scikit-learn: pip install 'ddcl[text]'") from error
    counter = CountVectorizer(
        tokenizer=words,
        token_pattern=None,
        lowercase=False,
        ngram_range=(1, 2),
        binary=True,
        # what stands in one text alone tells nothing of a prototype, unless texts are few
        min_df=2 if len(texts) >= 100 else 1,
        dtype=np.float32,
    )
    try:
        counts = counter.fit_transform(texts)
    except ValueError:  # its only complaint here: there is no term
        return None
    return counter.get_feature_names_out(), counts


def _rates(counts: Any, prototype: np.ndarray, num_prototypes: int) -> Any:
    """(K, terms), sparse: the share of a prototype's texts that a term stands in."""
    from scipy.sparse import csr_matrix

    sizes = np.bincount(prototype, minlength=num_prototypes).clip(1)
    rows = np.arange(len(prototype))
    member = csr_matrix((1.0 / sizes[prototype], (prototype, rows)), (num_prototypes, len(prototype)))
    return (member @ counts).tocsr()


def _idf(names: np.ndarray, rates: Any) -> tuple[np.ndarray, np.ndarray]:
    """ln K less the entropy of each term's spread; and the least of that over the term and its words."""
    total = np.asarray(rates.sum(axis=0)).ravel()
    share = rates.data / total[rates.indices]
    entropy = np.bincount(rates.indices, weights=-share * np.log(share), minlength=rates.shape[1])
    idf = (np.log(rates.shape[0]) - entropy).clip(0)
    place = {name: number for number, name in enumerate(names)}
    least = idf.copy()
    for number, name in enumerate(names):
        first, _, second = name.partition(" ")
        if second:
            least[number] = min(idf[number], idf[place[first]], idf[place[second]])
    return idf, least


def _without_repeats(candidates: Sequence[tuple[str, float, float]], terms: int) -> tuple[Term, ...]:
    """The leading candidates (term, weight, rate), no word twice; a pair that goes with a word in its place."""
    chosen: list[tuple[str, float, float]] = []
    for name, weight, rate in candidates:
        parts = set(name.split(" "))
        known = [place for place, (other, _, _) in enumerate(chosen) if parts & set(other.split(" "))]
        if not known:
            chosen.append((name, weight, rate))
        elif len(known) == 1 and len(parts) == 2:
            other, before, frequency = chosen[known[0]]
            if " " not in other and rate >= _STUCK * frequency:
                chosen[known[0]] = (name, before, rate)
    return tuple(Term(joined(name), float(weight)) for name, weight, _ in chosen[:terms])
