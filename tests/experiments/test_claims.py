"""The ledger of claims: every experiment runs, every verdict follows from its numbers, page and record agree."""

from __future__ import annotations

import json
import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from ddcl.cli import main
from ddcl.experiments.claims import LEDGER, Claim, Outcome, dynamics
from ddcl.experiments.claims.ledger import Ledger, Verdict, fails, holds
from ddcl.experiments.claims.tables import evidence

DOCS = Path(__file__).parents[2] / "docs"
COMMITTED = DOCS.parent / "results" / "reproduce"
SPEC = spec_from_file_location("fill_claims", DOCS / "fill_claims.py")
filling = module_from_spec(SPEC)
SPEC.loader.exec_module(filling)
RECORD = json.loads((DOCS / "claims.json").read_text())
RECORDED = {entry["name"]: entry for entry in RECORD["claims"]}
SETTLED = {Outcome.HOLDS, Outcome.CONDITIONAL, Outcome.FAILS}
QUICK = {"decomposition", "forces", "hierarchy", "tables"}  # families that take a moment

# one number of each experiment, put where the experiment did not find it: the verdict must follow
TAMPERED = {
    "identity-with-r": {"largest_relative_error": 1e-3},
    "identity-with-min-d": {"relative_error": 0.0},
    "r-at-least-min-d": {"share_violating": 0.0},
    "variance-not-negative": {"smallest_v": -0.1},
    "assertion-checks-the-layer": {"caught": 5},
    "gradient-of-v": {"relative_error": 0.1},
    "v-separates": {"drawn_together": 0},
    "full-gradient-repels": {"gradient_of_far_prototype_full": 1e-3},
    "encoder-gradient": {"factor": 1.0},
    "remark-3-gradient": {"error_stop_0.05": 0.0},
    "every-prototype-gets-gradient": {"smallest_float32": 1e-3},
    "collapse-is-unstable": {"growth_full_1.02": 10.0, "growth_stop_1.02": 10.0},
    "above-tc-every-bank-merges": {"separation_outliers_full": 0.0, "separation_outliers_stop": 0.0},
    "no-dead-codes": {"dead_random_0.05": 0, "dead_kmeans_0.5": 0},
    "full-usage-from-epoch-1": {"paper_merged_64": 0.0156, "paper_perfect_128": 1.0},
    "paper-temperatures-spread": {"distinct_unit": 20, "distinct_unit_tight": 20},
    "barrier-keeps-apart": {"rises_large": 0},
    "w-falls-at-fixed-t": {"rises_full_1.0": 7},
    "w-falls-under-annealing": {"rises_falling": 1},
    "lambda-condition": {"rises_0.001": 30},
    "w-is-coercive": {"one_away_10000": 1e8},
    "time-scale-rule": {"separation_0.1_later": 0.3},
    "separation-grows-monotonically": {"falls_annealed": 0},
    "proposition-3-sufficient": {"below_stable": 0},
    "ratio-decides-stability": {"points_where_ratio_matters": 3, "smallest_uncoupled_bound": 1.0},
    "hierarchy-variance": {"smallest_v_level_2": -1.0},
    "hierarchy-decoupled": {"v_joined_full": 0.0},
    "soft-beats-hard": {"soft_0.0005": 1.0},
    "dead-code-risk": {f"dead_{start}_{K}": 1 - 1 / K for start in ("random", "kmeans") for K in (4, 16, 64, 256)},
    "straight-through-starves": {"largest_hard": 0.1},
    "table-1": {"rows_run": 8},
    "table-2": {"rows_run": 5},
}


@pytest.fixture(autouse=True)
def committed_records(monkeypatch):
    """Records that someone has made in the folder the tests run in must not change what they find."""
    monkeypatch.setattr(evidence, "folders", lambda: [COMMITTED])


def by_speed() -> list[object]:
    return [
        pytest.param(claim, marks=[] if LEDGER.family_of[claim.name] in QUICK else pytest.mark.slow, id=claim.name)
        for claim in LEDGER
    ]


