"""Finding the blocks of a transformer, how wide their tokens are and who is given the padding mask."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from torch import nn

from ddcl.functional.checks import check_count

PADDING_ARGUMENTS = ("src_key_padding_mask", "attention_mask")
"""Arguments that say which tokens are padding: PyTorch's is true there, Hugging Face's is 0 there."""


def find_blocks(model: nn.Module, blocks: nn.ModuleList | str | None) -> tuple[str, nn.ModuleList]:
    """The list of blocks and its name in the model.

    Without a hint: the one ``ModuleList`` whose members are all of one class named ``...Layer`` or ``...Block``; lists
    inside such members are theirs and do not count.
    """
    if blocks is not None:
        return _named_blocks(model, blocks)
    found: dict[str, nn.ModuleList] = {}
    for name, part in model.named_modules():
        inside = any(name.startswith(f"{other}.") for other in found)
        if isinstance(part, nn.ModuleList) and not inside and _alike(part):
            found[name] = part
    if len(found) == 1:
        return next(iter(found.items()))
    what = "a ModuleList whose members are all of one class named ...Layer or ...Block"
    seen = "found none" if not found else f"found {', '.join(map(repr, found))}"
    raise ValueError(f"model: looked for {what} and {seen}; name it with blocks=, a ModuleList or its dotted name")


def _named_blocks(model: nn.Module, blocks: nn.ModuleList | str) -> tuple[str, nn.ModuleList]:
    if isinstance(blocks, str):
        try:
            part = model.get_submodule(blocks)
        except AttributeError:
            raise ValueError(f"blocks: got {blocks!r}, expected the dotted name of a module of the model") from None
        if not isinstance(part, nn.ModuleList) or not len(part):
            raise TypeError(f"blocks: {blocks!r} is a {type(part).__name__}, expected a ModuleList that is not empty")
        return blocks, part
    for name, part in model.named_modules():
        if part is blocks:
            return name, blocks
    raise ValueError(f"blocks: got a {type(blocks).__name__} that is no part of the model, expected one of its own")


def _alike(parts: nn.ModuleList) -> bool:
    kinds = {type(part) for part in parts}
    return len(kinds) == 1 and kinds.pop().__name__.endswith(("Layer", "Block"))


def chosen(blocks: nn.ModuleList, layers: Sequence[int] | None) -> list[int]:
    """The positions asked for, counted from the end if negative; all without a choice."""
    if layers is None:
        return list(range(len(blocks)))
    if not isinstance(layers, Sequence):
        raise TypeError(f"layers: got {type(layers).__name__}, expected a list of positions")
    positions = []
    for layer in layers:
        check_count("layers", layer, -len(blocks))
        if layer >= len(blocks):
            raise ValueError(f"layers: got {layer}, expected positions below {len(blocks)}, the number of blocks")
        positions.append(layer % len(blocks))
    if not positions or len(set(positions)) < len(positions):
        raise ValueError(f"layers: got {list(layers)}, expected at least one position and none twice")
    return positions


def layer_norms(block: nn.Module) -> dict[str, nn.LayerNorm]:
    """The LayerNorms of a block by name."""
    return {name: part for name, part in block.named_modules() if isinstance(part, nn.LayerNorm)}


def token_dim(model: nn.Module, block: nn.Module) -> int:
    """How wide the tokens are that a block hands on, read off its last LayerNorm or the model's ``config``."""
    norms = list(layer_norms(block).values())
    if norms:
        return int(norms[-1].normalized_shape[-1])
    dim = getattr(getattr(model, "config", None), "hidden_size", None)
    if not isinstance(dim, int):
        raise ValueError(
            f"dim: a {type(block).__name__} has no LayerNorm and the model no config.hidden_size to read it off; "
            "pass dim=, the width of the tokens"
        )
    return dim


def padding_owner(model: nn.Module, blocks_name: str) -> tuple[nn.Module, str | None]:
    """The module whose call says which tokens are padding, and the name of the argument.

    That is PyTorch's ``TransformerEncoder`` itself; of a Hugging Face model the innermost part with a ``config`` and a
    ``forward`` of its own for the mask, since parts further in are handed the mask in other forms.
    """
    parts = blocks_name.split(".")
    around = [model.get_submodule(".".join(parts[:depth])) for depth in range(len(parts))]  # outermost first
    takers = [(part, name) for part in around if (name := _padding_argument(part)) is not None]
    if not takers:
        return around[0], None
    own = [taker for taker in takers if taker[1] == PADDING_ARGUMENTS[0]]
    pretrained = [taker for taker in takers if hasattr(taker[0], "base_model_prefix")]
    return (own or pretrained or takers[:1])[-1]


def _padding_argument(part: nn.Module) -> str | None:
    names = inspect.signature(part.forward).parameters
    return next((name for name in PADDING_ARGUMENTS if name in names), None)
