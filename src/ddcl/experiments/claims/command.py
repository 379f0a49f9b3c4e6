"""``ddcl claims``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from ddcl.experiments.claims import LEDGER, Finding
from ddcl.experiments.claims.printing import Table, listing
from ddcl.experiments.claims.record import record
from ddcl.experiments.claims.tables import records_in
from ddcl.experiments.reproduce.running import FOLDER

DESCRIPTION = f"""\
Settle what the theory says by running it. Every claim of the paper (and a few of the library's own notes) is a small
experiment on the CPU; its verdict - holds, holds if ..., fails - is computed from the measured numbers by a stated
rule, with a counterexample where it fails. About a minute or two in all. The rows of the paper's tables take longer:
they are judged from records of `ddcl reproduce`, looked for in the folder of --records, in {FOLDER}, and in the
records of the checkout. What each verdict means for you is told in docs/claims.md.
"""
EPILOG = """\
examples:
  ddcl claims                               everything, as a table
  ddcl claims --only collapse time-scale-rule     a whole family and a single claim
  ddcl claims --only tables --records FOLDER      the paper's tables, from records of your own
  ddcl claims --list                        names, sentences and rules, without running anything
  ddcl claims --json > claims.json          with all numbers, versions and device
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", nargs="+", metavar="NAME", help="run these claims, or families of claims, alone")
    parser.add_argument(
        "--list", action="store_true", help="list the claims with the rule of each verdict, and run none"
    )
    parser.add_argument(
        "--records", type=Path, metavar="FOLDER", help="look for records of `ddcl reproduce` in this folder first"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON record in place of the table")


def run(arguments: argparse.Namespace) -> int:
    """Run the claims asked for; 0 if all ran, 1 if an experiment broke, 2 for a name that does not exist."""
    try:
        claims = LEDGER.select(arguments.only)
    except ValueError as unknown:
        print(f"ddcl claims: {unknown}", file=sys.stderr)
        return 2
    if arguments.records is not None and not arguments.records.is_dir():
        print(f"ddcl claims: --records: there is no folder {arguments.records}", file=sys.stderr)
        return 2
    if arguments.list:
        by_family = {family: [claim for claim in claims if claim in of] for family, of in LEDGER.families.items()}
        print(listing((family, chosen) for family, chosen in by_family.items() if chosen))
        return 0
    table = None if arguments.json else Table()
    if table:
        table.heading(len(claims))
    start, findings, broken = time.perf_counter(), list[tuple[str, Finding]](), 0
    for claim in claims:
        if arguments.json and sys.stderr.isatty():
            print(f"running {claim.name}", file=sys.stderr)
        try:
            with records_in(arguments.records):
                finding = claim.settle()
        except Exception as error:  # one broken experiment must not hide the verdicts of the others
            print(f"ddcl claims: {claim.name} did not run: {type(error).__name__}: {error}", file=sys.stderr)
            broken += 1
            continue
        family = LEDGER.family_of[claim.name]
        findings.append((family, finding))
        if table:
            table.row(family, finding)
    seconds = time.perf_counter() - start
    if table:
        table.summary([finding for _, finding in findings], seconds)
    else:
        command = " ".join(["ddcl", "claims", *(["--only", *arguments.only] if arguments.only else []), "--json"])
        print(json.dumps(record(findings, command=command, seconds=seconds), indent=2))
    return 1 if broken else 0