def is_settled(claim: Claim) -> bool:
    """Rows of tables are, once the record they are read from is committed; Tables 1 and 2 have nothing to run."""
    if LEDGER.family_of[claim.name] != "tables":
        return True
    return claim.source is not None and RECORDED[claim.name]["verdict"] != Outcome.UNSETTLED.value


def check_verdict(claim: Claim, verdict: Verdict) -> None:
    assert verdict.outcome in (SETTLED if is_settled(claim) else {Outcome.UNSETTLED})
    assert verdict.number
    assert bool(verdict.condition) == (verdict.outcome is Outcome.CONDITIONAL)
    assert verdict.counterexample or verdict.outcome is not Outcome.FAILS


@pytest.mark.parametrize("claim", by_speed())
def test_every_claim_runs_gets_a_verdict_and_it_is_the_recorded_one(claim):
    finding = claim.settle()
    check_verdict(claim, finding.verdict)
    assert finding.verdict.outcome.value == RECORDED[claim.name]["verdict"], "run `make claims`"
    assert set(finding.numbers) == set(RECORDED[claim.name]["numbers"])
    assert finding.source == RECORDED[claim.name]["source"]


@pytest.mark.parametrize("claim", list(LEDGER), ids=lambda claim: claim.name)
def test_the_recorded_verdict_follows_from_the_recorded_numbers(claim):
    entry = RECORDED[claim.name]
    if not entry["numbers"]:
        assert entry["verdict"] == Outcome.UNSETTLED.value
        assert "`ddcl reproduce " in entry["number"]
        return
    verdict = claim.judge(entry["numbers"])
    check_verdict(claim, verdict)
    assert (verdict.outcome.value, verdict.condition) == (entry["verdict"], entry["condition"])
    assert (claim.says, claim.where, claim.rule) == (entry["says"], entry["where"], entry["rule"])


@pytest.mark.parametrize("claim", [claim for claim in LEDGER if claim.source is None], ids=lambda claim: claim.name)
def test_a_tampered_number_changes_the_verdict(claim):
    entry = RECORDED[claim.name]
    changed = TAMPERED[claim.name]
    assert set(changed) <= set(entry["numbers"])
    assert claim.judge({**entry["numbers"], **changed}).outcome.value != entry["verdict"]


def test_the_record_names_what_it_was_made_with_and_holds_every_claim():
    assert RECORD["command"] == "ddcl claims --json"
    assert RECORD["device"]
    assert all(RECORD[name] for name in ("command", "python", "torch", "numpy", "ddcl", "commit"))
    assert [entry["name"] for entry in RECORD["claims"]] == [claim.name for claim in LEDGER]


def test_the_page_tells_of_every_claim_with_the_verdict_and_the_number_of_the_record():
    page = (DOCS / "claims.md").read_text()
    parts = re.split(r"^### ", page, flags=re.MULTILINE)[1:]
    told = {}
    for part in parts:
        heading, body = part.split("\n", 1)
        if not heading.startswith("`"):  # a table of the paper, filled from the record
            continue
        name, verdict = re.fullmatch(r"`([\w-]+)`: (.+)", heading).groups()
        told[name] = (verdict, " ".join(re.sub(r"^> ?", "", body, flags=re.MULTILINE).split()))
    assert list(told) == [name for name, entry in RECORDED.items() if entry["family"] != "tables"]
    for name, (verdict, body) in told.items():
        entry = RECORDED[name]
        assert verdict == f"{entry['verdict']} {entry['condition']}".strip(), name
        assert entry["number"] in body, f"{name}: copy the number from docs/claims.json"


def test_the_page_is_filled_from_the_record():
    page = (DOCS / "claims.md").read_text()
    assert filling.filled(page, RECORD["claims"]) == page, "run `python docs/fill_claims.py`"
    rows = [name for name, entry in RECORDED.items() if entry["family"] == "tables"]
    assert all(f"`{name}`" in page for name in rows)


