"""``ddcl fit``: a table of texts, or embeddings, to prototypes in a run folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ddcl.commands.report import report_at_the_end
from ddcl.data.progress import ProgressBar
from ddcl.fitting import BadInputError, RunFolder, load
from ddcl.fitting.folder import CONFIG
from ddcl.fitting.run import Request, Telling, fit
from ddcl.training.progress import Progress

DESCRIPTION = """\
Find the structure of texts or embeddings: a bank of prototypes of which every row is a mixture, and with --labels a
head that classifies by it. Writes a run folder that `ddcl.load` reads, with a report.html to open in a browser.

DATA is one of
  a .csv, .tsv, .jsonl or .parquet file: a row for each text (UTF-8; the first line of .csv and .tsv names the columns)
  a folder of .txt files: a row for each file
  a .npy file, or an .npz file with one such array: embeddings (rows, dimension), mapped into memory, never held whole

What is not given is guessed, and the guess is said. Texts are embedded by --encoder and kept in the cache, so that a
second run on them starts at once. Ctrl-C stops; `ddcl fit DATA --out FOLDER --resume` goes on, to the same bits.
"""
EPILOG = """\
examples:
  ddcl fit messages.csv                                     everything guessed
  ddcl fit messages.csv --text body --prototypes 40 --out runs/messages
  ddcl fit tickets.parquet --labels team                    with a head, tested on a tenth of the rows
  ddcl fit messages.csv --levels 40 12 4                    prototypes of prototypes, three levels
  ddcl fit vectors.npy --prototypes 100 --device cuda

exit status: 0 done, 1 failed or interrupted, 2 something in the request or the data must be put right
"""
SHOWN = 8
"""Prototypes in the summary."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("data", type=Path, metavar="DATA", help="file or folder, see above")
    parser.add_argument(
        "--text", metavar="COLUMN", help="column of the texts, or array of an .npz (the longest strings)"
    )
    parser.add_argument(
        "--labels", metavar="COLUMN", help="column of class labels: the bank learns from them, and gets a head"
    )
    parser.add_argument(
        "--encoder", metavar="NAME_OR_FOLDER", help="what embeds the texts (all-MiniLM-L6-v2); see docs/data.md"
    )
    parser.add_argument(
        "--prototypes",
        type=_count_or_auto,
        metavar="K",
        help="how many, or auto (the default): the number whose plateau in the phase diagram is the longest for its "
        "size, up to 32; with --labels two for each class",
    )
    parser.add_argument(
        "--levels",
        type=int,
        nargs="+",
        metavar="N",
        help="a hierarchy: how many levels (each a quarter of the one below), or the prototypes of each, finest first",
    )
    parser.add_argument("--epochs", type=int, metavar="N", help="50, fewer for many rows")
    parser.add_argument("--seed", type=seed, metavar="N", help="of all that is random (0)")
    parser.add_argument("--device", default="cpu", help="cpu (the default), cuda, cuda:1, mps")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="the run folder (runs/NAME-DATE)")
    parser.add_argument("--resume", action="store_true", help="go on with the unfinished run in --out")


def run(arguments: argparse.Namespace) -> int:
    """Fit; 2 if the user can put something right, 1 if something failed or was interrupted."""
    if arguments.resume and arguments.out is None:
        return _complain("--resume: name the folder of the run with --out", 2)
    out = arguments.out or _usual_folder(arguments.data)
    request = Request(
        data=arguments.data,
        out=out,
        text=arguments.text,
        labels=arguments.labels,
        encoder=arguments.encoder,
        prototypes=arguments.prototypes,
        levels=None if arguments.levels is None else tuple(arguments.levels),
        epochs=arguments.epochs,
        seed=arguments.seed,
        device=arguments.device,
        resume=arguments.resume,
    )
    live = _Live()
    try:
        folder = fit(request, Telling(say=_say, watch=live, embedding=True))
    except KeyboardInterrupt:
        live.close()
        return _complain(_after_interruption(request), 1)
    except (BadInputError, ImportError) as error:
        live.close()
        return _complain(str(error), 2)
    except (OSError, RuntimeError) as error:
        live.close()
        return _complain(_failure(error), 1)
    live.close()
    print(summary(folder))
    try:
        print(report_at_the_end(load(folder.path)))
    except KeyboardInterrupt:
        return _complain(_after_interruption(request), 1)
    return 0


