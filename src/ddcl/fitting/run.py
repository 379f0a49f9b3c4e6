"""A whole fit: from a path of data to a run folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Union

import torch

from ddcl.data import embed, load_encoder
from ddcl.data.encoders import DEFAULT_ENCODER, Encoder
from ddcl.fitting.banks import Watch
from ddcl.fitting.batches import Rows
from ddcl.fitting.charts import write_charts
from ddcl.fitting.classes import Classes, split_classes
from ddcl.fitting.errors import BadInputError
from ddcl.fitting.folder import RunFolder, open_run
from ddcl.fitting.lessons import may_learn
from ddcl.fitting.levels import check_levels, levels_above
from ddcl.fitting.results import write_results
from ddcl.fitting.settings import Settings, usual_effort
from ddcl.fitting.sizes import SAMPLE, choose_size
from ddcl.fitting.tables import Table, digest_of, read_table
from ddcl.fitting.training import train
from ddcl.training.checkpoint import load_checkpoint
from ddcl.training.progress import Progress

HELD_OUT = 0.1
MAX_TOKENS = 128
AS_GIVEN = "as given"

Prototypes = Union[int, str]
"""A number, or "auto"."""


@dataclass(frozen=True)
class Request:
    """What a user asks for; what is None is chosen, or in a run that goes on as it was."""

    data: Path
    out: Path
    text: str | None = None
    labels: str | None = None
    encoder: str | None = None
    prototypes: Prototypes | None = None
    levels: tuple[int, ...] | None = None
    """How many levels, one number; or the prototypes of each, finest first."""
    epochs: int | None = None
    seed: int | None = None
    device: str = "cpu"
    resume: bool = False

    def completed(self, earlier: Settings) -> Request:
        """With what is left open as it was in the run to go on with."""
        return replace(
            self,
            text=self.text or earlier.text_column,
            labels=self.labels or earlier.label_column,
            encoder=self.encoder or earlier.encoder,
            epochs=self.epochs or earlier.epochs,
            seed=earlier.seed if self.seed is None else self.seed,
        )


@dataclass(frozen=True)
class Telling:
    """Whom to tell what is going on."""

    say: Callable[[str], None]
    """Of a guess or choice, in a sentence."""
    watch: Watch
    """Of an epoch's end, of the bank and of each level above it."""
    embedding: bool = False
    """Whether to show a bar while texts are embedded."""


def fit(request: Request, telling: Telling) -> RunFolder:
    """Read, embed, choose, train and write; what the user can put right raises :class:`BadInputError`.

    Nothing is written to the run folder before all of that is known to be possible, and a folder that exists is only
    touched to go on with its own unfinished run.
    """
    began = time.monotonic()
    _check(request)
    earlier = open_run(request.out) if request.resume and request.out.exists() else None
    if earlier is not None and earlier.state == "done":
        _check_done(request, earlier)
        telling.say(f"the run in {request.out} is done already")
        return earlier
    if earlier is not None:
        request = request.completed(earlier.settings)
    table = read_table(request.data, text=request.text, labels=request.labels)
    for remark in table.remarks:
        telling.say(remark)
    _check_size(request, table)
    encoder = _encoder(request, table)
    rows = _rows(table, encoder, request, telling)
    names, classes = _class_names(table), None
    if table.labels is not None and names is not None:
        classes = split_classes(table.labels, names, HELD_OUT, request.seed or 0)
    settings = _settings(request, table, encoder, rows, classes, telling, earlier)
    folder = RunFolder.create(request.out, settings) if earlier is None else _going_on(earlier, settings)
    try:
        trained = train(
            rows,
            settings,
            classes,
            checkpoint=folder.checkpoint,
            resume=earlier is not None,
            watch=_Recorder(folder, telling.watch),
            watch_above=telling.watch,
            say=telling.say,
        )
        write_results(folder, trained, table, rows, classes, began=began)
    except BaseException:  # an interruption too: nothing that is half done may look whole
        folder.stop()
        raise
    try:
        telling.say("drawing a map, warming the bank, comparing with k-means")
        write_charts(folder, rows)
    except Exception as error:  # whatever it is: the run is whole without them
        telling.say(f"what the run is drawn from could not be written ({str(error) or type(error).__name__})")
    return folder


