"""The bank: prototypes and their temperature, the one thing every module of the library is built around."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ddcl.functional import (
    Batches,
    InitMethod,
    Readout,
    critical_temperature,
    initial_prototypes,
    readout,
)
from ddcl.functional.checks import check_backend, check_count, check_finite, check_gradient, check_temperature
from ddcl.ops import Backend, Gradient
from ddcl.shapes import Float

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

RELATIVE_TEMPERATURE = 0.1
"""The multiple of T_c that ``init_from`` sets where no temperature was asked for: well below 1, where the
merged bank is no resting place."""


class PrototypeBank(nn.Module):
    r"""K prototypes of dimension m for each of H heads, and the readout through them.

    Args:
        num_prototypes: K.
        dim: m, the dimension of a prototype.
        num_heads: H. With one head the tokens are (..., m), with more (..., H, m).
        temperature: T, a number or one per head. None: a tenth of the data's critical temperature once
            ``init_from`` has seen data, 1.0 until then.
        gradient: ``"full"`` or ``"stop"``, see :func:`ddcl.readout`.
        backend: see :func:`ddcl.readout`.

    Attributes:
        prototypes: the parameter, (H, K, m).
        num_prototypes: K; :meth:`resize_to` changes it, and so does loading the state of a bank of another size.
        resizable: whether :meth:`resize_to` may. A module with weights of its own that have K in their shape sets this
            to False.
        temperature: a buffer, (H,); set it with :meth:`set_temperature`.
        initialised: a buffer, whether the prototypes have been set from data.

    Example:
        >>> bank = PrototypeBank(num_prototypes=2, dim=1).init_from(torch.tensor([[0.0], [0.2], [4.0], [4.2]]))
        >>> bank(torch.tensor([[3.9]])).indices.shape, bank.initialised.item()
        (torch.Size([1]), True)
    """

    prototypes: Tensor
    temperature: Tensor
    initialised: Tensor

    def __init__(
        self,
        num_prototypes: int,
        dim: int,
        *,
        num_heads: int = 1,
        temperature: float | Tensor | None = None,
        gradient: Gradient = "full",
        backend: Backend = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_count("num_prototypes", num_prototypes)
        check_count("dim", dim)
        check_count("num_heads", num_heads)
        check_gradient(gradient)
        check_backend(backend)
        self.num_prototypes, self.dim, self.num_heads = num_prototypes, dim, num_heads
        self.gradient, self.backend = gradient, backend
        self._make_parameters(torch.empty(num_heads, num_prototypes, dim, device=device, dtype=dtype))
        precise = torch.float64 if (dtype or torch.get_default_dtype()) == torch.float64 else torch.float32
        self.register_buffer("temperature", torch.ones(num_heads, device=device, dtype=precise))
        self.register_buffer("initialised", torch.zeros((), dtype=torch.bool, device=device))
        self.moved_by_soft_kmeans = False
        self.resizable = True
        self._sets_temperature = temperature is None
        if temperature is not None:
            self.set_temperature(temperature)
        self.reset_parameters()

    def _make_parameters(self, empty: Tensor) -> None:
        """What holds the prototypes; a bank of another make overrides this, ``prototypes`` and ``learned``."""
        self.prototypes = nn.Parameter(empty)

    @property
    def learned(self) -> list[nn.Parameter]:
        """The parameters through which the prototypes learn; those of the shape (H, K, m) have a row for each."""
        return [self._parameters["prototypes"]]  # type: ignore[list-item]

    @torch.no_grad()
    def move_to(self, points: Float[Tensor, "H K m"]) -> None:
        """Put the prototypes there: how everything but a gradient moves a bank."""
        self.prototypes.copy_(points)

    @torch.no_grad()
    def resize_to(self, points: Float[Tensor, "H K m"]) -> None:
        """Put other prototypes in place of these, as many as there are points.

        The parameter stays the same object, so an optimiser keeps it; what an optimiser has gathered about it must be
        brought to the new rows (:class:`ddcl.AdaptiveSize` does that). Gradients are dropped.
        """
        if not self.resizable:
            raise ValueError(f"bank: it is not resizable, expected {self.num_prototypes} prototypes as it has")
        if points.dim() != 3 or (points.shape[0], points.shape[2]) != (self.num_heads, self.dim) or not points.shape[1]:
            wanted = f"({self.num_heads}, K, {self.dim}) with K >= 1"
            raise ValueError(f"points: got shape {tuple(points.shape)}, expected {wanted}")
        check_finite("points", points)
        (parameter,) = self.learned
        self._reshape(parameter, points.to(device=parameter.device, dtype=parameter.dtype, copy=True))

    def _reshape(self, parameter: nn.Parameter, rows: Tensor) -> None:
        parameter.grad = None
        # a graph that is still alive holds the place for gradients of the old shape; another dtype makes PyTorch drop
        # it, the old shape alone does not
        other = torch.float32 if parameter.dtype != torch.float32 else torch.float64
        parameter.data = torch.empty(0, dtype=other, device=parameter.device)
        parameter.data = rows
        self.num_prototypes = rows.shape[1]

    @property
    def splits_like(self) -> Gradient:
        """The gradient mode whose critical temperatures hold: soft k-means descends what mode stop descends."""
        return "stop" if self.moved_by_soft_kmeans else self.gradient

    def reset_parameters(self) -> None:
        """Random prototypes about the origin, of length about 1; ``init_from`` puts them where the data are."""
        nn.init.normal_(self.prototypes, std=self.dim**-0.5)
        self.initialised.fill_(False)

    @torch.no_grad()
    def set_temperature(self, temperature: float | Tensor) -> None:
        """Set T for all heads or, from a tensor (H,), for each; in place, so compiled code sees it."""
        check_temperature(temperature, everywhere=True)
        self._sets_temperature = False
        value = torch.as_tensor(temperature)
        if value.dim() > 0 and tuple(value.shape) not in ((1,), (self.num_heads,)):
            raise ValueError(f"temperature: got shape {tuple(value.shape)}, expected () or ({self.num_heads},)")
        self.temperature.copy_(value.expand(self.num_heads))

    @torch.no_grad()
    def init_from(
        self,
        data: Batches,
        *,
        mask: Tensor | None = None,
        method: InitMethod = "kmeans",
        sample: int | None = None,
        restarts: int = 3,
        generator: torch.Generator | None = None,
    ) -> Self:
        """Put the prototypes where the data are and, if none was given, set the temperature to 0.1 T_c.

        Args:
            data: tokens (..., m) or (..., H, m), or an iterable of batches or (batch, mask) pairs; an iterable
                that can be walked only once is kept in memory.
            mask: for a tensor, true where a token counts.
            method: ``"kmeans"``, ``"kmeans++"`` (seeding alone) or ``"farthest"``.
            sample, restarts, generator: see :func:`ddcl.kmeans`.
        """
        if isinstance(data, Iterator):
            data = list(data)
        heads = None if self.num_heads == 1 else self.num_heads
        found = self._starting_points(
            data, mask=mask, method=method, num_heads=heads, sample=sample, restarts=restarts, generator=generator
        )
        if found.shape[-1] != self.dim:
            raise ValueError(f"data: got tokens of dimension {found.shape[-1]}, expected dim = {self.dim}")
        self.move_to(found.reshape(self.num_heads, self.num_prototypes, self.dim))
        if self._sets_temperature:
            critical = critical_temperature(data, mask=mask, gradient=self.gradient, num_heads=heads)
            # data without any spread has T_c = 0: every positive temperature serves it equally
            relative = RELATIVE_TEMPERATURE * critical
            self.temperature.copy_(torch.where(relative > 0, relative, 1.0))
        self.initialised.fill_(True)
        return self

    def _starting_points(self, data: Batches, **options: Any) -> Tensor:
        """Where ``init_from`` puts the prototypes, (K, m) or (H, K, m)."""
        return initial_prototypes(data, self.num_prototypes, **options)

    def forward(self, z: Tensor, mask: Tensor | None = None) -> Readout:
        """The readout of tokens (..., m), or (..., H, m) for several heads."""
        one = self.num_heads == 1
        return readout(
            z,
            self.prototypes[0] if one else self.prototypes,
            # a copy: the schedule may set the next temperature before this one's backward pass
            (self.temperature[0] if one else self.temperature).clone(),
            gradient=self.gradient,
            mask=mask,
            backend=self.backend,
            check_values=False,  # set_temperature has looked
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # half precision would round T, and to 0 for data of small scale: it follows the device only
        before = self.temperature
        super()._apply(fn, recurse)
        if self.temperature.dtype in (torch.float16, torch.bfloat16):
            self.temperature = before.to(self.temperature.device)
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        # an adaptive bank is saved with as many prototypes as it found, and loads into one of any size
        saved = state_dict.get(prefix + "prototypes")
        held = self._parameters.get("prototypes")
        if isinstance(saved, Tensor) and isinstance(held, nn.Parameter) and self.resizable and saved.dim() == 3:
            heads, size, dim = saved.shape
            if (heads, dim) == (self.num_heads, self.dim) and size not in (0, self.num_prototypes):
                self._reshape(held, held.new_empty(saved.shape))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def extra_repr(self) -> str:
        """Sizes, temperature and state, for ``repr``."""
        known = not (self.temperature.is_meta or torch.compiler.is_compiling())
        temperatures = [f"{value:.4g}" for value in self.temperature.tolist()] if known else ["?"]
        parts: dict[str, Any] = {
            "num_prototypes": self.num_prototypes,
            "dim": self.dim,
            "num_heads": self.num_heads,
            "temperature": temperatures[0] if len(set(temperatures)) == 1 else f"[{', '.join(temperatures)}]",
            "gradient": self.gradient,
            "backend": self.backend,
            "initialised": bool(self.initialised) if known else "?",
        }
        return ", ".join(f"{name}={value}" for name, value in parts.items())


def banks_of(model: nn.Module) -> dict[str, PrototypeBank]:
    """Every bank in a model by its name, the model itself included."""
    return {name: module for name, module in model.named_modules() if isinstance(module, PrototypeBank)}
