"""States of every token of texts, kept on disk: too many to hold in memory, read where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddcl.data.encoders import Encoder
from ddcl.data.encoding import Encoding, Precision, check_length, check_texts, key, resolve
from ddcl.data.progress import Report, reporting
from ddcl.data.shards import ShardedArrays, cache_folder

PIECE = 512
"""Texts between two times that work is saved, and in memory at once."""
ARRAYS = ("states", "ids", "lengths")


class TokenBatch(NamedTuple):
    """Texts as padded states."""

    x: Tensor
    """float32, (B, T, dim), 0 beyond a text's end; T is the longest of these texts."""
    mask: Tensor
    """True where a token stands, (B, T)."""


class TokenStates:
    """The states of texts' tokens, mapped into memory from their files.

    Args:
        states: float16, (tokens in all, dim), text after text.
        ids: the tokens' numbers in the vocabulary, (tokens in all,).
        lengths: tokens of each text, (N,).
        encoder: what made them; its tokenizer names the tokens.
    """

    def __init__(self, states: np.ndarray, ids: np.ndarray, lengths: np.ndarray, encoder: Encoder) -> None:
        self.states, self.ids, self.encoder = states, ids, encoder
        self.lengths = torch.from_numpy(np.array(lengths, dtype=np.int64))
        self.offsets = torch.cat([torch.zeros(1, dtype=torch.int64), self.lengths.cumsum(0)])
        """Where each text begins, and at last where the last one ends, (N + 1,)."""

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def dim(self) -> int:
        """Of a state."""
        return int(self.states.shape[1])

    def batch(self, indices: Sequence[int] | Tensor) -> TokenBatch:
        """The states of some texts, read from disk."""
        rows = torch.as_tensor(indices, dtype=torch.int64)
        lengths = self.lengths[rows]
        longest = int(lengths.max()) if len(rows) else 0
        mask = torch.arange(longest) < lengths.unsqueeze(1)
        places = (self.offsets[rows].unsqueeze(1) + torch.arange(longest))[mask]
        x = torch.zeros(len(rows), longest, self.dim)
        x[mask] = torch.from_numpy(self.states[places.numpy()].astype(np.float32))
        return TokenBatch(x, mask)

    def tokens(self, index: int) -> list[str]:
        """The tokens of a text, as the encoder's tokenizer writes them."""
        start, stop = int(self.offsets[index]), int(self.offsets[index + 1])
        found: list[str] = self.encoder.tokenizer.convert_ids_to_tokens(self.ids[start:stop].tolist())
        return found


def token_states(
    texts: Sequence[str],
    *,
    encoder: str | Path | Encoder | None = None,
    max_tokens: int = 128,
    layer: int = -1,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
    precision: Precision = "float32",
    progress: bool | Report = True,
) -> TokenStates:
    """The state of every token, special tokens included, of each text in one layer of the encoder, kept as float16.

    Cached and resumed as :func:`embed` does. The files hold two bytes for each number of each token that is there (20
    Newsgroups cut at 64 tokens, 384 dimensions: 0.5 GB), twice that while they are strung together.

    Args:
        texts: what to encode.
        encoder: a name or folder for :func:`load_encoder`, or what it returned; None: all-MiniLM-L6-v2.
        max_tokens: longer texts are cut.
        layer: 0 the states before the first layer, 1 the first, ..., or from the end: -1 the last.
        batch_size: texts at once; they are sorted by length, so that little is spent on padding.
        device: where the encoder runs.
        precision: the encoder's matrix products.
        progress: True: a bar on stderr; False: nothing; or a function that gets the number of texts done and in all.
    """
    check_texts(texts, max_tokens, precision, batch_size)
    chosen = resolve(encoder)
    from_end = _from_end(layer, chosen)
    folder = cache_folder() / "token_states" / key(texts, chosen.fingerprint, max_tokens, from_end)
    arrays = ShardedArrays(folder, ARRAYS, making=precision)
    if not arrays.complete():
        check_length(chosen, max_tokens)
        encoding = Encoding(chosen, max_tokens, batch_size, device, precision, layer=from_end)
        _compute(texts, encoding, arrays, progress)
    found = TokenStates(arrays.open("states"), arrays.open("ids"), arrays.open("lengths"), chosen)
    if len(found) != len(texts) or not len(found.states) == len(found.ids) == int(found.offsets[-1]):
        raise ValueError(f"the arrays in {folder} do not fit together or these texts: remove them")
    return found


def _from_end(layer: int, encoder: Encoder) -> int:
    """One number for each layer, so that one layer has one cache entry."""
    if layer == -1:
        return layer
    states = encoder.layers + 1
    if not -states <= layer < states:
        raise ValueError(f"layer must be in 0 to {encoder.layers}, or -1 to {-states} from the end; got {layer}")
    return layer - states if layer >= 0 else layer


def _compute(texts: Sequence[str], encoding: Encoding, arrays: ShardedArrays, progress: bool | Report) -> None:
    with reporting(progress, len(texts), "texts") as report:

        def make(start: int, stop: int) -> dict[str, np.ndarray]:
            states: list[np.ndarray] = [np.empty(0)] * (stop - start)
            ids: list[list[int]] = [[]] * (stop - start)
            done = start
            for batch in encoding.batches(texts[start:stop]):
                half = batch.states.half().cpu().numpy()
                for i, row in enumerate(batch.rows):
                    ids[row] = batch.ids[i]
                    # a copy: a view would keep the padding of the whole batch alive
                    states[row] = half[i, : len(ids[row])].copy()
                done += len(batch.rows)
                report(done, len(texts))
            lengths = np.array([len(tokens) for tokens in ids], dtype=np.int64)
            flat = np.array([token for tokens in ids for token in tokens], dtype=np.int32)
            return {"states": np.concatenate(states), "ids": flat, "lengths": lengths}

        report(arrays.done(len(texts), PIECE), len(texts))
        arrays.fill(len(texts), PIECE, make, encoding.note() | {"texts": len(texts), "dtype": "float16"})