def _check(request: Request) -> None:
    """What can be told before anything is read."""
    if not request.resume and request.out.exists() and (not request.out.is_dir() or any(request.out.iterdir())):
        raise BadInputError(f"{request.out} exists already: choose another --out, or go on with its run by --resume")
    if isinstance(request.prototypes, str) and request.prototypes != "auto":
        raise BadInputError(f"--prototypes: got {request.prototypes!r}, expected a number or auto")
    if isinstance(request.prototypes, int) and request.prototypes < 2:
        raise BadInputError(f"--prototypes: got {request.prototypes}, expected at least 2")
    if request.levels is not None:
        check_levels(request.levels)
        finest = request.levels[0] if len(request.levels) > 1 else request.prototypes
        if request.prototypes not in (None, finest):
            raise BadInputError(f"--prototypes: got {request.prototypes}, expected {finest}, the first of the --levels")
    if request.epochs is not None and request.epochs < 1:
        raise BadInputError(f"--epochs: got {request.epochs}, expected at least 1")
    try:
        torch.empty(0, device=request.device)
    except (RuntimeError, AssertionError) as error:
        raise BadInputError(f"--device: {request.device!r} is not on this machine") from error


def _check_done(request: Request, earlier: RunFolder) -> None:
    """Whether a finished run is the one that is asked for again."""
    settings = earlier.settings
    if not request.data.exists() or digest_of(request.data) != settings.digest:
        raise BadInputError(f"--resume: the run in {earlier.path} is done, and was not of {request.data} as it is now")
    asked = {
        "--text": (request.text, settings.text_column),
        "--labels": (request.labels, settings.label_column),
        "--prototypes": (request.prototypes, settings.prototypes),
        "--epochs": (request.epochs, settings.epochs),
        "--seed": (request.seed, settings.seed),
    }
    for option, (given, had) in asked.items():
        if given not in (None, "auto", had):
            raise BadInputError(f"--resume: the run in {earlier.path} is done, with {option} {had!r}, not {given!r}")


def _check_size(request: Request, table: Table) -> None:
    if len(table) < 2:
        raise BadInputError(f"{table.path}: it holds one row; expected at least two")
    asked = [("--prototypes", request.prototypes)]
    if request.levels is not None and len(request.levels) > 1:
        asked.insert(0, ("--levels", request.levels[0]))
    for option, number in asked:
        if isinstance(number, int) and number > len(table):
            raise BadInputError(f"{option}: got {number} for {len(table)} rows, expected at most as many")


def _encoder(request: Request, table: Table) -> Encoder | None:
    if table.kind == "embeddings":
        if request.encoder is not None:
            raise BadInputError(f"--encoder: {table.path} holds embeddings, which need none")
        return None
    try:
        return load_encoder(request.encoder or DEFAULT_ENCODER)
    except FileNotFoundError as error:
        raise BadInputError(f"--encoder: {error}") from error


def _rows(table: Table, encoder: Encoder | None, request: Request, telling: Telling) -> Rows:
    if table.embeddings is not None:
        return Rows(table.embeddings, normalise=False)
    assert table.texts is not None, "what is no embedding is a text"
    assert encoder is not None, "texts have an encoder"
    z = embed(
        table.texts,
        encoder=encoder,
        max_tokens=_max_tokens(encoder),
        device=request.device,
        progress=telling.embedding,
    )
    return Rows(z.numpy(), normalise=False)  # of length 1 already


def _max_tokens(encoder: Encoder) -> int:
    return min(MAX_TOKENS, encoder.max_length)


def _class_names(table: Table) -> tuple[str, ...] | None:
    return None if table.labels is None else tuple(sorted({label for label in table.labels if label is not None}))


