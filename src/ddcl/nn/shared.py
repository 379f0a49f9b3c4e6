"""Banks that share their prototypes across layers, each with offsets of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ddcl.functional import Batches, covariance
from ddcl.functional.checks import check_count
from ddcl.functional.initialisation import kmeans_from
from ddcl.nn.bank import PrototypeBank
from ddcl.ops import Backend, Gradient
from ddcl.shapes import Float

if TYPE_CHECKING:
    from typing_extensions import Self


class SharedPrototypes(nn.Module):
    r"""The common prototypes of several layers; :class:`OffsetBank` reads tokens through them.

    It is no bank and is never called: what enters a layer enters that layer's bank. The first bank that is started
    from data fills it; ``reset_parameters`` empties it again.

    Args:
        num_prototypes: K.
        dim: m.
        num_heads: H.

    Attributes:
        prototypes: the parameter, (H, K, m).
        origin: a buffer, the mean of the tokens the prototypes were found on, (H, m).
        radius: a buffer, the root of the mean squared distance of those tokens from it, (H,).
        initialised: a buffer, whether the prototypes have been set from data.

    Example:
        >>> shared = SharedPrototypes(num_prototypes=4, dim=8)
        >>> layers = [OffsetBank(shared), OffsetBank(shared)]
        >>> sum(parameter.numel() for parameter in torch.nn.ModuleList(layers).parameters()) == 3 * 4 * 8
        True
    """

    origin: Tensor
    radius: Tensor
    initialised: Tensor

    def __init__(
        self,
        num_prototypes: int,
        dim: int,
        *,
        num_heads: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("num_prototypes", num_prototypes), ("dim", dim), ("num_heads", num_heads)):
            check_count(name, value)
        self.num_prototypes, self.dim, self.num_heads = num_prototypes, dim, num_heads
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.prototypes = nn.Parameter(torch.empty(num_heads, num_prototypes, dim, **place))
        self.register_buffer("origin", torch.zeros(num_heads, dim, **place))
        self.register_buffer("radius", torch.ones(num_heads, **place))
        self.register_buffer("initialised", torch.zeros((), dtype=torch.bool, device=device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Random prototypes about the origin, of length about 1, as in a bank that has seen no data."""
        nn.init.normal_(self.prototypes, std=self.dim**-0.5)
        nn.init.zeros_(self.origin)
        nn.init.ones_(self.radius)
        self.initialised.fill_(False)

    def extra_repr(self) -> str:
        """Sizes and state, for ``repr``."""
        known = not (self.initialised.is_meta or torch.compiler.is_compiling())
        return (
            f"num_prototypes={self.num_prototypes}, dim={self.dim}, num_heads={self.num_heads}, "
            f"initialised={bool(self.initialised) if known else '?'}"
        )


class OffsetBank(PrototypeBank):
    r"""A bank whose prototypes are the shared ones and an offset of its own, :math:`p^{(l)} = P + \Delta^{(l)}`.

    Row k means the same in every layer that shares P, so an index can be followed through the layers. Offsets start at
    zero. By gradient both P and the offsets learn; what moves a bank without a gradient (:class:`SoftKMeans`, a repair)
    moves the offset alone. To share without offsets, put one :class:`PrototypeBank` in both places.

    Args:
        shared: the common prototypes, with the sizes, the device and the dtype.
        temperature, gradient, backend: see :class:`PrototypeBank`; each layer has its own temperature.

    Example:
        >>> shared = SharedPrototypes(num_prototypes=2, dim=1)
        >>> first, second = OffsetBank(shared), OffsetBank(shared)
        >>> z = torch.tensor([[0.0], [0.2], [4.0], [4.2]])
        >>> bool((first.init_from(z).offset == 0).all())
        True
        >>> second.init_from(z + 0.5).offset.flatten()  # row by row, where each prototype has gone
        tensor([0.5000, 0.5000], grad_fn=<ViewBackward0>)
    """

    shared: SharedPrototypes
    offset: nn.Parameter

    def __init__(
        self,
        shared: SharedPrototypes,
        *,
        temperature: float | Tensor | None = None,
        gradient: Gradient = "full",
        backend: Backend = "auto",
    ) -> None:
        if not isinstance(shared, SharedPrototypes):
            raise TypeError(f"shared: got {type(shared).__name__}, expected SharedPrototypes")
        super().__init__(
            shared.num_prototypes,
            shared.dim,
            num_heads=shared.num_heads,
            temperature=temperature,
            gradient=gradient,
            backend=backend,
            device=shared.prototypes.device,
            dtype=shared.prototypes.dtype,
        )
        self.shared = shared
        self.resizable = False  # the other layers have as many rows

    def _make_parameters(self, empty: Tensor) -> None:
        self.offset = nn.Parameter(empty)

    @property
    def prototypes(self) -> Tensor:  # type: ignore[override]
        """P + offset, (H, K, m); to put the prototypes somewhere use ``move_to``."""
        return self.shared.prototypes + self.offset

    @property
    def learned(self) -> list[nn.Parameter]:
        """The offset, and the shared prototypes, which other layers learn too."""
        return [self.offset, self.shared.prototypes]

    @property
    def drift(self) -> Float[Tensor, " H"]:
        """How far this layer has gone from the common prototypes: mean squared offset over their own spread.

        One prototype alone has no spread, and its drift is in the units of the tokens.
        """
        common = self.shared.prototypes
        spread = (common - common.mean(1, keepdim=True)).square().sum(-1).mean(-1)
        return self.offset.square().sum(-1).mean(-1) / torch.where(spread > 0, spread, 1.0)

    @torch.no_grad()
    def move_to(self, points: Float[Tensor, "H K m"]) -> None:
        """Put the prototypes there by the offset alone: the other layers stay where they are."""
        self.offset.copy_(points.double() - self.shared.prototypes.double())

    def reset_parameters(self) -> None:
        """Offsets to zero."""
        nn.init.zeros_(self.offset)
        self.initialised.fill_(False)

    @torch.no_grad()
    def init_from(self, data: Batches, **options: Any) -> Self:
        """Put the prototypes where the data are, row for row those of the other layers.

        The first bank finds the shared prototypes as :meth:`PrototypeBank.init_from` does, with its options. Every
        later one carries them over to its own tokens (by mean and radius) and goes on from there by k-means, whatever
        the method asked for, since any other start would lose which row is which.
        """
        return super().init_from(data, **options)

    def _starting_points(self, data: Batches, **options: Any) -> Tensor:
        mask, heads = options["mask"], options["num_heads"]
        moments = covariance(data, mask=mask, num_heads=heads)
        mean = moments.mean.reshape(self.num_heads, -1)
        radius = moments.trace.reshape(self.num_heads).sqrt()
        if mean.shape[-1] != self.dim:
            raise ValueError(f"data: got tokens of dimension {mean.shape[-1]}, expected dim = {self.dim}")
        shared = self.shared
        if not bool(shared.initialised):
            found = super()._starting_points(data, **options)
            shared.prototypes.copy_(found.reshape(shared.prototypes.shape))
            shared.origin.copy_(mean)
            shared.radius.copy_(radius)
            shared.initialised.fill_(True)
            return found
        tiny = torch.finfo(radius.dtype).tiny
        stretch = (radius / shared.radius.double().clamp_min(tiny))[:, None, None]
        start = mean.unsqueeze(1) + stretch * (shared.prototypes.double() - shared.origin.double().unsqueeze(1))
        return kmeans_from(
            data, start, mask=mask, num_heads=heads, sample=options["sample"], generator=options["generator"]
        ).centers
