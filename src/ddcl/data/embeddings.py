"""Texts to vectors by a frozen encoder, kept on disk so that it is done once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ddcl.data.encoders import Encoder
from ddcl.data.encoding import Encoded, Encoding, Precision, check_length, check_texts, key, resolve
from ddcl.data.progress import Report, reporting
from ddcl.data.shards import ShardedArrays, cache_folder

Pooling = Literal["mean", "cls"]
POOLINGS = ("mean", "cls")
PIECE = 4096
"""Texts between two times that work is saved."""


class EmbeddingFiles(NamedTuple):
    """Where the vectors of some texts lie, or would lie: raw poolings, float32, (N, dim)."""

    mean: Path
    cls: Path
    note: Path
    """How they were made."""


def embed(
    texts: Sequence[str],
    *,
    encoder: str | Path | Encoder | None = None,
    pooling: Pooling = "mean",
    normalise: bool = True,
    max_tokens: int = 128,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
    precision: Precision = "float32",
    progress: bool | Report = True,
    keep: bool = True,
) -> Tensor:
    """One vector for each text from the encoder's last layer, float32, (N, dim).

    Both poolings are computed in one pass and kept as they are, so that asking for the other later costs nothing. What
    was computed before is not computed again: the cache (``DDCL_CACHE``) goes by the texts, the encoder's files and
    ``max_tokens``, not by device or precision. Work that was interrupted goes on where it was last saved.

    Args:
        texts: what to embed.
        encoder: a name or folder for :func:`load_encoder`, or what it returned; None: all-MiniLM-L6-v2.
        pooling: "mean" over the tokens, or "cls", the first token's state.
        normalise: to length 1.
        max_tokens: longer texts are cut.
        batch_size: texts at once; they are sorted by length, so that little is spent on padding.
        device: where the encoder runs.
        precision: the encoder's matrix products; pooling is in float32.
        progress: True: a bar on stderr; False: nothing; or a function that gets the number of texts done and in all.
        keep: False: the cache is neither read nor written, as for a sentence that someone types.
    """
    check_texts(texts, max_tokens, precision, batch_size)
    if pooling not in POOLINGS:
        raise ValueError(f"pooling must be one of {', '.join(POOLINGS)}; got {pooling!r}")
    chosen = resolve(encoder)
    arrays = _arrays(texts, chosen.fingerprint, max_tokens, precision)
    encoding = Encoding(chosen, max_tokens, batch_size, device, precision)
    if not keep:
        check_length(chosen, max_tokens)
        with reporting(progress, len(texts), "texts") as report:
            raw = _pooled(texts, encoding, report, 0, len(texts))[pooling]
    else:
        if not arrays.complete():
            check_length(chosen, max_tokens)
            _compute(texts, encoding, arrays, progress)
        raw = arrays.open(pooling)
    if len(raw) != len(texts):
        raise ValueError(f"{arrays.path(pooling)} has {len(raw)} rows for {len(texts)} texts: remove it")
    found = torch.from_numpy(np.array(raw, dtype=np.float32))
    return F.normalize(found, dim=-1) if normalise else found


def embedding_files(
    texts: Sequence[str], encoder: str | Path | Encoder | None = None, max_tokens: int = 128
) -> EmbeddingFiles:
    """Where :func:`embed` keeps the vectors of these texts, whether they are there or not.

    Args:
        texts: all of them, in their order.
        encoder: as for :func:`embed`, or the fingerprint of an encoder that is not on this machine.
        max_tokens: as for :func:`embed`.
    """
    arrays = _arrays(texts, _fingerprint(encoder), max_tokens)
    return EmbeddingFiles(arrays.path("mean"), arrays.path("cls"), arrays.note)


def import_embeddings(
    texts: Sequence[str],
    *,
    mean: Tensor | np.ndarray,
    cls: Tensor | np.ndarray,
    encoder: str | Path | Encoder | None = None,
    max_tokens: int = 128,
    note: Mapping[str, Any],
) -> EmbeddingFiles:
    """Put vectors that were computed elsewhere where :func:`embed` looks for them.

    Args:
        texts: all of them, in the order of the vectors.
        mean: the mean of each text's states, not normalised, (N, dim).
        cls: the state of each text's first token, (N, dim).
        encoder: what they were computed by, as for :func:`embedding_files`.
        max_tokens: where texts were cut.
        note: who made them, with what: device, precision. It is kept beside them.
    """
    given = {name: np.asarray(torch.as_tensor(array).float().cpu()) for name, array in (("mean", mean), ("cls", cls))}
    for name, array in given.items():
        if array.ndim != 2 or len(array) != len(texts) or array.shape != given["mean"].shape:
            raise ValueError(f"{name} must be ({len(texts)}, dim), as mean and cls alike; got {array.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} holds numbers that are not finite")
    fingerprint = _fingerprint(encoder)
    arrays = _arrays(texts, fingerprint, max_tokens)
    arrays.store(given, {"fingerprint": fingerprint, "max_tokens": max_tokens, "imported": dict(note)})
    return embedding_files(texts, fingerprint, max_tokens)


def _compute(texts: Sequence[str], encoding: Encoding, arrays: ShardedArrays, progress: bool | Report) -> None:
    with reporting(progress, len(texts), "texts") as report:
        report(arrays.done(len(texts), PIECE), len(texts))
        make = partial(_pooled, texts, encoding, report)
        arrays.fill(len(texts), PIECE, make, encoding.note() | {"texts": len(texts)})


def _pooled(texts: Sequence[str], encoding: Encoding, report: Report, start: int, stop: int) -> dict[str, np.ndarray]:
    """Both poolings of some of the texts."""
    found: dict[str, np.ndarray] = {}
    done = start
    for batch in encoding.batches(texts[start:stop]):
        for name, part in zip(POOLINGS, _pool(batch), strict=True):
            whole = found.setdefault(name, np.empty((stop - start, part.shape[-1]), dtype=np.float32))
            whole[batch.rows] = part.cpu().numpy()
        done += len(batch.rows)
        report(done, len(texts))
    return found


def _pool(batch: Encoded) -> tuple[Tensor, Tensor]:
    states = batch.states * batch.mask.unsqueeze(-1)
    # a text of no tokens, which some tokenizers make of an empty one, is 0
    return states.sum(1) / batch.mask.sum(1, keepdim=True).clamp(min=1), states[:, 0]


def _arrays(texts: Sequence[str], fingerprint: str, max_tokens: int, precision: str = "") -> ShardedArrays:
    folder = cache_folder() / "embeddings" / key(texts, fingerprint, max_tokens)
    return ShardedArrays(folder, POOLINGS, making=precision)


def _fingerprint(encoder: str | Path | Encoder | None) -> str:
    if isinstance(encoder, str) and re.fullmatch("[0-9a-f]{32}", encoder):
        return encoder
    return resolve(encoder).fingerprint
