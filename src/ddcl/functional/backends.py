"""Which backend runs a readout."""

from __future__ import annotations

from torch import Tensor

from ddcl import ops
from ddcl.functional.checks import check_prototypes, check_tokens
from ddcl.ops import Backend, Choice
from ddcl.shapes import Float


def backend_for(
    z: Float[Tensor, "*batch m"] | None = None,
    prototypes: Float[Tensor, "K m"] | Float[Tensor, "H K m"] | None = None,
    *,
    backend: Backend = "auto",
) -> Choice:
    """The backend that :func:`readout` takes for these tokens and this bank, and why.

    Args:
        z, prototypes: as :func:`readout` takes them. Without them: what it takes for tokens in half precision on the
            current GPU, if there is one.
        backend: ``"auto"``, or one by name. A name that cannot run this is refused, with the reason.

    Example:
        >>> import torch
        >>> backend_for(torch.randn(5, 3), torch.randn(4, 3))
        Choice(backend='eager', reason='fused kernels run on NVIDIA GPUs, and z is on cpu')
    """
    if z is None or prototypes is None:
        return ops.choose(backend)
    check_prototypes(prototypes)
    check_tokens(z, prototypes)
    heads, _, dim = prototypes.shape if prototypes.dim() == 3 else (1, *prototypes.shape)
    return ops.choose(backend, z.reshape(-1, heads, dim), prototypes.reshape(heads, -1, dim))
