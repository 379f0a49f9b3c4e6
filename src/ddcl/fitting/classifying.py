"""How well a head does on rows it has never seen, beside the usual baseline."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from ddcl.fitting.batches import Rows
from ddcl.fitting.classes import Classes

BASELINE_ROWS = 20_000
"""The most rows that logistic regression learns from: beyond, it would take longer than everything else."""
BASELINE_STRENGTH = 10.0
"""Inverse of its penalty, scikit-learn's C."""


def accuracies(rows: Rows, classes: Classes, predicted: Tensor, seed: int) -> dict[str, Any] | None:
    """Shares of the held-out rows that are classified rightly; None if none could be held out.

    The keys: ``held_out_rows``, ``head``, ``most_frequent_class``, ``logistic_regression`` (None without scikit-learn)
    and ``logistic_regression_rows``, what it learned from.
    """
    held = classes.held_out
    if not len(held):
        return None
    numbers = classes.numbers.numpy()
    right = numbers[held]
    learned = classes.learned
    frequent = np.bincount(numbers[learned]).argmax()
    drawn = learned
    if len(learned) > BASELINE_ROWS:
        drawn = np.random.default_rng(seed).choice(learned, BASELINE_ROWS, replace=False)
        one_of_each = learned[np.unique(numbers[learned], return_index=True)[1]]
        drawn = np.union1d(drawn, one_of_each)
    return {
        "held_out_rows": len(held),
        "head": float((predicted.numpy()[held] == right).mean()),
        "most_frequent_class": float((right == frequent).mean()),
        "logistic_regression": _logistic_regression(rows, drawn, numbers[drawn], held, right),
        "logistic_regression_rows": len(drawn),
    }


def logistic_regression(z: np.ndarray, classes: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """scikit-learn's, from rows (n, m) to a function that classifies others.

    Rows are centred and brought to a mean squared length of 1, so that the penalty means the same in any units and
    anywhere; its strength did best among 1, 10 and 100 (docs/lab/0013-head.md).
    """
    from sklearn.linear_model import LogisticRegression

    mean = z.mean(0, dtype=np.float64)
    scale = 1 / max(float(np.sqrt(np.square(z - mean).sum(-1).mean())), 1e-30)

    def prepared(rows: np.ndarray) -> np.ndarray:
        return np.asarray(scale * (rows - mean), dtype=np.float32)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of iterations that did not suffice: the figure stands for itself
        model = LogisticRegression(C=BASELINE_STRENGTH, max_iter=1000).fit(prepared(z), classes)
    return lambda others: np.asarray(model.predict(prepared(others)))


def _logistic_regression(
    rows: Rows, learned: np.ndarray, classes: np.ndarray, held: np.ndarray, right: np.ndarray
) -> float | None:
    try:
        classify = logistic_regression(rows.at(learned).numpy(), classes)
    except ImportError:
        return None
    return float((classify(rows.at(held).numpy()) == right).mean())
