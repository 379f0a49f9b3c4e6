"""Small finished runs to explore: texts, some of them hostile, with labels; and embeddings without."""

from __future__ import annotations

import json

import numpy as np
from tiny_encoder import write_encoder

from ddcl.cli import main

SCRIPT = "<script>document.title = 'taken over'</script><img src=x onerror=alert(1)> my card"
RIGHT_TO_LEFT = "הכרטיס שלי \u202e card"
QUOTED = """it's "quoted" & <b>bold</b> \\ \u0000\u001b[31m card"""
LONG = "card " * 20_000
HOSTILE = (SCRIPT, RIGHT_TO_LEFT, QUOTED, LONG)
PLAIN = (
    "my card was declined",
    "the cat sat",
    "my card",
    "the cats sat the cats",
    "was my card declined",
    "sat the cat",
    "declined declined",
    "the the cat",
)
TEXTS = tuple(PLAIN[number % len(PLAIN)] + " the" * (number // len(PLAIN)) for number in range(56)) + HOSTILE


def label_of(text: str) -> str:
    return "<i>home</i>" if "cat" in text else "bank"


def text_run(folder):
    """60 texts in 5 prototypes with a head for 2 classes, in a folder of their own."""
    encoder = write_encoder(folder / "encoder")
    data = folder / "messages.jsonl"
    lines = [json.dumps({"message": text, "place": label_of(text)}) for text in TEXTS]
    data.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return _fitted(data, folder / "messages", "--encoder", encoder, "--labels", "place", "--prototypes", 5)


def vector_run(folder):
    """90 embeddings in 3 clusters far apart."""
    data = folder / "vectors.npy"
    random = np.random.default_rng(0)
    np.save(data, (9 * np.eye(3, 7)[np.arange(90) % 3] + random.normal(size=(90, 7))).astype(np.float32))
    return _fitted(data, folder / "vectors", "--prototypes", 3)


def _fitted(data, out, *options):
    assert main(["fit", str(data), "--out", str(out), "--epochs", "3", *map(str, options)]) == 0
    return out
