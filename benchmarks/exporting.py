"""Exported programs against the fitted model they were made from, on the CPU, with as many threads as torch has."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ddcl
from benchmarks.results import Result, Row, format_table
from benchmarks.timing import Plan, Timing, time_side_by_side
from ddcl.fitting import Fitted
from ddcl.fitting.exporting import Exported, What
from ddcl.fitting.run import Request, Telling, fit

ROWS, DIM, PROTOTYPES = 4000, 384, 100
QUICK = (200, 8, 4)
BATCHES = {"readout": (1, 64, 4096), "whole": (1, 64)}
_SUBJECTS = (
    "orbit rocket launch moon crew dock",
    "goalie hockey ice puck team coach",
    "engine car brake tyre road oil",
    "doctor patient drug dose ward nurse",
)

Call = Callable[[], object]


def measure(quick: bool) -> Result:
    """The probabilities of classes from embeddings and, in earnest, from texts, by each program in turn."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        timings = _readout(folder, quick) | ({} if quick else _whole(folder))
    records: list[Row] = []
    for (what, batch), found in timings.items():
        for program, timing in found.items():
            records.append(
                {
                    "benchmark": "export",
                    "what": what,
                    "batch": batch,
                    "program": program,
                    "median_ms": f"{timing.median:.4g}",
                    "p10_ms": f"{timing.p10:.4g}",
                    "p90_ms": f"{timing.p90:.4g}",
                    "repeats": timing.repeats,
                    "ratio_to_fitted": f"{timing.median / found['fitted'].median:.3f}",
                }
            )
    header = ["what", "batch", "program", "median ms", "p10", "p90", "repeats", "of fitted"]
    return Result(records, format_table(header, [list(row.values())[1:] for row in records]), [])


def _readout(folder: Path, quick: bool) -> dict[tuple[str, int], dict[str, Timing]]:
    rows, dim, prototypes = QUICK if quick else (ROWS, DIM, PROTOTYPES)
    random = np.random.default_rng(0)
    of = random.integers(prototypes, size=rows)
    z = random.normal(size=(prototypes, dim))[of] + random.normal(size=(rows, dim))
    np.savez(folder / "z.npz", z=z.astype(np.float32), team=of % 4)
    fitted = _fitted(Request(folder / "z.npz", folder / "embeddings", labels="team", prototypes=prototypes, epochs=2))
    onnx, program = _programs(fitted, folder, "readout")
    found = {}
    for batch in BATCHES["readout"]:
        some = z[np.arange(batch) % rows].astype(np.float32)
        given = torch.from_numpy(some)
        found["readout", batch] = _time(
            {
                "fitted": partial(fitted.probabilities, given),
                "onnx": partial(onnx, {"embeddings": some}),
                "torch": partial(program, embeddings=given),
            },
            quick,
        )
    return found


def _whole(folder: Path) -> dict[tuple[str, int], dict[str, Timing]]:
    """From texts, the tokenizer's time included."""
    from tokenizers import Tokenizer

    random = np.random.default_rng(0)
    lines = [
        {"text": " ".join(random.choice(_SUBJECTS[row % 4].split(), random.integers(4, 20))), "subject": str(row % 4)}
        for row in range(400)
    ]
    (folder / "texts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    fitted = _fitted(Request(folder / "texts.jsonl", folder / "texts", labels="subject", epochs=2))
    onnx, program = _programs(fitted, folder, "whole")
    tokenizer = Tokenizer.from_file(str(folder / "whole-onnx" / "tokenizer.json"))
    tokenizer.enable_truncation(fitted.settings.max_tokens)
    tokenizer.enable_padding()

    def tokens(texts: list[str]) -> dict[str, np.ndarray]:
        encoded = tokenizer.encode_batch(texts)
        parts = {"input_ids": [one.ids for one in encoded], "attention_mask": [one.attention_mask for one in encoded]}
        return {name: np.array(part, dtype=np.int64) for name, part in parts.items()}

    def by_onnx(texts: list[str]) -> object:
        return onnx(tokens(texts))

    def by_torch(texts: list[str]) -> object:
        return program(**{name: torch.from_numpy(array) for name, array in tokens(texts).items()})

    found = {}
    for batch in BATCHES["whole"]:
        texts = [line["text"] for line in lines[:batch]]
        found["whole", batch] = _time(
            {
                "fitted": partial(fitted.probabilities, texts),
                "onnx": partial(by_onnx, texts),
                "torch": partial(by_torch, texts),
            },
            quick=False,
        )
    return found


def _time(candidates: dict[str, Call], quick: bool) -> dict[str, Timing]:
    plan = Plan(warmup=1, least=2, most=2) if quick else Plan(seconds=3.0, most=200)
    with torch.no_grad():
        return time_side_by_side(candidates, lambda: None, plan)


def _fitted(request: Request) -> Fitted:
    fit(request, Telling(say=lambda _: None, watch=lambda *_: None))
    return ddcl.load(request.out)


def _programs(fitted: Fitted, folder: Path, what: What) -> tuple[Callable[[Any], object], Any]:
    """Functions that run the exports, loaded as their users would."""
    import onnxruntime

    def exported(name: str, ending: str) -> Path:
        out = folder / (f"readout{ending}" if what == "readout" else f"whole-{name}")
        done: Exported = fitted.export(out, name, what)  # type: ignore[arg-type]
        return done.path if what == "readout" else done.path / f"model{ending}"

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(exported("onnx", ".onnx")), options)
    return lambda inputs: session.run(["probabilities"], inputs), torch.export.load(exported("torch", ".pt2")).module()
