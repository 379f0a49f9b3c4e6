"""How well a head does on rows it has never seen, beside the usual baseline."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from torch import Tensor

from ddcl.fitting.batches import Rows
from ddcl.fitting.classes import Classes

BASELINE_ROWS = 20_000
"""The most rows that logistic regression learns from: beyond, it would take longer than everything else."""


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
        drawn = np.sort(np.random.default_rng(seed).choice(learned, BASELINE_ROWS, replace=False))
    return {
        "held_out_rows": len(held),
        "head": float((predicted.numpy()[held] == right).mean()),
        "most_frequent_class": float((right == frequent).mean()),
        "logistic_regression": _logistic_regression(rows, drawn, numbers[drawn], held, right),
        "logistic_regression_rows": len(drawn),
    }


def _logistic_regression(
    rows: Rows, learned: np.ndarray, classes: np.ndarray, held: np.ndarray, right: np.ndarray
) -> float | None:
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of iterations that did not suffice: the figure stands for itself
        model = LogisticRegression(max_iter=1000).fit(rows.at(learned).numpy(), classes)
    return float(model.score(rows.at(held).numpy(), right))
