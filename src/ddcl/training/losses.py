"""What a run descends: a function of the model and a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ddcl.functional import Decomposition
from ddcl.nn import quantisation_losses

Loss = Callable[[nn.Module, Any], Tensor]
"""Takes the model and a batch as the loader gives it, returns a scalar."""


def quantisation_loss(model: nn.Module, batch: Any) -> Tensor:
    r"""The paper's :math:`L_q` alone: of what the model returns, or else the sum over all banks that it called.

    The batch is a tensor, a pair (tensor, bool mask), or a list of one tensor, as a ``TensorDataset`` gives.
    """
    with quantisation_losses(model) as losses:
        output = call(model, batch)
    # a readout and a hierarchy have their terms in .loss, other modules hold the readout they came from
    for owner in (output, getattr(output, "readout", None)):
        terms = getattr(owner, "loss", None)
        if isinstance(terms, Decomposition):
            return terms.total
    return losses.total()


def call(model: nn.Module, batch: Any) -> Any:
    """The model's output for a batch of tokens or inputs, with a mask if the batch holds one."""
    if isinstance(batch, Tensor):
        return model(batch)
    if isinstance(batch, (list, tuple)) and len(batch) == 1 and isinstance(batch[0], Tensor):
        return model(batch[0])
    pair = isinstance(batch, (list, tuple)) and len(batch) == 2 and all(isinstance(one, Tensor) for one in batch)
    if pair and batch[1].dtype == torch.bool:
        return model(batch[0], batch[1])
    raise TypeError(
        f"batch: got {_describe(batch)}, expected a tensor or a pair (tensor, bool mask); "
        "for anything else pass loss= and forward=, functions of the model and a batch"
    )


def _describe(batch: Any) -> str:
    if isinstance(batch, (list, tuple)):
        return f"{type(batch).__name__} of {', '.join(_describe(one) for one in batch)}"
    return f"tensor of {batch.dtype}" if isinstance(batch, Tensor) else type(batch).__name__
