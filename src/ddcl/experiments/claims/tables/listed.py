"""Tables 1 and 2: nothing in them is a number that could be run."""

from __future__ import annotations

from functools import partial

from ddcl.experiments.claims.ledger import Claim, Numbers, Verdict, holds, unsettled


def _measure(rows: int) -> Numbers:
    return {"rows": rows, "rows_run": 0}


def _judge(needs: str, n: Numbers) -> Verdict:
    """Unsettled until every row has been run."""
    if n["rows_run"] == n["rows"]:
        return holds(f"{n['rows_run']:.0f} of {n['rows']:.0f} rows run")
    return unsettled(f"{n['rows_run']:.0f} of {n['rows']:.0f} rows run here: needs {needs}; no number in it to re-run")


CLAIMS = tuple(
    Claim(
        name, says, where, "not settled until every row has been run", partial(_measure, rows), partial(_judge, needs)
    )
    for name, says, where, rows, needs in (
        ("table-1", "How four attention mechanisms differ in structure.", "Table 1", 8, "a reading, not a run"),
        ("table-2", "Five places for the layer, three of them validated.", "Table 2", 5, "tables 4 to 6"),
    )
)
