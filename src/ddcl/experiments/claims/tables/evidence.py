"""Where the verdicts on tables come from: records of ``ddcl reproduce``, found and read, never made here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import ddcl
from ddcl.experiments.claims.ledger import MissingError
from ddcl.experiments.reproduce.record import read
from ddcl.experiments.reproduce.running import FOLDER, record_file
from ddcl.experiments.reproduce.study import Done

COMMITTED = Path(ddcl.__file__).parents[2] / "results" / "reproduce"
"""The records of a checkout that the package is installed from; elsewhere there is no such folder."""
_chosen: ContextVar[Path | None] = ContextVar("records", default=None)


@contextmanager
def records_in(folder: Path | None) -> Iterator[None]:
    """Look for records in this folder first."""
    token = _chosen.set(folder)
    try:
        yield
    finally:
        _chosen.reset(token)


def folders() -> list[Path]:
    """Where records are looked for: the folder chosen, what ``ddcl reproduce`` writes here, what was committed."""
    chosen = _chosen.get()
    return [*([] if chosen is None else [chosen]), FOLDER, COMMITTED]


@dataclass(frozen=True)
class Evidence:
    """The full runs of one study."""

    study: str
    runs: Sequence[Done]

    def of(self, case: str, method: str) -> list[Done]:
        """The runs of one row, by seed."""
        found = [one for one in self.runs if one.case == case and one.method == method]
        if not found:
            raise MissingError(f"the record has no run of {method} on {case}: run `ddcl reproduce {self.study}`")
        return sorted(found, key=lambda one: one.seed)

    def values(self, case: str, method: str, metric: str) -> list[float]:
        """One figure of all seeds of one row."""
        found = [one.metrics[metric] for one in self.of(case, method) if metric in one.metrics]
        if not found:
            raise MissingError(
                f"the record has no {metric} of {method} on {case}: run `ddcl reproduce {self.study}` again"
            )
        return found

    def has(self, case: str, method: str) -> bool:
        """Whether a row was run."""
        return any(one.case == case and one.method == method for one in self.runs)

    def places(self, prefix: str) -> list[str]:
        """What follows the prefix in the names of cases, such as the encoders; at least one."""
        found = dict.fromkeys(one.case.removeprefix(prefix) for one in self.runs if one.case.startswith(prefix))
        if not found:
            raise MissingError(f"the record has no run on {prefix.strip(', ')}: run `ddcl reproduce {self.study}`")
        return list(found)

    @property
    def source(self) -> str:
        """The record, the commits and the devices of its runs."""
        commits = " and ".join(dict.fromkeys(str(one.origin.get("commit", "unknown")) for one in self.runs))
        devices = " and ".join(
            dict.fromkeys(str(one.origin.get("gpu") or one.origin.get("device", "unknown")) for one in self.runs)
        )
        return f"{self.study}.jsonl, commit {commits}, {devices}"


def evidence(study: str) -> Evidence:
    """The record of a study from the first folder that has full runs of it."""
    for folder in folders():
        path = record_file(folder, study)
        if path.is_file():
            # a run done again under other settings follows the one it replaces
            full = {(one.case, one.method, one.seed): one for one in read(path) if not _quick(one)}
            if full:
                return Evidence(study, tuple(full.values()))
    raise MissingError(f"there is no full record of this: run `ddcl reproduce {study}`")


def source_of(study: str) -> Callable[[], str]:
    """For a claim: names the record its verdict comes from."""
    return lambda: evidence(study).source


def _quick(one: Done) -> bool:
    """Quick runs show that a study works; they are too short to decide anything."""
    return "--quick" in str(one.origin.get("command", "")).split()
