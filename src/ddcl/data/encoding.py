"""Texts through a frozen encoder, batch by batch, with little padding."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ddcl.data.encoders import DEFAULT_ENCODER, Encoder, load_encoder

Precision = Literal["float32", "bfloat16", "float16"]
PRECISIONS = ("float32", "bfloat16", "float16")
_FORMAT = "2"
"""Changes when what is stored does, so that older files are not taken for new ones."""


class Encoded(NamedTuple):
    """States of a batch of texts."""

    rows: list[int]
    """Which of the texts these are."""
    ids: list[list[int]]
    """Their tokens."""
    states: Tensor
    """float32, (batch, longest, dim)."""
    mask: Tensor
    """True where a token stands, (batch, longest)."""


@dataclass(frozen=True)
class Encoding:
    """How texts go through an encoder."""

    encoder: Encoder
    max_tokens: int
    batch_size: int
    device: torch.device | str
    precision: Precision
    layer: int = -1
    """Whose states: -1 the last, -2 the one before."""

    def batches(self, texts: Sequence[str]) -> Iterator[Encoded]:
        """The states of the texts, longest texts first: if memory does not suffice, that shows at once."""
        tokenizer, model = self.encoder.tokenizer, self.encoder.model.to(self.device)
        ids: list[list[int]] = tokenizer(list(texts), truncation=True, max_length=self.max_tokens)["input_ids"]
        order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            padded, mask = _pad([ids[i] for i in rows], tokenizer.pad_token_id or 0)
            padded, mask = padded.to(self.device), mask.to(self.device)
            with torch.inference_mode(), self._autocast():
                out = model(input_ids=padded, attention_mask=mask.long(), output_hidden_states=self.layer != -1)
            states = out.last_hidden_state if self.layer == -1 else out.hidden_states[self.layer]
            yield Encoded(rows, [ids[i] for i in rows], states.float(), mask)

    def _autocast(self) -> torch.autocast:
        device = torch.device(self.device).type
        dtype = torch.float16 if self.precision == "float16" else torch.bfloat16
        return torch.autocast(device, dtype=dtype, enabled=self.precision != "float32")

    def note(self) -> dict[str, object]:
        """For the note beside what is stored."""
        device = torch.device(self.device)
        where = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
        return {
            "encoder": self.encoder.name,
            "fingerprint": self.encoder.fingerprint,
            "max_tokens": self.max_tokens,
            "layer": self.layer,
            "device": where,
            "precision": self.precision,
            "torch": torch.__version__,
        }


def check_texts(texts: Sequence[str], max_tokens: int, precision: Precision, batch_size: int) -> None:
    """Refuse what cannot be encoded."""
    if isinstance(texts, str) or not len(texts):
        raise ValueError(f"texts must be a sequence of at least one text; got {texts!r}")
    if max_tokens < 3:
        raise ValueError(
            f"max_tokens must be at least 3, as every text gets a first and a last token; got {max_tokens}"
        )
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}; got {precision!r}")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1; got {batch_size}")


def check_length(encoder: Encoder, max_tokens: int) -> None:
    """Refuse more tokens than the encoder takes."""
    if max_tokens > encoder.max_length:
        raise ValueError(f"max_tokens: {encoder.name} takes at most {encoder.max_length} tokens; got {max_tokens}")


def resolve(encoder: str | Path | Encoder | None) -> Encoder:
    """An encoder from what a caller may give for one."""
    return (
        encoder if isinstance(encoder, Encoder) else load_encoder(encoder if encoder is not None else DEFAULT_ENCODER)
    )


def key(texts: Sequence[str], fingerprint: str, max_tokens: int, *more: object) -> str:
    """A name made from everything that the states of the texts depend on."""
    digest = hashlib.sha256("\0".join(map(str, (_FORMAT, fingerprint, max_tokens, *more))).encode())
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return digest.hexdigest()[:32]


def _pad(ids: Sequence[list[int]], filler: int) -> tuple[Tensor, Tensor]:
    longest = max(1, *map(len, ids)) if len(ids) > 1 else max(1, len(ids[0]))
    padded = torch.full((len(ids), longest), filler)
    for row, tokens in zip(padded, ids, strict=True):
        row[: len(tokens)] = torch.tensor(tokens, dtype=torch.long)
    lengths = torch.tensor([len(tokens) for tokens in ids])
    return padded, torch.arange(longest) < lengths.unsqueeze(1)
