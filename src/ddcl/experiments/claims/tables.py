"""The paper's tables and figures: long runs that this ledger lists and leaves to the reproductions.

Nothing is measured here. A row counts as settled only when a reproduction has run it, and none is run by this command,
so every verdict below comes out as "not settled here".
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from ddcl.experiments.claims.ledger import Claim, Numbers, Verdict, holds, unsettled


class _Exhibit(NamedTuple):
    """A table or figure, how many rows (or panels) of it state something, and what it would take to run them."""

    name: str
    says: str
    where: str
    rows: int
    needs: str
    command: str


EXHIBITS = (
    _Exhibit("table-1", "How four attention mechanisms differ in structure.", "Table 1", 8, "a reading, not a run", ""),
    _Exhibit("table-2", "Five places for the layer, three of them validated.", "Table 2", 5, "tables 4 to 6", ""),
    _Exhibit(
        "table-3",
        "Space debris: the layer's ACC, NMI and ARI exceed those of k-means.",
        "Table 3; Fig. 1",
        3,
        "1,600 synthetic objects, 500 epochs",
        "debris",
    ),
    _Exhibit(
        "table-4",
        "Text readout: ACC, NMI and ARI on SST-2, IMDB and 20 Newsgroups.",
        "Table 4; Fig. 2, 3",
        7,
        "frozen BERT and three data sets",
        "readout",
    ),
    _Exhibit(
        "table-5",
        "CIFAR-10 codes: utilisation at epoch 1 and epochs to 100 %, soft and straight-through.",
        "Table 5; Fig. 4",
        4,
        "CIFAR-10 and a convolutional autoencoder, 50 epochs",
        "quantisation",
    ),
    _Exhibit(
        "table-6",
        "Two-level compression of 20 Newsgroups against k-means.",
        "Table 6; Fig. 5",
        4,
        "frozen BERT on whole documents",
        "hierarchy",
    ),
    _Exhibit(
        "figure-6",
        "Ablation of the learning rate ratio on MNIST digits, 300 epochs.",
        "Fig. 6; Sec. 7.6",
        5,
        "several seeds (time-scale-rule above runs one)",
        "ablation",
    ),
)


def _measure(exhibit: _Exhibit) -> Numbers:
    return {"rows": exhibit.rows, "rows_run": 0}


def _judge(exhibit: _Exhibit, n: Numbers) -> Verdict:
    """Unsettled until every row has been run."""
    if n["rows_run"] == n["rows"]:
        return holds(f"{n['rows_run']:.0f} of {n['rows']:.0f} rows run")
    later = f"to be re-run by `ddcl reproduce {exhibit.command}`" if exhibit.command else "no number in it to re-run"
    return unsettled(f"{n['rows_run']:.0f} of {n['rows']:.0f} rows run here: needs {exhibit.needs}; {later}")


CLAIMS = tuple(
    Claim(
        exhibit.name,
        exhibit.says,
        exhibit.where,
        "not settled until every row has been run",
        partial(_measure, exhibit),
        partial(_judge, exhibit),
    )
    for exhibit in EXHIBITS
)
