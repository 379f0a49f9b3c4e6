"""An exported program held against the fitted model it was made from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ddcl.fitting.errors import BadInputError
from ddcl.fitting.exporting.files import Run
from ddcl.fitting.exporting.programs import What

if TYPE_CHECKING:
    from ddcl.fitting.fitted import Fitted

SIZES = (1, 7, 64)
"""Rows in the batches that are run: one, an odd number, many."""
ROUNDING = {"readout": 2.0**-23, "whole": 2.0**-20}
"""How far rounding moves each number of an embedding, in units of the embedding's length: the last place of float32, or
more where the layers of an encoder add theirs."""
PROBES, TIMES = 4, 8.0
LEAST, MOST = 1e-6, 1e-3
"""Of shares and probabilities: what is always allowed, and what is never exceeded."""
_SEED = 0


class MismatchError(RuntimeError):
    """An exported program does not compute what the fitted model does; the message is one sentence."""


class Difference(NamedTuple):
    """How far an output is from the original."""

    output: str
    found: float
    """The largest absolute difference; of ``prototype``, by how much its share falls short of the largest."""
    allowed: float


class Checked(NamedTuple):
    """What came of a check."""

    differences: tuple[Difference, ...]
    rows: int
    own: bool
    """Whether the rows were of the run's own data; otherwise they were made up."""


class _Batch(NamedTuple):
    inputs: dict[str, Tensor]
    embeddings: Tensor
    """What the fitted model reads."""


def check(fitted: Fitted, what: What, run: Run) -> Checked:
    """Run an exported program on rows of the run and compare; too large a difference raises :class:`MismatchError`.

    What is allowed of an output is a few times as much as the original itself moves when its embeddings move at random
    by :data:`ROUNDING`: programs that add the same numbers in another order differ by about as much. The colder the
    bank is read, the more that is; but no more than 0.001, so that a check never passes everything.

    Args:
        fitted: the original, on the CPU.
        what: which program it is.
        run: the program, as its file gives it.
    """
    texts = what == "whole"
    batches, own = (_text_batches if texts else _embedding_batches)(fitted)
    allowed = _allowed(fitted, torch.cat([batch.embeddings for batch in batches]), ROUNDING[what])
    largest = dict.fromkeys(allowed, 0.0)
    for batch in batches:
        found, expected = run(batch.inputs), _original(fitted, batch.embeddings)
        for name, difference in _differences(found, expected).items():
            # a comparison that is false for NaN keeps NaN
            largest[name] = largest[name] if difference <= largest[name] else difference
    differences = tuple(Difference(name, largest[name], allowed[name]) for name in largest)
    for one in differences:
        if not one.found <= one.allowed:
            raise MismatchError(
                f"the exported program differs from the original: {one.output} by {one.found:.2g}, where float32 "
                f"rounding explains {one.allowed:.2g}"
            )
    return Checked(differences, sum(len(batch.embeddings) for batch in batches), own)


def _original(fitted: Fitted, z: Tensor) -> dict[str, Tensor]:
    found = {"mixture": fitted.mixture(z), "centroid": fitted.transform(z)}
    return found if fitted.classes is None else found | {"probabilities": fitted.probabilities(z)}


def _differences(found: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, float]:
    if set(found) != {*expected, "prototype"}:
        raise MismatchError(f"the exported program gives {sorted(found)}, expected {sorted([*expected, 'prototype'])}")
    shares, nearest = expected["mixture"], found["prototype"]
    shapes = {**{name: tensor.shape for name, tensor in expected.items()}, "prototype": shares.shape[:1]}
    for name, shape in shapes.items():
        if found[name].shape != shape:
            raise MismatchError(
                f"the exported program gives {name} of shape {tuple(found[name].shape)}, expected {tuple(shape)}"
            )
    if not bool(((nearest >= 0) & (nearest < shares.shape[1])).all()):
        raise MismatchError("the exported program names a prototype that is not there")
    largest = {name: float((found[name] - tensor).abs().max()) for name, tensor in expected.items()}
    # of two that are as near as each other either may be named
    return largest | {"prototype": float((shares.amax(-1) - shares.gather(1, nearest[:, None])[:, 0]).max())}