def summary(folder: RunFolder) -> str:
    """What came of a run: is it sound, what is in it, where it is and how to load it."""
    result, settings = folder.config["result"], folder.settings
    figures, reading = result["metrics"], result["reading"]
    relative = reading["temperature"] / reading["critical"]
    verdict = "healthy" if result["healthy"] else "not healthy"
    lines = [
        f"{verdict}: {figures['distinct']:.0f} of {settings.prototypes} prototypes stand apart, "
        f"{figures['usage']:.0%} in use",
        *(f"  {trouble}" for trouble in result["troubles"]),
        f"{settings.rows} rows, mean squared distance to the nearest prototype {_short(result['distortion'])}, "
        f"mean share of it {result['confidence']:.0%} (read at {_short(relative)} T_c)",
    ]
    for number, level in enumerate(result.get("levels") or [], start=1):
        lines.append(
            f"level {number}: {level['metrics']['distinct']:.0f} of {level['prototypes']} prototypes stand apart, "
            f"{level['metrics']['usage']:.0%} in use (read at {_short(level['relative_temperature'])} T_c)"
        )
    if result["accuracy"] is not None:
        lines.append(_compared(result["accuracy"], settings.rows))
    elif settings.classes is not None:
        lines.append("no accuracy: every class needs its only row to learn from, so none could be held out")
    lines += ["", "largest prototypes:", *_largest(result["sizes"], settings.rows)]
    lines += [
        "",
        f"written to {folder.path}; to use it:",
        "  import ddcl",
        f"  fitted = ddcl.load({str(folder.path)!r})",
        f"  fitted.predict({'embeddings' if settings.kind == 'embeddings' else '[' + repr('a text') + ']'})",
    ]
    return "\n".join(lines)


def _compared(found: dict[str, Any], rows: int) -> str:
    rival, learned = found["logistic_regression"], found["logistic_regression_rows"]
    beside = "scikit-learn is not here to compare with" if rival is None else f"logistic regression {rival:.1%}"
    if rival is not None and learned < rows / 2:
        beside += f" from {learned} rows"
    return (
        f"accuracy on {found['held_out_rows']} held-out rows: {found['head']:.1%} ({beside}, "
        f"always the most frequent class {found['most_frequent_class']:.1%})"
    )


def _largest(sizes: Sequence[int], rows: int) -> list[str]:
    order = sorted(range(len(sizes)), key=lambda number: -sizes[number])
    shown = [f"  {number:>4}  {sizes[number]:>9} rows  {sizes[number] / rows:6.1%}" for number in order[:SHOWN]]
    return shown + ([f"  and {len(sizes) - SHOWN} more"] if len(sizes) > SHOWN else [])


class _Live:
    """A bar over the epochs with the figures of the last one, for one bank after the other."""

    def __init__(self) -> None:
        self.bar: ProgressBar | None = None

    def __call__(self, progress: Progress, figures: dict[str, float]) -> None:
        if self.bar is None:
            self.bar = ProgressBar(progress.epochs, "epochs", sys.stderr)
        self.bar.note = live_note(figures)
        self.bar(progress.epoch, progress.epochs)
        if progress.epoch == progress.epochs:
            self.close()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None


def live_note(figures: dict[str, float]) -> str:
    """The figures that tell at a glance how a bank does."""
    return (
        f"L {_short(figures['total'])} = R {_short(figures['reconstruction'])} + V {_short(figures['variance'])}, "
        f"T/T_c {_short(figures['relative_temperature'])}, distinct {figures['distinct']:.0f}, "
        f"usage {figures['usage']:.0%}"
    )


def _after_interruption(request: Request) -> str:
    if (request.out / CONFIG).exists() and RunFolder(request.out).state == "done":
        return f"interrupted; the run is done, and `ddcl report {request.out}` writes what is missing to look at it"
    if (request.out / "checkpoint.pt").exists():
        return f"interrupted; `ddcl fit {request.data} --out {request.out} --resume` goes on from the last epoch"
    return "interrupted before the first epoch was done; nothing was written (texts embedded so far are in the cache)"


def _failure(error: Exception) -> str:
    said = " ".join(str(error).split())
    return f"failed: {said or type(error).__name__}"


def _usual_folder(data: Path) -> Path:
    return Path("runs") / f"{data.stem or 'data'}-{datetime.now():%Y%m%d-%H%M%S}"


def seed(given: str) -> int:
    """A seed as the command line takes it."""
    if not given.isdecimal() or int(given) >= 2**63:
        raise argparse.ArgumentTypeError(f"got {given!r}, expected a whole number from 0, below 2^63")
    return int(given)


def _count_or_auto(given: str) -> int | str:
    if given == "auto":
        return given
    try:
        return int(given)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {given!r}, expected a number or auto") from None


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def _complain(sentence: str, status: int) -> int:
    print(f"ddcl fit: {sentence}", file=sys.stderr)
    return status


def _short(value: float | None) -> str:
    return "?" if value is None else f"{value:.3g}"
