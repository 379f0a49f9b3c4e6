"""How long the explorer takes to answer for a typed sentence, asked over HTTP as its page asks."""

from __future__ import annotations

import json
import random
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ddcl
from benchmarks.results import Result, Row, format_table
from ddcl.experiments.kernels.timing import summarise
from ddcl.explorer import ExploredRun, LocalServer, application, listen
from ddcl.fitting.run import Request, Telling, fit

ROWS, PROTOTYPES, ASKED = 2000, 77, 100
QUICK = (48, 4, 5)
WORDS_ASKED = 20
TARGET_MS = 100.0
SHORTEST, LONGEST = 6, 14
"""Words of a sentence."""
_WORDS = (
    "why how when can could will should did is was my the a this that your card cash bank account transfer payment "
    "balance refund fee rate exchange top-up PIN identity limit machine statement app phone passcode address wait "
    "arrive pending declined charged twice wrong missing lost stolen new old virtual physical abroad yesterday today "
    "week money please help change check find get use pay send receive verify activate order track cancel"
)


def measure(quick: bool) -> Result:
    """Answers for sentences never seen before, one after the other, from a server that is warm."""
    rows, prototypes, asked = QUICK if quick else (ROWS, PROTOTYPES, ASKED)
    drawn = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "sentences.jsonl")
        data.write_text("\n".join(json.dumps({"text": _sentence(drawn)}) for _ in range(rows)), encoding="utf-8")
        request = Request(data, Path(folder, "run"), prototypes=prototypes, epochs=2)
        fit(request, Telling(say=lambda _: None, watch=lambda *_: None))
        with _served(Path(folder, "run")) as address:
            sentences = [_sentence(drawn) for _ in range(asked)]
            mixtures = [_timed(f"{address}api/explain", {"text": one}) for one in sentences]
            words = [_timed(f"{address}api/words", {"text": one, "prototype": 0}) for one in sentences[:WORDS_ASKED]]
    times = {"mixture and examples": mixtures, "weights of the words": words}
    records = [_record(answer, rows, prototypes, found) for answer, found in times.items()]
    header = ["answer", "N", "K", "median ms", "p10", "p90", "slowest", "repeats"]
    slowest = max(mixtures)
    return Result(
        records,
        format_table(header, [list(record.values())[1:] for record in records]),
        [f"a typed sentence is answered within {TARGET_MS:g} ms: {_answer(slowest)} (slowest {slowest:.0f} ms)"],
    )


def _record(answer: str, rows: int, prototypes: int, times: list[float]) -> Row:
    timing = summarise(times)
    return {
        "benchmark": "explorer",
        "answer": answer,
        "N": rows,
        "K": prototypes,
        "median_ms": f"{timing.median:.2f}",
        "p10_ms": f"{timing.p10:.2f}",
        "p90_ms": f"{timing.p90:.2f}",
        "slowest_ms": f"{max(times):.2f}",
        "repeats": timing.repeats,
    }


def _answer(slowest: float) -> str:
    return "yes" if slowest < TARGET_MS else "no"


def _sentence(drawn: random.Random) -> str:
    return " ".join(drawn.choices(_WORDS.split(), k=drawn.randint(SHORTEST, LONGEST)))


@contextmanager
def _served(run: Path) -> Iterator[str]:
    """A server of a run, on a thread."""
    explored = ExploredRun(ddcl.load(run))
    explored.warm()
    app = application(explored)
    with listen() as listening, LocalServer(app, listening, app.state.close).beside() as address:
        yield address


def _timed(address: str, asked: dict[str, object]) -> float:
    """Milliseconds until the whole answer is there, with everything between."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(address, json.dumps(asked).encode(), headers, method="POST")
    began = time.perf_counter()
    with urllib.request.urlopen(request) as response:
        json.load(response)
    return 1e3 * (time.perf_counter() - began)
