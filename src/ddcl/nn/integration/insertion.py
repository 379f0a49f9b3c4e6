"""Putting prototypes into a model that is there already, and taking them out again."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ddcl.functional.checks import check_choice
from ddcl.nn.integration.blocks import chosen, find_blocks, layer_norms, padding_owner, token_dim
from ddcl.nn.integration.padding import Padding
from ddcl.nn.integration.parallel import ParallelPrototypes
from ddcl.nn.integration.prototype_norm import PrototypeNorm
from ddcl.nn.integration.serial import SerialPrototypes

IntegrationMode = Literal["serial", "parallel", "norm"]
INTEGRATION_MODES: tuple[str, ...] = get_args(IntegrationMode)

_CHILD = "prototypes"  # what the new part of a block is called
_RECORD = "_inserted_prototypes"  # where a model keeps what was done to it


class Insertion:
    """What :func:`insert` has done to a model, and how to undo it.

    Attributes:
        mode: ``"serial"``, ``"parallel"`` or ``"norm"``.
        modules: the new modules by their names in the model.
    """

    def __init__(self, mode: IntegrationMode) -> None:
        self.mode = mode
        self.modules: dict[str, nn.Module] = {}
        self._handles: list[RemovableHandle] = []
        self._added: list[tuple[nn.Module, str]] = []
        self._changed: list[tuple[nn.Module, str, Any]] = []

    def remove(self) -> None:
        """Take everything out again: modules, hooks, attributes."""
        for handle in self._handles:
            handle.remove()
        for owner, name in reversed(self._added):
            delattr(owner, name)
        for owner, name, before in reversed(self._changed):
            if isinstance(before, nn.LayerNorm):
                _take_over(before, getattr(owner, name))
            setattr(owner, name, before)
        self.modules, self._handles, self._added, self._changed = {}, [], [], []

    def _add(self, owner: nn.Module, name: str, value: Any) -> None:
        setattr(owner, name, value)
        self._added.append((owner, name))

    def _change(self, owner: nn.Module, name: str, value: Any) -> None:
        self._changed.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def _hook(self, handle: RemovableHandle) -> None:
        self._handles.append(handle)

    def __repr__(self) -> str:
        return f"Insertion(mode={self.mode!r}, modules={list(self.modules)})"


def insert(
    model: nn.Module,
    mode: IntegrationMode = "serial",
    num_prototypes: int = 64,
    *,
    layers: Sequence[int] | None = None,
    blocks: nn.ModuleList | str | None = None,
    dim: int | None = None,
    **options: Any,
) -> Insertion:
    """Put prototypes into the blocks of a transformer, in place, without touching its source.

    For ``torch.nn.TransformerEncoder`` and Hugging Face encoders, alone or inside a larger model. The new modules start
    as near-identity, are seen by optimisers, ``state_dict``, ``Trainer`` and :func:`quantisation_losses`, and keep
    padding out by the mask the model itself is called with. :func:`init_banks` or ``Trainer`` puts their banks where
    the tokens are. All names in the model's ``state_dict`` stay; new ones are added.

    Args:
        model: the model.
        mode: ``"serial"``: a :class:`SerialPrototypes` after each block. ``"parallel"``: a :class:`ParallelPrototypes`
            beside it. ``"norm"``: a :class:`PrototypeNorm` in the place of each LayerNorm in it.
        num_prototypes: K, for each head.
        layers: positions of the blocks meant, negative from the end. None: all.
        blocks: the ``ModuleList`` of blocks or its dotted name. None: looked for.
        dim: width of the tokens. None: read off the blocks.
        options: of the modules: ``proto_dim``, ``num_heads``, ``normalise``, ``temperature``, ``gradient``, ``start``.

    Example:
        >>> layer = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
        >>> encoder = torch.nn.TransformerEncoder(layer, num_layers=3)
        >>> insert(encoder, "serial", num_prototypes=4, layers=[-1])
        Insertion(mode='serial', modules=['layers.2.prototypes'])
        >>> remove(encoder)
    """
    check_choice("mode", mode, INTEGRATION_MODES)
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: got {type(model).__name__}, expected a torch.nn.Module")
    name, found = find_blocks(model, blocks)
    positions = chosen(found, layers)
    if any(isinstance(part, (SerialPrototypes, ParallelPrototypes, PrototypeNorm)) for part in model.modules()):
        raise ValueError("model: it has prototypes inserted already; take them out first with ddcl.remove(model)")
    insertion = Insertion(mode)
    try:
        padding = _listen_for_padding(insertion, model, name, found)
        for position in positions:
            block, place = found[position], f"{name}.{position}" if name else str(position)
            _leave_fast_path(insertion, block)
            if mode == "norm":
                _replace_norms(insertion, block, place, padding, num_prototypes, options)
            else:
                width = token_dim(model, block) if dim is None else dim
                _put_beside(insertion, block, place, padding, width, num_prototypes, options)
    except BaseException:
        insertion.remove()
        raise
    insertion._add(model, _RECORD, insertion)
    return insertion


def remove(model: nn.Module) -> None:
    """Take out of a model what :func:`insert` has put in, so that it is what it was to the bit.

    Parameters of the model that were trained in the meantime stay as they are; the prototypes are gone.

    Args:
        model: the model that was given to :func:`insert`, a copy of it, or a larger one that contains it.
    """
    records = [part.__dict__[_RECORD] for part in model.modules() if _RECORD in part.__dict__]
    if not records:
        raise ValueError("model: nothing was inserted into it, so there is nothing to remove")
    for insertion in records:
        insertion.remove()


def _take_over(norm: nn.LayerNorm, stood_for_it: PrototypeNorm) -> None:
    """What became of a LayerNorm's parameters while it was away: loading or moving a model may exchange them."""
    norm.weight, norm.bias = stood_for_it.weight, stood_for_it.bias  # type: ignore[assignment]
    norm.train(stood_for_it.training)


