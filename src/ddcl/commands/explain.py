"""``ddcl explain``: what the prototypes of a run are, why a text is read as it is, and whether that is true."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddcl.commands.fit import seed
from ddcl.data.progress import progress_bar
from ddcl.data.shards import whole_file
from ddcl.experiments.environment import environment
from ddcl.explain.deletion import DeletionTest
from ddcl.explain.markdown import check_markdown, explanation_markdown, vocabulary_markdown
from ddcl.explain.outputs import Explanation, PrototypeCard, Vocabulary
from ddcl.explain.plain import check_text, explanation_text, vocabulary_text
from ddcl.fitting import BadInputError, Fitted, load
from ddcl.fitting.faithfulness import ROWS, check
from ddcl.fitting.formats import decoded, read_text

DESCRIPTION = """\
Explain a run of `ddcl fit`.

Without TEXT, the vocabulary: each prototype with the terms that tell its texts from the others' (class-based tf-idf),
its most typical texts, how many rows it is the nearest of, how many of those carry one label, which prototypes are
near; then the rows whose mixture is the most undecided.

With TEXT, for each: its mixture of prototypes, the head's class if there is one, the words that carried it (by how
much the share of the leading prototype falls without the word) and the nearest rows of the data that was fitted.

With --check, the deletion test: is more lost without the prototype or the words that explanations name than without
random ones? Each comparison with a 95 % interval; "faithful" only if the interval is above 0.
"""
EPILOG = """\
examples:
  ddcl explain runs/messages                                the vocabulary
  ddcl explain runs/messages --prototype 3 17               two cards of it
  ddcl explain runs/messages "my card was declined"
  ddcl explain runs/messages --file new.txt --format json --out explained.json
  ddcl explain runs/vectors --rows 0 41                     rows of embeddings, by their number from 0
  ddcl explain runs/messages --check

exit status: 0 done, 1 failed or interrupted, 2 something in the request must be put right
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder that `ddcl fit` wrote")
    parser.add_argument("texts", nargs="*", default=[], metavar="TEXT", help="what to explain; none: the vocabulary")
    parser.add_argument("--file", metavar="FILE", help="explain a text for each line of this file; - is standard input")
    parser.add_argument("--rows", nargs="+", type=int, metavar="N", help="explain rows of the data that was fitted")
    parser.add_argument("--prototype", nargs="+", type=int, metavar="N", help="show the cards of these alone")
    parser.add_argument("--check", action="store_true", help="the deletion test")
    parser.add_argument("--format", choices=("text", "json", "markdown"), default="text", help="text is the default")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write there instead of to the screen")
    parser.add_argument("--examples", type=int, metavar="N", help="rows to show (3 nearest ones; 5 typical ones)")
    parser.add_argument("--no-words", action="store_true", help="leave out the words, which take most of the time")
    parser.add_argument("--sample", type=int, default=ROWS, metavar="N", help=f"--check: rows to draw ({ROWS})")
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="--check: of the draws (0)")
    parser.add_argument("--device", default="cpu", help="cpu (the default), cuda, cuda:1, mps")


def run(arguments: argparse.Namespace) -> int:
    """Explain; 2 if the user can put something right, 1 if something failed or was interrupted."""
    try:
        _write(_answer(arguments), arguments.out)
    except KeyboardInterrupt:
        return _complain("interrupted; nothing was written", 1)
    except (BadInputError, ImportError) as error:
        return _complain(str(error), 2)
    except BrokenPipeError:
        raise
    except (OSError, RuntimeError) as error:
        return _complain(f"failed: {' '.join(str(error).split()) or type(error).__name__}", 1)
    return 0


def _answer(arguments: argparse.Namespace) -> str:
    _check_request(arguments)
    fitted = _loaded(arguments)
    if arguments.check:
        return _checked(fitted, arguments)
    if arguments.rows is not None:
        return _of_rows(fitted, arguments)
    if arguments.texts or arguments.file is not None:
        texts = [*map(_sound, arguments.texts), *_lines(arguments.file)]
        return _explained(fitted, texts, arguments)
    return _vocabulary(fitted, arguments)


def _check_request(arguments: argparse.Namespace) -> None:
    asked = {
        "TEXT or --file": bool(arguments.texts) or arguments.file is not None,
        "--rows": arguments.rows is not None,
        "--prototype": arguments.prototype is not None,
        "--check": arguments.check,
    }
    together = [name for name, given in asked.items() if given]
    if len(together) > 1:
        raise BadInputError(f"{' and '.join(together)} ask for different things: give one of them")
    if arguments.examples is not None and arguments.examples < 0:
        raise BadInputError(f"--examples: got {arguments.examples}, expected 0 or more")
    if arguments.out is not None and arguments.out.is_dir():
        raise BadInputError(f"--out: {arguments.out} is a folder, expected a file")


