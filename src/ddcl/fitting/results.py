"""What a finished run writes into its folder: the model, a row for each input, the inputs, the figures."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ddcl.fitting.banks import TrainedBank
from ddcl.fitting.batches import Rows
from ddcl.fitting.classes import Classes
from ddcl.fitting.classifying import accuracies
from ddcl.fitting.folder import ASSIGNMENTS, INPUTS, KEPT_EMBEDDINGS, KEPT_TEXT, RunFolder
from ddcl.fitting.formats import parquet_packages
from ddcl.fitting.levels import parents_of
from ddcl.fitting.mixtures import assign
from ddcl.fitting.settings import Settings
from ddcl.fitting.tables import Table
from ddcl.fitting.training import Trained, bank_of
from ddcl.nn import PrototypeBank

PIECE = 4096
"""Texts written at once."""


def write_results(
    folder: RunFolder,
    trained: Trained,
    table: Table,
    rows: Rows,
    classes: Classes | None,
    *,
    began: float,
) -> None:
    """All that a finished run holds; the configuration last. The fit began at ``began`` by the monotonic clock."""
    model, last, reading, above, taught = trained
    state = model.state_dict()
    named = {f"bank.{name}": t for name, t in state.items()} if isinstance(model, PrototypeBank) else state
    for level, (bank, _, _) in enumerate(above, start=1):
        named |= {f"levels.{level}.prototypes": bank.prototypes[0], f"levels.{level}.temperature": bank.temperature}
    folder.write_model(named)
    tally = _Tally([folder.settings.prototypes, *(one.bank.num_prototypes for one in above)])
    schema = _schema(assignment_fields(folder.settings))
    folder.write_table(ASSIGNMENTS, _assignments(folder.settings, trained, rows, table, classes, tally), schema)
    if table.texts is not None:
        _keep_inputs(folder, table, rows)
    compared = None
    if classes is not None and tally.predicted is not None:
        compared = accuracies(rows, classes, torch.cat(tally.predicted), folder.settings.seed)
    folder.finish(
        {
            "healthy": not (last.troubles or any(one.last.troubles for one in above)),
            "troubles": [
                *last.troubles,
                *(f"level {level}: {said}" for level, one in enumerate(above, 1) for said in one.last.troubles),
            ],
            "metrics": dict(last.metrics),
            "reading": reading._asdict(),
            "sizes": tally.sizes[0].tolist(),
            "levels": None if folder.settings.levels is None else list(map(_level, above, tally.sizes[1:])),
            "parents": None
            if folder.settings.levels is None
            else parents_of([bank_of(model), *(one.bank for one in above)]),
            "distortion": tally.distortion / len(rows),
            "confidence": tally.confidence / len(rows),
            "entropy": tally.entropy / len(rows),
            "learned_from_labels": taught,
            "accuracy": compared,
            "remarks": list(table.remarks),
            "seconds": time.monotonic() - began,
        }
    )


class _Tally:
    """Sums over all rows, while they pass by."""

    def __init__(self, levels: Sequence[int]) -> None:
        self.sizes = [torch.zeros(prototypes, dtype=torch.long) for prototypes in levels]
        self.distortion = self.confidence = self.entropy = 0.0
        self.predicted: list[Tensor] | None = None


def _level(trained: TrainedBank, sizes: Tensor) -> dict[str, Any]:
    """The figures of a level above the first."""
    reading = trained.reading
    return {
        "prototypes": trained.bank.num_prototypes,
        "sizes": sizes.tolist(),
        "healthy": not trained.last.troubles,
        "troubles": list(trained.last.troubles),
        "metrics": dict(trained.last.metrics),
        "temperature": reading.temperature,
        "relative_temperature": reading.temperature / reading.critical,
        "reading": reading._asdict(),
    }


def assignment_fields(settings: Settings) -> dict[str, str]:
    """The columns of assignments.parquet and their types, as pyarrow names them."""
    fields = {
        "row": "int64",
        "id": "string",
        "prototype": "int32",
        "confidence": "float32",
        "entropy": "float32",
        "prototypes": "list<int32>",
        "weights": "list<float32>",
    }
    fields |= {f"level_{level}": "int32" for level in range(1, len(settings.levels or ()))}
    with_head = {"label": "string", "predicted": "string", "held_out": "bool"}
    return fields | (with_head if settings.classes is not None else {})


def _schema(fields: Mapping[str, str]) -> Any:
    pyarrow, _ = parquet_packages()

    def kind(name: str) -> Any:
        inner = name.removeprefix("list<").removesuffix(">")
        one = getattr(pyarrow, {"bool": "bool_"}.get(inner, inner))()
        return pyarrow.list_(one) if inner != name else one

    return pyarrow.schema([(name, kind(type_name)) for name, type_name in fields.items()])


def _assignments(
    settings: Settings, trained: Trained, rows: Rows, table: Table, classes: Classes | None, tally: _Tally
) -> Iterator[dict[str, Any]]:
    start = 0
    held = np.zeros(len(rows), dtype=bool)
    if classes is not None:
        held[classes.held_out] = True
        tally.predicted = []
    for found in assign(trained.model, [one.bank for one in trained.above], rows):
        found = found._replace(**{k: v.cpu() for k, v in found._asdict().items() if v is not None})
        stop = start + len(found.prototype)
        for sizes, numbers in zip(tally.sizes, found.path.unbind(-1), strict=True):
            sizes += torch.bincount(numbers, minlength=len(sizes))
        tally.distortion += float(found.squared_distance.sum(dtype=torch.float64))
        tally.confidence += float(found.confidence.sum(dtype=torch.float64))
        tally.entropy += float(found.entropy.sum(dtype=torch.float64))
        piece: dict[str, Any] = {
            "row": np.arange(start, stop),
            "id": [None] * (stop - start) if table.ids is None else table.ids[start:stop],
            "prototype": found.prototype.int().numpy(),
            "confidence": found.confidence.numpy(),
            "entropy": found.entropy.numpy(),
            "prototypes": _lists(found.prototypes.int()),
            "weights": _lists(found.weights),
            **{f"level_{level}": found.path[:, level].int().numpy() for level in range(1, len(tally.sizes))},
        }
        if settings.classes is not None and table.labels is not None and found.predicted is not None:
            assert tally.predicted is not None, "begun above"
            tally.predicted.append(found.predicted)
            piece["label"] = table.labels[start:stop]
            piece["predicted"] = [settings.classes[number] for number in found.predicted.tolist()]
            piece["held_out"] = held[start:stop]
        yield piece
        start = stop


def _lists(rows: Tensor) -> Any:
    """Rows (n, k) as pyarrow's lists of k, without a Python object for each."""
    pyarrow, _ = parquet_packages()
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
    return pyarrow.ListArray.from_arrays(offsets, rows.contiguous().numpy().reshape(-1))


def _keep_inputs(folder: RunFolder, table: Table, rows: Rows) -> None:
    """A copy of texts and embeddings, if they are not too many, so that the folder explains itself."""
    texts = table.texts or []
    if sum(len(text.encode()) for text in texts) <= KEPT_TEXT:
        fields = {"row": "int64", "id": "string", "text": "string"}
        fields |= {"label": "string"} if table.labels is not None else {}

        def pieces() -> Iterator[dict[str, Any]]:
            for start in range(0, len(texts), PIECE):
                part = slice(start, start + PIECE)
                named = {"id": [None] * len(texts[part]) if table.ids is None else table.ids[part]}
                labelled = {} if table.labels is None else {"label": table.labels[part]}
                yield {"row": range(start, start + len(texts[part])), **named, "text": texts[part], **labelled}

        folder.write_table(INPUTS, pieces(), _schema(fields))
    if rows.array.nbytes <= KEPT_EMBEDDINGS:
        folder.write_embeddings(rows.at(slice(None)))
