"""Quantisers of the package vector-quantize-pytorch, all called in one way: tokens in, values, codes and a loss out."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

FSQ_LEVELS = {16: (4, 4), 64: (8, 8), 512: (8, 8, 8), 1024: (8, 5, 5, 5)}
"""Levels of finite scalar quantisation for a wanted number of codes; 1,000 instead of 1,024, as its authors have it."""


def _package() -> Any:
    try:
        import vector_quantize_pytorch
    except ImportError as error:
        raise ImportError("the rivals need the package vector-quantize-pytorch: pip install 'ddcl[rivals]'") from error
    return vector_quantize_pytorch


def _straight_through(K: int, dim: int, **options: Any) -> nn.Module:
    # the package turns to the rotation trick by itself unless it is told not to
    options = {"rotation_trick": False, "commitment_weight": 0.25, **options}
    quantiser: nn.Module = _package().VectorQuantize(dim, K, learnable_codebook=True, ema_update=False, **options)
    return quantiser


def _ema(K: int, dim: int, **options: Any) -> nn.Module:
    kept_alive = {"kmeans_init": True, "threshold_ema_dead_code": 2}
    options = {"rotation_trick": False, "decay": 0.9, "commitment_weight": 1.0, **kept_alive, **options}
    quantiser: nn.Module = _package().VectorQuantize(dim, K, **options)
    return quantiser


def _rotation(K: int, dim: int, **options: Any) -> nn.Module:
    return _ema(K, dim, rotation_trick=True, **options)


def _simvq(K: int, dim: int, **options: Any) -> nn.Module:
    quantiser: nn.Module = _package().SimVQ(dim, K, **options)
    return quantiser


def _fsq(K: int, dim: int, **options: Any) -> nn.Module:
    if K not in FSQ_LEVELS:
        raise ValueError(
            f"K: got {K}, expected one of {', '.join(map(str, FSQ_LEVELS))} for finite scalar quantisation"
        )
    quantiser: nn.Module = _package().FSQ(list(FSQ_LEVELS[K]), dim=dim, **options)
    return quantiser


def _lfq(K: int, dim: int, **options: Any) -> nn.Module:
    # with the package's own weights the entropy term drives the encoder to infinity on these data
    options = {"entropy_loss_weight": 0.02, "commitment_loss_weight": 0.25, "soft_clamp_input_value": 10.0, **options}
    quantiser: nn.Module = _package().LFQ(codebook_size=K, dim=dim, **options)
    return quantiser


BUILDERS: dict[str, Callable[..., nn.Module]] = {
    "straight-through": _straight_through,
    "ema": _ema,
    "rotation": _rotation,
    "simvq": _simvq,
    "fsq": _fsq,
    "lfq": _lfq,
}
"""By name: VQ with a learned codebook; with running means, a k-means start and restarts of dead codes; the same with
the rotation trick; SimVQ; finite scalar and lookup-free quantisation."""


class RivalQuantizer(nn.Module):
    """One of :data:`BUILDERS` on tokens (N, m).

    Args:
        kind: its name.
        num_codes: K wanted; ``num_codes`` afterwards is what the quantiser has.
        dim: m.
        options: handed to the package, over what is set here.
    """

    def __init__(self, kind: str, num_codes: int, dim: int, **options: Any) -> None:
        super().__init__()
        if kind not in BUILDERS:
            raise ValueError(f"kind: got {kind!r}, expected one of {', '.join(BUILDERS)}")
        self.kind = kind
        self.quantiser = BUILDERS[kind](num_codes, dim, **options)
        self.num_codes = prod(FSQ_LEVELS[num_codes]) if kind == "fsq" else num_codes

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values (N, m), codes (N,) and a loss to add."""
        found = self.quantiser(z.float().unsqueeze(0))
        loss = found[2].sum() if len(found) > 2 else torch.zeros((), device=z.device)
        return found[0].squeeze(0), found[1].reshape(-1), loss