def _allowed(fitted: Fitted, z: Tensor, rounding: float) -> dict[str, float]:
    random = torch.Generator().manual_seed(_SEED)
    before, moved = _original(fitted, z), dict[str, float]()
    for _ in range(PROBES):
        step = rounding * z.norm(dim=-1, keepdim=True) * torch.randn(z.shape, generator=random)
        after = _original(fitted, z + step)
        for name in before:
            moved[name] = max(moved.get(name, 0.0), float((after[name] - before[name]).abs().max()))
    units = {"centroid": float(fitted.prototypes.abs().max())}
    allowed = {
        name: min(MOST * units.get(name, 1.0), LEAST * units.get(name, 1.0) + TIMES * change)
        for name, change in moved.items()
    }
    return allowed | {"prototype": allowed["mixture"]}


def _embedding_batches(fitted: Fitted) -> tuple[list[_Batch], bool]:
    try:
        z, own = fitted.folder.rows().sample(sum(SIZES), _SEED), True
    except BadInputError:  # the data were moved since, or were too many to keep
        z, own = _between_prototypes(fitted.prototypes), False
    rows = z[_places(len(z))]
    return [_Batch({"embeddings": part}, part) for part in rows.split(SIZES)], own


def _between_prototypes(prototypes: Tensor) -> Tensor:
    random = torch.Generator().manual_seed(_SEED)
    one, other = torch.randint(len(prototypes), (2, sum(SIZES)), generator=random)
    weight = torch.rand(sum(SIZES), 1, generator=random)
    return weight * prototypes[one] + (1 - weight) * prototypes[other]


def _text_batches(fitted: Fitted) -> tuple[list[_Batch], bool]:
    try:
        texts, own = fitted.folder.inputs()["text"].to_pylist(), True
    except BadInputError:
        texts, own = _made_up_texts(fitted), False
    by_length = sorted(texts, key=len)
    # all lengths from the shortest to the longest, in batches that hold some of each
    spread = [by_length[round(place * (len(texts) - 1))] for place in torch.linspace(0, 1, sum(SIZES)).tolist()]
    order = torch.randperm(sum(SIZES), generator=torch.Generator().manual_seed(_SEED)).split(SIZES)
    length = fitted.settings.max_tokens
    # the second is padded further than its texts need
    widths = (None, length, None)
    return [
        _text_batch(fitted, [spread[row] for row in rows.tolist()], width)
        for rows, width in zip(order, widths, strict=True)
    ], own


def _made_up_texts(fitted: Fitted) -> list[str]:
    """Words of the encoder's vocabulary, more and more of them."""
    tokenizer, random = fitted.encoder.tokenizer, torch.Generator().manual_seed(_SEED)
    return [
        tokenizer.decode(torch.randint(len(tokenizer), (count,), generator=random).tolist(), skip_special_tokens=True)
        for count in range(1, sum(SIZES) + 1)
    ]


def _text_batch(fitted: Fitted, texts: list[str], width: int | None) -> _Batch:
    tokenizer = fitted.encoder.tokenizer
    ids = tokenizer(texts, truncation=True, max_length=fitted.settings.max_tokens)["input_ids"]
    longest = width or max(1, max(map(len, ids)))
    input_ids = torch.full((len(ids), longest), tokenizer.pad_token_id or 0)
    attention_mask = torch.zeros_like(input_ids)
    for row, tokens in enumerate(ids):
        input_ids[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.long)
        attention_mask[row, : len(tokens)] = 1
    return _Batch({"input_ids": input_ids, "attention_mask": attention_mask}, fitted.embeddings(texts))


def _places(available: int) -> Tensor:
    """As many rows as the batches take, again from the first where there are fewer."""
    return torch.arange(sum(SIZES)) % available