def _listen_for_padding(
    insertion: Insertion, model: nn.Module, blocks_name: str, blocks: nn.ModuleList
) -> Padding | None:
    owner, argument = padding_owner(model, blocks_name)
    if isinstance(owner, nn.TransformerEncoder):
        # nested tensors have no mask, and only the fast path that is left anyway takes them
        for name in ("enable_nested_tensor", "use_nested_tensor"):
            if hasattr(owner, name):
                insertion._change(owner, name, False)
    if argument is None:
        return None
    batch_first = getattr(getattr(blocks[0], "self_attn", None), "batch_first", True)
    padding = Padding(owner, argument, batch_first=batch_first)
    insertion._hook(owner.register_forward_pre_hook(padding.listen, with_kwargs=True))
    return padding


def _leave_fast_path(insertion: Insertion, block: nn.Module) -> None:
    """PyTorch's fused inference path reads the weights of a layer and calls none of its parts."""
    if isinstance(block, nn.TransformerEncoderLayer):
        insertion._change(block, "activation_relu_or_gelu", 0)


def _put_beside(
    insertion: Insertion,
    block: nn.Module,
    place: str,
    padding: Padding | None,
    dim: int,
    num_prototypes: int,
    options: dict[str, Any],
) -> None:
    if hasattr(block, _CHILD):
        raise ValueError(f"model: {place} has an attribute {_CHILD!r} already, expected a block without one")
    kind = SerialPrototypes if insertion.mode == "serial" else ParallelPrototypes
    weight = next((p for p in block.parameters() if p.is_floating_point()), torch.empty(()))
    module = kind(dim, num_prototypes, **{"device": weight.device, "dtype": weight.dtype, **options})
    insertion._add(block, _CHILD, module.train(block.training))
    insertion.modules[f"{place}.{_CHILD}"] = module
    tap = _Tap(module, padding, next(iter(inspect.signature(block.forward).parameters)))
    insertion._hook(block.register_forward_hook(tap.pass_on, with_kwargs=True))


def _replace_norms(
    insertion: Insertion,
    block: nn.Module,
    place: str,
    padding: Padding | None,
    num_prototypes: int,
    options: dict[str, Any],
) -> None:
    norms = layer_norms(block)
    if not norms:
        raise ValueError(f"model: {place} has no torch.nn.LayerNorm that a PrototypeNorm could stand for")
    for name, norm in norms.items():
        module = PrototypeNorm.from_layer_norm(norm, num_prototypes, **options)
        owner, _, attribute = name.rpartition(".")
        insertion._change(block.get_submodule(owner), attribute, module)
        insertion.modules[f"{place}.{name}"] = module
        if padding is not None:
            tap = _Tap(module, padding)
            insertion._hook(module.register_forward_pre_hook(tap.hand_mask, with_kwargs=True))


class _Tap:
    """Hooks that lead a block's tokens through its prototypes; bound methods, so that copies use their own parts."""

    def __init__(self, module: nn.Module, padding: Padding | None, entering: str = "") -> None:
        self.module, self.padding, self.entering = module, padding, entering

    def pass_on(self, _block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        """A forward hook of a block whose output is the tokens, or a tuple that begins with them."""
        tokens: Tensor = output[0] if isinstance(output, tuple) else output
        mask = None if self.padding is None else self.padding.mask_for(tokens)
        if isinstance(self.module, ParallelPrototypes):
            tokens = self.module(args[0] if args else kwargs[self.entering], tokens, mask)
        else:
            tokens = self.module(tokens, mask)
        return (tokens, *output[1:]) if isinstance(output, tuple) else tokens

    def hand_mask(
        self, _norm: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """A forward pre-hook of a PrototypeNorm, which its block calls as it called the LayerNorm."""
        mask = None if self.padding is None else self.padding.mask_for(args[0])
        return None if mask is None else (args, {**kwargs, "mask": mask})
