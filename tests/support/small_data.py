"""A data folder with a little of everything the reproductions ask for, made on the spot."""

from __future__ import annotations

import numpy as np

SUBJECTS = (
    "orbit rocket launch moon",
    "goalie hockey ice puck",
    "engine car brake tyre",
    "faith church prayer bible",
    "disk drive memory board",
    "doctor patient drug dose",
    "senate vote law tax",
    "guitar song album tune",
)
VERDICTS = ("dull bland slow empty", "bright warm funny moving")


def write_small_data(folder, seed=0):
    """Texts, pictures, and nothing that a test would wait for."""
    random = np.random.default_rng(seed)
    _texts(folder / "20newsgroups", SUBJECTS, random, {"train": 160, "test": 40})
    for name in ("sst2", "imdb"):
        _texts(folder / name, VERDICTS, random, {"train": 80, "test": 40})
    _pictures(folder / "cifar10", (32, 32, 3), random, {**{f"train_{i}": 32 for i in range(5)}, "test": 32})
    _pictures(folder / "mnist", (28, 28), random, {"train": 200, "test": 40})
    return folder


def _texts(folder, subjects, random, splits):
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    folder.mkdir(parents=True)
    for split, count in splits.items():
        labels = [i % len(subjects) for i in range(count)]
        texts = [" ".join(random.choice(subjects[label].split(), 9)) for label in labels]
        names = [subjects[label].split()[0] for label in labels]
        parquet.write_table(arrow.table({"text": texts, "label": labels, "name": names}), folder / f"{split}.parquet")


def _pictures(folder, shape, random, splits):
    folder.mkdir(parents=True)
    for split, count in splits.items():
        labels = np.arange(count) % 10
        # a level of grey for each class, and noise
        levels = 25 * labels.reshape(-1, *(1,) * len(shape))
        pixels = np.clip(levels + random.normal(0, 20, (count, *shape)), 0, 255)
        np.savez(folder / f"{split}.npz", x=pixels.astype(np.uint8), y=labels.astype(np.int64))
