"""The deletion test of a run: do its explanations name what its answers rest on?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from torch import Tensor

from ddcl.data.progress import Report
from ddcl.explain.deletion import Answers, DeletionTest, deletion_test, prototype_comparisons, word_comparisons
from ddcl.fitting.errors import BadInputError
from ddcl.fitting.fitted import Fitted
from ddcl.fitting.mixtures import class_logits
from ddcl.nn import PrototypeReadout

ROWS = 200


def check(fitted: Fitted, *, rows: int = ROWS, seed: int = 0, report: Report | None = None) -> DeletionTest:
    """Take away what the explanations of some rows name, against what is drawn at random.

    Prototypes always; words where the run has texts.

    Args:
        fitted: the run.
        rows: how many, drawn evenly from the data that was fitted.
        seed: of all draws.
        report: called with how many texts are done and how many there are.
    """
    if rows < 2:
        raise BadInputError(f"rows: got {rows}, expected at least 2 to compare")
    explainer = fitted.explainer
    number = len(explainer.read)
    drawn = np.sort(np.random.default_rng(seed).permutation(number)[:rows])
    texts = None if explainer.read.texts is None else [explainer.read.texts[row] for row in drawn.tolist()]
    if explainer.rows is not None:
        z = explainer.rows.at(drawn)
    elif texts is not None:
        z = fitted.embeddings(texts)
    else:
        raise BadInputError(f"{fitted.folder.path} has neither its rows nor its texts any more to draw from")
    found = prototype_comparisons(
        z.cpu(),  # in double precision, which not every device has
        fitted.prototypes.cpu(),
        fitted.temperature,
        fitted.mixture(z).argmax(-1).cpu(),
        head=_head(fitted),
        seed=seed,
    )
    if texts is not None:
        found += word_comparisons(texts, explainer.words, _answering(fitted), seed=seed, report=report)
    return deletion_test(found, len(drawn), seed)


def _head(fitted: Fitted) -> Callable[[Tensor], Tensor] | None:
    """Mixtures to probabilities of classes."""
    model = fitted.model
    if not isinstance(model, PrototypeReadout):
        return None
    return lambda shares: class_logits(model, shares.to(fitted.device)).softmax(-1).cpu()


def _answering(fitted: Fitted) -> Callable[[Sequence[str]], Answers]:
    head = _head(fitted)

    def answers(texts: Sequence[str]) -> Answers:
        shares = fitted.mixture(list(texts)).cpu()
        return Answers(shares, None if head is None else head(shares))

    return answers
