"""A run's complete configuration, as one frozen value: what config.json holds under ``settings``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ddcl.fitting.errors import BadInputError
from ddcl.fitting.tables import Kind

FORMAT = 1
"""Of the run folder; changes when a program that reads one would have to."""
LATER: Mapping[str, Any] = {"levels": None}
"""Settings that came after the first runs of this format, and what those did."""


@dataclass(frozen=True)
class Effort:
    """How much of the data is looked at, and how often."""

    epochs: int
    batch_size: int
    rows_per_epoch: int
    """Rows drawn in an epoch; fewer than there are where there are many."""
    rows_measured: int
    """Rows the exact figures are of."""
    rows_started: int
    """Rows that the k-means start and the critical temperature at the start are of."""
    restarts: int
    """Of that k-means."""
    start_steps: int
    """The most steps of that k-means; the training goes on from there."""


@dataclass(frozen=True)
class Settings(Effort):
    """Everything a run depends on, so that the same settings give the same run."""

    source: str
    """Absolute path of the data."""
    digest: str
    """SHA-256 of the data."""
    kind: Kind
    rows: int
    dim: int
    """Of the embeddings."""
    text_column: str | None
    """Column of the texts, or array of an .npz; None where there is no choice."""
    label_column: str | None
    classes: tuple[str, ...] | None
    """In the order of the head's outputs; None without labels."""
    encoder: str | None
    """Name or folder as given; None for embeddings."""
    fingerprint: str | None
    """Of the encoder's files."""
    max_tokens: int | None
    """Longer texts are cut."""
    normalise: bool
    """Whether rows are brought to length 1 before they enter the bank: those of texts are."""
    prototypes: int
    prototypes_reason: str
    """How the number came about: "as given", or the criterion it was chosen by."""
    levels: tuple[int, ...] | None
    """Prototypes at each level of a hierarchy, finest first, the first of them ``prototypes``; None: one bank."""
    seed: int
    device: str
    held_out: float
    """Share of the labelled rows that the head never sees."""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {name: list(one) if isinstance(one, tuple) else one for name, one in asdict(self).items()}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Settings:
        """From what :meth:`as_json` gave; keys of no meaning here are an error, as they would be lost."""
        found = {**LATER, **found}
        known = {field.name for field in fields(cls)}
        if set(found) != known:
            raise BadInputError(
                f"settings: {sorted(set(found) ^ known)} are missing or unknown to this version of ddcl"
            )
        values: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in found.items()}
        return cls(**values)

    def differences(self, other: Settings) -> list[str]:
        """What another run does otherwise, in words; where it runs does not count."""
        ours, theirs = self.as_json(), other.as_json()
        # a file that was moved is the same file; another device computes the same
        return [
            f"{name} {ours[name]!r} instead of {theirs[name]!r}"
            for name in ours
            if ours[name] != theirs[name] and name not in ("source", "encoder", "device")
        ]


def usual_effort(rows: int, prototypes: int, epochs: int | None = None) -> Effort:
    """The recipe's 50 epochs over small data; of many rows, parts that suffice for the number of prototypes.

    A running mean over ten batches should rest on some hundred rows for each prototype, and an exact look must not take
    a prototype for dead that was only not drawn: so these grow with K. Beyond 2^17 rows an epoch is a part of the data,
    drawn anew each time, and half a million draws in all move the bank no further.

    Example:
        >>> from ddcl.fitting.settings import usual_effort
        >>> usual_effort(10_000, 77).epochs, usual_effort(1_000_000, 100).rows_per_epoch
        (50, 131072)
    """
    per_epoch, small = min(rows, 2**17), rows <= 2**14
    batch = 1024
    while batch < 32 * prototypes and batch < 2**14:
        batch *= 2
    return Effort(
        epochs=epochs or max(4, min(50, 2**19 // per_epoch)),
        batch_size=min(batch, rows),
        rows_per_epoch=per_epoch,
        rows_measured=min(rows, max(2**14 if small else 2**13, 64 * prototypes)),
        rows_started=min(rows, max(2**14, 64 * prototypes)),
        restarts=10 if small else 1,
        start_steps=300 if small else 30,
    )