def test_filling_changes_verdict_number_and_row_and_leaves_the_explanation():
    made = {"name": "one", "says": "It is so.", "where": "Sec. 1", "verdict": "fails", "condition": "", "number": "7"}
    row = made | {"name": "table-9-row", "counterexample": "8 | 9", "source": "a.jsonl, commit b, c"}
    page = "### `one`: holds\n\nIt was so. (Sec. 0)\n\n> 6\n\nWhy.\n\n<!-- rows: table-9 -->\nold\n<!-- end -->\n"
    found = filling.filled(page, [made, row])
    assert found.startswith("### `one`: fails\n\nIt is so. (Sec. 1)\n\n> 7\n\nWhy.\n\n<!-- rows: table-9 -->\n")
    assert "| `table-9-row` | It is so. | fails | 7; 8 \\| 9 |" in found
    assert found.endswith("\nJudged from a.jsonl, commit b, c.\n\n<!-- end -->\n")
    assert "old" not in found


def test_table_and_json_agree(capsys):
    names = ["decomposition", "hierarchy-decoupled", "table-3-ddcl"]
    assert main(["claims", "--json", "--only", *names]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["command"] == "ddcl claims --only decomposition hierarchy-decoupled table-3-ddcl --json"
    assert main(["claims", "--only", *names]) == 0
    table = capsys.readouterr().out
    assert "\033" not in table  # not a terminal
    assert max(map(len, table.splitlines())) <= 100
    assert [entry["name"] for entry in record["claims"]] == [claim.name for claim in LEDGER.select(names)]
    for entry in record["claims"]:
        (first,) = [line for line in table.splitlines() if line.startswith(f"{entry['name']} ")]
        verdict = first[48:56].strip()  # the third column; a long verdict goes on below
        assert verdict
        assert entry["verdict"].startswith(verdict)
    assert table.count(" e.g. ") == sum(bool(entry["counterexample"]) for entry in record["claims"])
    assert table.count("  if ") == sum(bool(entry["condition"]) for entry in record["claims"])


def test_a_name_that_does_not_exist_lists_the_known_ones(capsys):
    assert main(["claims", "--only", "no-such-claim"]) == 2
    complaint = capsys.readouterr().err
    assert "no-such-claim" in complaint
    assert all(claim.name in complaint for claim in LEDGER)


def test_listing_runs_nothing_and_states_every_rule(capsys, monkeypatch):
    monkeypatch.setattr(Claim, "settle", lambda _: pytest.fail("ran"))
    assert main(["claims", "--list"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for claim in LEDGER:
        assert claim.name in shown
        assert claim.rule in shown


def test_without_scikit_learn_the_digits_stay_unsettled_and_say_why(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    dynamics._digits.cache_clear()
    dynamics._train.cache_clear()
    (claim,) = LEDGER.select(["time-scale-rule"])
    finding = claim.settle()
    dynamics._digits.cache_clear()
    assert finding.verdict.outcome is Outcome.UNSETTLED
    assert "pip install scikit-learn" in finding.verdict.number


def test_a_broken_experiment_is_named_and_the_others_still_run(capsys, monkeypatch):
    def broken() -> dict[str, float]:
        raise RuntimeError("no luck")

    whole = Claim("whole", "It works.", "Sec. 0", "always", lambda: {"x": 1.0}, lambda n: holds(f"x = {n['x']}"))
    wrong = Claim("wrong", "It works.", "Sec. 0", "never", broken, lambda _: fails("", ""))
    monkeypatch.setattr("ddcl.experiments.claims.command.LEDGER", Ledger({"family": [wrong, whole]}))
    assert main(["claims"]) == 1
    out, err = capsys.readouterr()
    assert "wrong did not run: RuntimeError: no luck" in err
    assert "x = 1.0" in out


def test_two_claims_cannot_have_one_name():
    claim = next(iter(LEDGER))
    with pytest.raises(ValueError, match="two are called"):
        Ledger({"a": [claim], "b": [claim]})
