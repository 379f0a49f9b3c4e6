"""The Hessian of a loss in two sets of parameters, by its products with vectors and its blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ddcl.functional.checks import check_choice, check_count, check_float_tensor
from ddcl.functional.stability.lanczos import Extremes, Product, dense_extremes, lanczos_extremes
from ddcl.shapes import Float

Loss = Callable[[], Tensor]
"""Computes a scalar loss from parameters it knows of, the same at every call."""

Method = Literal["auto", "dense", "lanczos"]
METHODS: tuple[str, ...] = get_args(Method)

DENSE_LIMIT = 400
"""Up to this many parameters ``auto`` takes the whole Hessian."""


class CoupledHessian:
    r"""H of a loss in (slow, fast), flattened in this order; the graph of the gradient is built once and kept.

    Args:
        loss: computes the scalar; differentiable twice, the same at every call.
        slow: tensors that require a gradient, theta in the paper; may be empty.
        fast: tensors that require a gradient, the prototypes P; at least one.

    Example:
        >>> a, b = torch.ones(2, requires_grad=True), torch.ones(1, requires_grad=True)
        >>> hessian = CoupledHessian(lambda: (a**2).sum() * b.sum(), [a], [b])
        >>> hessian.product(torch.tensor([1.0, 0.0, 0.0]))
        tensor([2., 0., 2.])
    """

    def __init__(self, loss: Loss, slow: Sequence[Tensor], fast: Sequence[Tensor]) -> None:
        self.parameters = [*_checked("slow", slow, 0), *_checked("fast", fast, 1)]
        if len({id(parameter) for parameter in self.parameters}) < len(self.parameters):
            raise ValueError("fast: got a parameter twice, expected every parameter once, in slow or in fast")
        self.num_slow = sum(parameter.numel() for parameter in slow)
        self.num_fast = sum(parameter.numel() for parameter in fast)
        self.size = self.num_slow + self.num_fast
        self.slow, self.fast = slice(0, self.num_slow), slice(self.num_slow, self.size)
        # fused attention kernels have no second derivative
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
            value = _scalar(loss())
            first, second = value.detach().double(), _scalar(loss()).detach().double()
            if not torch.isfinite(first):
                raise ValueError(f"loss: returned {float(first)}, expected a finite number")
            # to rounding: some kernels add in a different order each time
            if not torch.isclose(first, second, rtol=1e4 * torch.finfo(value.dtype).eps):
                raise ValueError(
                    f"loss: two calls gave {float(first):.9g} and {float(second):.9g}, expected the same number; "
                    "switch dropout off (model.eval()) and keep to one batch"
                )
            found = torch.autograd.grad(value, self.parameters, create_graph=True, allow_unused=True)
        self._gradients = self._filled(found)
        self.gradient = self._flat([g.detach() for g in self._gradients])
        self.dtype = self.gradient.dtype

    def product(self, x: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """H x, by differentiating the gradient once more."""
        parts = [
            part.reshape(parameter.shape).to(parameter)
            for part, parameter in zip(x.split([p.numel() for p in self.parameters]), self.parameters, strict=True)
        ]
        curved = [(g, part) for g, part in zip(self._gradients, parts, strict=True) if g.requires_grad]
        if not curved:  # the loss is linear in all of them
            return torch.zeros_like(x)
        outputs, directions = zip(*curved, strict=True)
        found = torch.autograd.grad(outputs, self.parameters, directions, retain_graph=True, allow_unused=True)
        return self._flat(self._filled(found))

    def block(self, rows: slice, columns: slice) -> Product:
        """x -> H[rows, columns] x."""

        def product(x: Tensor) -> Tensor:
            whole = x.new_zeros(self.size)
            whole[columns] = x
            return self.product(whole)[rows]

        return product

    def dense(self) -> Float[Tensor, "n n"]:
        """The whole matrix, from n products; symmetric to the last bit."""
        eye = torch.eye(self.size, dtype=self.dtype, device=self.gradient.device)
        matrix = torch.stack([self.product(row) for row in eye])
        return (matrix + matrix.mT) / 2

    def rates(self, lr: float, epsilon: float) -> Float[Tensor, " n"]:
        """The learning rate of every parameter: ``epsilon * lr`` for the slow ones, ``lr`` for the fast ones."""
        for name, value in (("lr", lr), ("epsilon", epsilon)):
            if not 0 < value < float("inf"):
                raise ValueError(f"{name}: got {value}, expected a positive finite number")
        rates = torch.full_like(self.gradient, lr)
        rates[self.slow] = lr * epsilon
        return rates

    def check_coupled(self) -> None:
        """There is a slow part, without which there is no ratio of rates to speak of."""
        if not self.num_slow:
            raise ValueError("slow: got no parameters, expected the encoder's, at least one")

    def _filled(self, gradients: Sequence[Tensor | None]) -> list[Tensor]:
        """Zeros where the loss does not depend on a parameter."""
        pairs = zip(gradients, self.parameters, strict=True)
        return [torch.zeros_like(parameter) if found is None else found for found, parameter in pairs]

    def _flat(self, parts: list[Tensor]) -> Tensor:
        dtype = torch.promote_types(parts[0].dtype, torch.float32)
        return torch.cat([part.detach().reshape(-1).to(dtype) for part in parts])


class Ends:
    """The ends of the spectra of H, its blocks and what is made of them, dense or by Lanczos as asked for."""

    def __init__(self, hessian: CoupledHessian, method: Method, steps: int, generator: torch.Generator | None) -> None:
        check_choice("method", method, METHODS)
        check_count("steps", steps)
        small = hessian.size <= DENSE_LIMIT
        self.method = ("dense" if small else "lanczos") if method == "auto" else method
        self.matrix = hessian.dense() if self.method == "dense" else None
        self.hessian, self.steps, self.generator = hessian, steps, generator
        self.eps = torch.finfo(hessian.dtype).eps

    def __call__(self, product: Product, of_dense: Callable[[Tensor], Tensor], size: int) -> Extremes:
        """Of an operator on vectors of length ``size``, given by its products and by what it is of the dense H."""
        if self.matrix is not None:
            return dense_extremes(of_dense(self.matrix))
        # drawn on the CPU, so that a seed means the same start everywhere
        start = torch.randn(size, dtype=self.hessian.dtype, generator=self.generator).to(self.hessian.gradient.device)
        return lanczos_extremes(product, start, steps=self.steps, tolerance=100 * self.eps)

    def rounding(self, ends: Extremes) -> float:
        """Below this an eigenvalue cannot be told from zero: rounding of the products, which adds up like noise."""
        noise = self.eps * math.sqrt(len(ends.smallest_vector))
        return 10 * noise * max(abs(ends.smallest), abs(ends.largest))

    def positive(self, ends: Extremes) -> bool:
        """Whether all eigenvalues are positive, beyond rounding and what Lanczos left open."""
        return ends.smallest - ends.residual > self.rounding(ends)


def _checked(name: str, parameters: Sequence[Tensor], minimum: int) -> list[Tensor]:
    if isinstance(parameters, Tensor):
        raise TypeError(f"{name}: got one tensor, expected a list of tensors")
    if len(parameters) < minimum:
        raise ValueError(f"{name}: got no parameters, expected at least one tensor")
    for parameter in parameters:
        check_float_tensor(name, parameter)
        if not parameter.requires_grad:
            shape = tuple(parameter.shape)
            raise ValueError(f"{name}: got a tensor of shape {shape} without requires_grad, expected one with it")
    return list(parameters)


def _scalar(value: Tensor) -> Tensor:
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
        given = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) and value.numel() != 1 else "no gradient"
        given = given if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"loss: returned {given}, expected a scalar tensor that depends on the parameters")
    return value.reshape(())
