"""``ddcl demo``: the main job on data that come with the package, beside the usual baselines."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from ddcl.commands import fit
from ddcl.data import SETS, TextSet, embed, load_texts
from ddcl.data.folder import find_files
from ddcl.data.shards import cache_folder, whole_file
from ddcl.fitting import BadInputError, Fitted, load
from ddcl.fitting.classifying import logistic_regression
from ddcl.fitting.formats import parquet_packages
from ddcl.rivals.clusters import cluster_scores, kmeans_baseline

DESCRIPTION = """\
The main job from end to end, without a network: customer messages of a bank (Banking77, which comes with the package)
are embedded by all-MiniLM-L6-v2, `ddcl fit` finds a bank of prototypes in them without labels, and once more with
labels and a head; both are compared with the usual baselines on the test messages of the set, which nothing has seen
before. The first time, much of the time goes into the embeddings, which are kept in the cache.
"""
EPILOG = """\
Banking77: Casanueva, Temčinas, Gerz, Henderson and Vulić, Efficient Intent Detection with Dual Sentence Encoders
(2020), PolyAI, CC BY 4.0.

exit status: 0 done, 1 failed or interrupted, 2 something must be put right first
"""
NAME = "banking77"
TRAINED = 60
"""Training messages of each intent, so that two cores are done in three minutes; --full takes all."""
QUICK_CLASSES, QUICK_TRAIN, QUICK_TEST = 6, 20, 10
"""Of --quick: intents, and messages of each."""
QUICK_EPOCHS = 10
SHOWN = 5
"""Prototypes that are shown."""
WIDTH = 96


class Messages(NamedTuple):
    """What the demo works on."""

    train: TextSet
    test: TextSet
    file: Path
    """The training messages, as `ddcl fit` takes them."""


class Vectors(NamedTuple):
    """Both poolings of some messages, of length 1."""

    mean: np.ndarray
    cls: np.ndarray


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where the two runs go (runs/demo-DATE)")
    parser.add_argument("--seed", type=fit.seed, default=0, metavar="N", help="of all that is random (0)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--full", action="store_true", help=f"all training messages, not {TRAINED} of each intent")
    size.add_argument(
        "--quick", action="store_true", help=f"{QUICK_CLASSES} intents and {QUICK_TRAIN} messages of each: some seconds"
    )


def run(arguments: argparse.Namespace) -> int:
    """The demo; 2 if the user can put something right, 1 if something failed or was interrupted."""
    out = arguments.out or Path("runs") / f"demo-{datetime.now():%Y%m%d-%H%M%S}"
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        return _complain(f"{out} exists already: choose another --out", 2)
    began = time.monotonic()
    try:
        messages = _messages(full=arguments.full, quick=arguments.quick)
        _say(
            f"{NAME}: {len(messages.train.texts)} of {SETS[NAME].rows['train']} training messages, "
            f"{len(messages.test.texts)} test messages, {len(set(messages.train.labels))} intents; embedding them"
        )
        train, test = (_embedded(part.texts) for part in (messages.train, messages.test))
        embedded = time.monotonic()
        folders = {"without labels": out / "clusters", "with labels": out / "head"}
        options = {
            "without labels": ["--prototypes", str(len(set(messages.train.labels)))],
            "with labels": ["--labels", "name"],
        }
        for kind, folder in folders.items():
            asked = [str(messages.file), "--text", "text", *options[kind], "--seed", str(arguments.seed)]
            asked += ["--epochs", str(QUICK_EPOCHS)] if arguments.quick else []
            if status := _fit([*asked, "--out", str(folder)]):
                return status
        clusters, head = (load(folder) for folder in folders.values())
        _say("\ncomparing on the test messages")
        tables = [*_classified(messages, train, test, head), "", *_clustered(messages, train, test, clusters)]
        said = [*tables, "", *_shown(clusters), "", *_whereabouts(clusters, head)]
    except KeyboardInterrupt:
        return _complain("interrupted; texts embedded so far are in the cache", 1)
    except (FileNotFoundError, ImportError, BadInputError) as error:
        return _complain(str(error), 2)
    except (OSError, RuntimeError) as error:
        return _complain(f"failed: {' '.join(str(error).split()) or type(error).__name__}", 1)
    print("\n".join(["", *said]))
    done = time.monotonic()
    print(f"\n{done - began:.0f} s, of which {embedded - began:.0f} s for the embeddings, which the cache now holds")
    return 0


def _messages(*, full: bool, quick: bool) -> Messages:
    train, test = (load_texts(NAME, split) for split in ("train", "test"))
    if full:
        files = find_files(SETS[NAME], "train")
        assert files is not None, "it was read just now"
        return Messages(train, test, files[0])
    if quick:
        train, test = _some(train, QUICK_CLASSES, QUICK_TRAIN), _some(test, QUICK_CLASSES, QUICK_TEST)
    else:
        train = _some(train, len(train.names), TRAINED)
    pyarrow, parquet = parquet_packages()
    file = cache_folder() / "demo" / f"{NAME}-{len(train.texts)}.parquet"
    with whole_file(file) as writing:
        names = [train.names[label] for label in train.labels]
        parquet.write_table(pyarrow.table({"text": train.texts, "name": names}), writing)
    return Messages(train, test, file)


def _some(texts: TextSet, intents: int, of_each: int) -> TextSet:
    """The first messages of the first intents."""
    labels = np.asarray(texts.labels)
    rows = np.sort(np.concatenate([np.flatnonzero(labels == label)[:of_each] for label in range(intents)]))
    return TextSet([texts.texts[row] for row in rows], labels[rows].tolist(), texts.names)


def _embedded(texts: Sequence[str]) -> Vectors:
    return Vectors(embed(texts).numpy(), embed(texts, pooling="cls", progress=False).numpy())


def _fit(asked: list[str]) -> int:
    """`ddcl fit` itself, as a user would call it; its summary goes where its progress goes, the results come last."""
    _say(f"\n$ ddcl fit {shlex.join(asked)}")
    parser = argparse.ArgumentParser(prog="ddcl fit")
    fit.add_arguments(parser)
    with redirect_stdout(sys.stderr):
        return fit.run(parser.parse_args(asked))


def _classified(messages: Messages, train: Vectors, test: Vectors, head: Fitted) -> list[str]:
    """Accuracy on the test messages: the head beside logistic regression on either pooling."""
    right, learned = np.asarray(messages.test.labels), np.asarray(messages.train.labels)
    predicted = [messages.test.names.index(str(name)) for name in head.predict(test.mean)]
    rows = {f"head on {head.settings.prototypes} prototypes (mean pooling)": np.asarray(predicted)}
    for name, pooled, unseen in (("mean pooling", train.mean, test.mean), ("CLS token", train.cls, test.cls)):
        rows[f"logistic regression on the {name}"] = logistic_regression(pooled, learned)(unseen)
    return [
        f"{f'with labels, {len(right)} test messages':<52}accuracy",
        *(f"  {name:<50}{np.mean(found == right):>8.1%}" for name, found in rows.items()),
    ]


def _clustered(messages: Messages, train: Vectors, test: Vectors, clusters: Fitted) -> list[str]:
    """How well nearest prototypes match the intents, beside k-means with as many centres."""
    number, labels = clusters.settings.prototypes, messages.test.labels
    rival = kmeans_baseline(torch.from_numpy(train.mean), number, clusters.settings.seed)
    rows = {
        f"bank of {number} prototypes": np.asarray(clusters.predict(test.mean)),
        f"k-means, {number} centres, 10 restarts": rival.predict(test.mean),
    }
    lines = [f"{'without labels, the same messages':<52}     ACC     NMI"]
    for name, found in rows.items():
        scores = cluster_scores(found, labels)
        lines.append(f"  {name:<50}{scores['acc']:>8.1%}{scores['nmi']:>8.3f}")
    return lines


def _shown(clusters: Fitted) -> list[str]:
    """The largest prototypes with their most typical messages."""
    cards = sorted(clusters.vocabulary().cards, key=lambda card: -card.size)[:SHOWN]
    lines = ["the largest prototypes found without labels:"]
    for card in cards:
        lines.append(f"  {card.number}: {card.title} ({card.size} messages)")
        lines += [f"      {_clipped(str(example.text))}" for example in card.examples[:2]]
    return lines


def _whereabouts(clusters: Fitted, head: Fitted) -> list[str]:
    lines = []
    for kind, path in (("without labels", clusters.folder.path), ("with labels", head.folder.path)):
        page = path / "report.html"
        lines.append(f"{kind + ':':<16}{path}" + (f", to look at: {page}" if page.exists() else ""))
    return [
        *lines,
        "to use the head:",
        "  import ddcl",
        f"  fitted = ddcl.load({str(head.folder.path)!r})",
        '  fitted.predict(["I have lost my card"])',
    ]


def _clipped(text: str) -> str:
    shown = " ".join(text.split())
    return shown if len(shown) <= WIDTH else shown[: WIDTH - 3] + "..."


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def _complain(sentence: str, status: int) -> int:
    print(f"ddcl demo: {sentence}", file=sys.stderr)
    return status