def _loaded(arguments: argparse.Namespace) -> Fitted:
    try:
        return load(arguments.run, device=arguments.device)
    except (RuntimeError, AssertionError) as error:
        if arguments.device == "cpu":
            raise
        raise BadInputError(f"--device: {arguments.device!r} is not on this machine") from error


def _vocabulary(fitted: Fitted, arguments: argparse.Namespace) -> str:
    examples = 5 if arguments.examples is None else arguments.examples
    found: Vocabulary = fitted.vocabulary(examples=examples, outliers=0 if arguments.prototype is not None else 10)
    cards = sorted(found.cards, key=lambda card: -card.size)
    if arguments.prototype is not None:
        cards = _chosen(found, arguments.prototype)
    if arguments.format == "json":
        shown = found.as_json()
        if arguments.prototype is not None:
            shown["cards"] = [card.as_json() for card in cards]
        return _json(shown)
    return (vocabulary_markdown if arguments.format == "markdown" else vocabulary_text)(found, cards)


def _chosen(vocabulary: Vocabulary, numbers: Sequence[int]) -> list[PrototypeCard]:
    for number in numbers:
        if not 0 <= number < len(vocabulary.cards):
            raise BadInputError(f"--prototype: got {number}, expected numbers from 0 to {len(vocabulary.cards) - 1}")
    return [vocabulary.cards[number] for number in numbers]


def _explained(fitted: Fitted, texts: Sequence[str], arguments: argparse.Namespace) -> str:
    if not texts:
        raise BadInputError(f"--file: {arguments.file} holds no text")
    found = []
    with progress_bar(len(texts), "texts", show=len(texts) > 10) as report:
        for done, text in enumerate(texts, start=1):
            found += fitted.explain(text, examples=_examples(arguments), words=not arguments.no_words)
            report(done, len(texts))
    return _shown(found, [None] * len(found), arguments)


def _of_rows(fitted: Fitted, arguments: argparse.Namespace) -> str:
    found = fitted.explainer.explain_rows(
        arguments.rows, examples=_examples(arguments), shares=3, words=not arguments.no_words
    )
    return _shown(found, [f"row {row}" for row in arguments.rows], arguments)


def _shown(found: Sequence[Explanation], called: Sequence[str | None], arguments: argparse.Namespace) -> str:
    if arguments.format == "json":
        return _json([one.as_json() for one in found])
    if arguments.format == "markdown":
        return "\n\n".join(explanation_markdown(one, name) for one, name in zip(found, called, strict=True))
    mark = arguments.out is None and sys.stdout.isatty() and "NO_COLOR" not in os.environ
    return "\n\n".join(explanation_text(one, mark=mark, called=name) for one, name in zip(found, called, strict=True))


def _checked(fitted: Fitted, arguments: argparse.Namespace) -> str:
    command = f"ddcl explain RUN --check --sample {arguments.sample} --seed {arguments.seed}"
    origin = environment(command)
    with progress_bar(arguments.sample, "texts") as report:
        found: DeletionTest = check(fitted, rows=arguments.sample, seed=arguments.seed, report=report)
    if arguments.format == "json":
        settings = fitted.settings
        fit = {
            name: getattr(settings, name)
            for name in ("digest", "rows", "encoder", "prototypes", "seed", "label_column")
        }
        return _json({**found.as_json(), "run": fit, "environment": origin})
    return (check_markdown if arguments.format == "markdown" else check_text)(found)


def _examples(arguments: argparse.Namespace) -> int:
    return 3 if arguments.examples is None else int(arguments.examples)


def _lines(file: str | None) -> list[str]:
    """The texts of a file, one on each line that is not empty."""
    if file is None:
        return []
    if file == "-":
        text = decoded(sys.stdin.buffer.read(), "standard input")
    else:
        path = Path(file).expanduser()
        if not path.is_file():
            raise BadInputError(f"--file: there is no file {path}")
        text = read_text(path)
    return [line.removesuffix("\r") for line in text.split("\n") if line.strip()]


def _sound(text: str) -> str:
    """Bytes on the command line that are no UTF-8 become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _json(shown: Any) -> str:
    # escapes for all but ASCII: what stands in texts must not reach a terminal as it is
    return json.dumps(shown, indent=1)


def _write(shown: str, out: Path | None) -> None:
    if out is not None:
        with whole_file(out) as file:
            file.write(shown.encode("utf-8") + b"\n")
        print(f"written to {out}", file=sys.stderr)
        return
    encoding = sys.stdout.encoding or "utf-8"  # a terminal may know fewer letters than the texts have
    print(shown.encode(encoding, "replace").decode(encoding))


def _complain(sentence: str, status: int) -> int:
    print(f"ddcl explain: {sentence}", file=sys.stderr)
    return status
