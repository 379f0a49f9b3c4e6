"""A claim, the experiment that measures it, and the rule that turns its numbers into a verdict.

No verdict is written down anywhere: ``measure`` returns numbers and ``judge``, a plain function of them, decides. A
library that behaved differently would get different verdicts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

Numbers = Mapping[str, float]


class Outcome(str, Enum):
    """The possible endings of an experiment."""

    HOLDS = "holds"
    CONDITIONAL = "holds if"
    FAILS = "fails"
    UNSETTLED = "not settled here"


@dataclass(frozen=True)
class Verdict:
    """What the numbers say; made by :func:`holds`, :func:`holds_if`, :func:`fails` or :func:`unsettled`."""

    outcome: Outcome
    number: str
    """The number that decides, in words."""
    condition: str = ""
    """What must be true for the claim to hold; only with ``Outcome.CONDITIONAL``."""
    counterexample: str = ""
    """Where the claim breaks; always with ``Outcome.FAILS``."""

    def __str__(self) -> str:
        return f"{self.outcome.value} {self.condition}" if self.condition else self.outcome.value


def holds(number: str) -> Verdict:
    """The claim is true in everything that was measured."""
    return Verdict(Outcome.HOLDS, number)


def holds_if(condition: str, number: str, counterexample: str = "") -> Verdict:
    """The claim is true where the condition is, and was seen to break elsewhere."""
    return Verdict(Outcome.CONDITIONAL, number, condition=condition, counterexample=counterexample)


def fails(number: str, counterexample: str) -> Verdict:
    """The claim as stated has a counterexample."""
    return Verdict(Outcome.FAILS, number, counterexample=counterexample)


def unsettled(reason: str) -> Verdict:
    """Nothing was measured, and why."""
    return Verdict(Outcome.UNSETTLED, reason)


class MissingError(Exception):
    """Raised by an experiment that lacks something it needs: the claim stays unsettled, and says what is missing."""


@contextmanager
def _one_thread() -> Iterator[None]:
    """Tensors this small lose more to threads than they gain, and one thread gives the same digits every time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Claim:
    """One sentence that experiments can decide."""

    name: str
    says: str
    """The claim in one sentence."""
    where: str
    """Its place in the paper, or in the library's own notes."""
    rule: str
    """How the numbers decide, in words; ``judge`` is the same in code."""
    measure: Callable[[], Numbers]
    judge: Callable[[Numbers], Verdict]
    source: Callable[[], str] | None = None
    """Names the record that ``measure`` reads, for claims that are not run here."""

    def settle(self) -> Finding:
        """Run the experiment and judge what it measured."""
        start = time.perf_counter()
        try:
            with _one_thread():
                numbers = dict(self.measure())
            verdict = self.judge(numbers)
            source = "" if self.source is None else self.source()
        except MissingError as missing:
            numbers, verdict, source = {}, unsettled(str(missing)), ""
        return Finding(self, numbers, verdict, time.perf_counter() - start, source)


@dataclass(frozen=True)
class Finding:
    """A claim, what was measured, and the verdict."""

    claim: Claim
    numbers: Numbers
    verdict: Verdict
    seconds: float
    source: str = ""
    """The record the numbers were read from, its commit and device; empty for what was run here and now."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a record."""
        return {
            "name": self.claim.name,
            "says": self.claim.says,
            "where": self.claim.where,
            "rule": self.claim.rule,
            "verdict": self.verdict.outcome.value,
            "condition": self.verdict.condition,
            "number": self.verdict.number,
            "counterexample": self.verdict.counterexample,
            "numbers": {key: float(f"{value:.6g}") for key, value in self.numbers.items()},
            "source": self.source,
            "seconds": round(self.seconds, 2),
        }


class Ledger:
    """Claims in families, in the order they are printed."""

    def __init__(self, families: Mapping[str, Iterable[Claim]]) -> None:
        self.families = {family: tuple(claims) for family, claims in families.items()}
        self.family_of: dict[str, str] = {}
        for family, claims in self.families.items():
            for claim in claims:
                if claim.name in self.family_of or claim.name in self.families:
                    raise ValueError(f"claims: two are called {claim.name!r}")
                self.family_of[claim.name] = family

    def __iter__(self) -> Iterator[Claim]:
        return (claim for claims in self.families.values() for claim in claims)

    def __len__(self) -> int:
        return len(self.family_of)

    def select(self, names: Iterable[str] | None = None) -> list[Claim]:
        """The claims with these names, or of the families with these names, in the ledger's order; all for None."""
        if names is None:
            return list(self)
        wanted = set(names)
        unknown = sorted(wanted - set(self.family_of) - set(self.families))
        if unknown:
            known = "\n".join(f"  {family}: {', '.join(c.name for c in cs)}" for family, cs in self.families.items())
            raise ValueError(f"no claim or family is called {', '.join(unknown)}. Known, by family:\n{known}")
        return [claim for claim in self if wanted & {claim.name, self.family_of[claim.name]}]