def _settings(
    request: Request,
    table: Table,
    encoder: Encoder | None,
    rows: Rows,
    split: Classes | None,
    telling: Telling,
    earlier: RunFolder | None,
) -> Settings:
    classes = _class_names(table)
    prototypes, reason = _prototypes(request, rows, classes, telling, earlier)
    telling.say(f"prototypes: {prototypes} ({reason})")
    levels = _levels(request, prototypes, telling, earlier)
    by_class = split is not None and may_learn(prototypes, classes, len(split.learned))
    return Settings(
        source=str(table.path.resolve()),
        digest=digest_of(table.path),
        kind=table.kind,
        rows=len(rows),
        dim=rows.dim,
        text_column=table.text_column,
        label_column=table.label_column,
        classes=classes,
        encoder=None if encoder is None else (request.encoder or DEFAULT_ENCODER),
        fingerprint=None if encoder is None else encoder.fingerprint,
        max_tokens=None if encoder is None else _max_tokens(encoder),
        normalise=encoder is not None,
        prototypes=prototypes,
        prototypes_reason=reason,
        levels=levels,
        **asdict(usual_effort(len(rows), prototypes, request.epochs, by_class=by_class)),
        seed=request.seed or 0,
        device=request.device,
        held_out=HELD_OUT if classes is not None else 0.0,
    )


def _prototypes(
    request: Request, rows: Rows, classes: tuple[str, ...] | None, telling: Telling, earlier: RunFolder | None
) -> tuple[int, str]:
    if request.levels is not None and len(request.levels) > 1:
        return request.levels[0], AS_GIVEN
    if isinstance(request.prototypes, int):
        return request.prototypes, AS_GIVEN
    if earlier is not None and (request.prototypes is None or earlier.settings.prototypes_reason != AS_GIVEN):
        return earlier.settings.prototypes, earlier.settings.prototypes_reason
    if classes is not None:
        fitting = max(2, min(2 * len(classes), len(rows) // 4))
        return fitting, f"auto: two for each of the {len(classes)} classes, but no more than one for every four rows"
    telling.say(f"choosing the number of prototypes by the phase diagram of {min(SAMPLE, len(rows))} rows")
    size = choose_size(rows.sample(SAMPLE, request.seed or 0), request.seed or 0)
    return size.prototypes, f"auto: {size.reason}"


def _levels(request: Request, prototypes: int, telling: Telling, earlier: RunFolder | None) -> tuple[int, ...] | None:
    if request.levels is None:
        return None if earlier is None else earlier.settings.levels
    if len(request.levels) > 1:
        return request.levels
    wanted = request.levels[0]
    found = levels_above(prototypes, wanted)
    fewer = f", and none above 2, so {len(found)} levels instead of {wanted}" if len(found) < wanted else ""
    telling.say(f"levels: {' '.join(map(str, found))} (each a quarter of the one below{fewer})")
    return found


def _going_on(earlier: RunFolder, settings: Settings) -> RunFolder:
    if different := settings.differences(earlier.settings):
        raise BadInputError(f"--resume: the run in {earlier.path} was begun otherwise: now {different[0]}")
    if earlier.checkpoint.exists():
        kept = {line["epoch"]: line for line in earlier.metrics()}
        history = [Progress(**one) for one in load_checkpoint(earlier.checkpoint)["history"]]
        earlier.keep_metrics([kept.get(one.epoch) or _line(one, {}) for one in history])
    else:
        earlier.keep_metrics([])
    return earlier


class _Recorder:
    """Writes each epoch down before others are told."""

    def __init__(self, folder: RunFolder, watch: Watch) -> None:
        self.folder, self.watch = folder, watch

    def __call__(self, progress: Progress, figures: dict[str, float]) -> None:
        self.folder.add_metrics(_line(progress, figures))
        self.watch(progress, figures)


def _line(progress: Progress, figures: Mapping[str, float]) -> dict[str, Any]:
    exact = dict(progress.metrics) or None
    return {
        "epoch": progress.epoch,
        "epochs": progress.epochs,
        "step": progress.step,
        "steps": progress.steps,
        "seconds": progress.seconds,
        "loss": progress.loss,
        "figures": dict(figures),
        "exact": exact,
        "troubles": list(progress.troubles),
    }
