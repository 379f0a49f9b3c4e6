"""What a frozen encoder knows about texts beyond their vectors: which of them are neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ddcl.functional import covariance, nearest_neighbours, neighbour_graph, smooth_over
from ddcl.functional.checks import check_count
from ddcl.ops import autocast_off
from ddcl.shapes import Float

if TYPE_CHECKING:
    from typing_extensions import Self


class NeighbourhoodEncoder(nn.Module):
    r"""Frozen embeddings to vectors in which neighbours are close; it stands before a bank and learns without labels.

    With :math:`x = z - \bar z` and :math:`P` the walk over the k nearest neighbours of the fitted embeddings,

    .. math:: h = (1 - a)\,x + a P h, \qquad u = \frac{h}{\lVert h\rVert}, \qquad
        y = \frac{V^\top (u - \bar u)}{\lVert V^\top (u - \bar u)\rVert}

    where V holds the leading principal directions of u. The metric of a frozen encoder is good near a text and poor far
    from it: a text's nearest neighbours mostly share its topic, the distance between topics says little. Smoothing
    keeps the first and forgets the second; what all texts have in common is taken out, since after smoothing it is most
    of what is left. A new embedding obeys the same equation, with its k nearest fitted embeddings for neighbours.

    Nothing here has a gradient. The fitted embeddings are kept, 2 N m numbers.

    Args:
        dim: m of the frozen embeddings.
        out_dim: of the vectors that come out, at most ``dim``; 64 as in the paper.
        num_neighbours: k.
        share: a, how much of a vector comes from its neighbours.
        steps: of the smoothing, see :func:`ddcl.smooth_over`.

    Attributes:
        fitted: the vectors of the embeddings it was fitted to, (N, out_dim), in their order.

    Example:
        >>> z = torch.randn(100, 8)
        >>> encoder = NeighbourhoodEncoder(8, 4, num_neighbours=5).fit(z)
        >>> encoder.fitted.shape, encoder(torch.randn(3, 8)).shape
        (torch.Size([100, 4]), torch.Size([3, 4]))
    """

    reference: Tensor
    smoothed: Tensor
    mean: Tensor
    common: Tensor
    directions: Tensor

    def __init__(
        self,
        dim: int,
        out_dim: int = 64,
        *,
        num_neighbours: int = 15,
        share: float = 0.9,
        steps: int = 20,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("dim", dim), ("out_dim", out_dim), ("num_neighbours", num_neighbours), ("steps", steps)):
            check_count(name, value)
        if out_dim > dim:
            raise ValueError(f"out_dim: got {out_dim}, expected at most dim = {dim}")
        self.dim, self.out_dim = dim, out_dim
        self.num_neighbours, self.share, self.steps = num_neighbours, share, steps
        for name in ("reference", "smoothed"):
            self.register_buffer(name, torch.empty(0, dim, device=device, dtype=dtype))
        for name in ("mean", "common"):
            self.register_buffer(name, torch.zeros(dim, device=device, dtype=dtype))
        self.register_buffer("directions", torch.eye(dim, out_dim, device=device, dtype=dtype))

    @torch.no_grad()
    def fit(self, z: Float[Tensor, "N m"]) -> Self:
        """Find the neighbours of all embeddings, smooth over them and keep the result."""
        if z.dim() != 2 or z.shape[-1] != self.dim:
            raise ValueError(f"z: got shape {tuple(z.shape)}, expected (N, {self.dim})")
        z = z.to(self.mean.device)
        graph = neighbour_graph(z, self.num_neighbours)
        self.reference, self.mean = z.to(self.mean, copy=True), z.mean(0, dtype=torch.float64).to(self.mean)
        self.smoothed = smooth_over(graph, self.reference - self.mean, share=self.share, steps=self.steps)
        moments = covariance(F.normalize(self.smoothed, dim=-1))
        self.common = moments.mean.to(self.mean)
        leading = torch.linalg.eigh(moments.matrix).eigenvectors.flip(-1)[:, : self.out_dim]
        self.directions = leading.to(self.mean)
        return self

    @property
    def fitted(self) -> Float[Tensor, "N d"]:
        """The vectors of the embeddings it was fitted to."""
        return self._project(self.smoothed)

    @torch.no_grad()
    def forward(self, z: Float[Tensor, "*batch m"]) -> Float[Tensor, "*batch d"]:
        """New embeddings (..., m) to (..., out_dim), through their neighbours among the fitted."""
        if not len(self.reference):
            raise RuntimeError("NeighbourhoodEncoder: it has no neighbours to look at, call fit first")
        x = z.reshape(-1, self.dim).to(self.reference.dtype)
        near = nearest_neighbours(x, self.reference, self.num_neighbours)
        starts = torch.arange(0, near.numel(), self.num_neighbours, device=near.device)
        around = F.embedding_bag(near.flatten(), self.smoothed, starts, mode="mean")
        found = self._project((1 - self.share) * (x - self.mean) + self.share * around)
        return found.to(z.dtype).reshape(*z.shape[:-1], self.out_dim)

    def _project(self, h: Tensor) -> Tensor:
        with autocast_off(h):
            return F.normalize((F.normalize(h, dim=-1) - self.common) @ self.directions, dim=-1)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        # as many embeddings as were fitted, which an encoder that was not has no room for
        for name in ("reference", "smoothed"):
            saved, held = state_dict.get(prefix + name), getattr(self, name)
            if isinstance(saved, Tensor) and saved.dim() == 2 and saved.shape[-1] == self.dim:
                setattr(self, name, held.new_empty(saved.shape))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def extra_repr(self) -> str:
        """Sizes and settings, for ``repr``."""
        return (
            f"{self.dim}, {self.out_dim}, num_neighbours={self.num_neighbours}, share={self.share}, "
            f"steps={self.steps}, fitted={len(self.reference)}"
        )
