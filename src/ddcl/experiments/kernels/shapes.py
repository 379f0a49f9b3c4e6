"""The sizes measured, and the least time each must take on a machine of known rates."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, get_args

import torch

Kind = Literal["forward", "forward+backward"]
KINDS: tuple[Kind, ...] = get_args(Kind)

DTYPES: dict[str, torch.dtype] = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


class Shape(NamedTuple):
    """One size: N tokens of dimension m, K prototypes."""

    N: int
    m: int
    K: int

    def __str__(self) -> str:
        tokens = f"2^{self.N.bit_length() - 1}" if self.N > 1 and self.N.bit_count() == 1 else str(self.N)
        return f"({tokens}, {self.m}, {self.K})"


SHAPES = (
    Shape(2**20, 64, 16),
    Shape(2**20, 64, 64),
    Shape(2**20, 128, 32),
    Shape(2**19, 128, 256),
    Shape(2**18, 256, 1024),
    Shape(2**17, 256, 8192),
    Shape(2**16, 64, 65536),
)
CPU_SHAPES = (Shape(2**12, 64, 64), Shape(2**16, 64, 16), Shape(2**16, 64, 64), Shape(2**14, 256, 1024))
"""Those measured without a GPU: the others would take hours."""
QUICK_SHAPES = (Shape(96, 8, 5), Shape(64, 16, 40))


class Rates(NamedTuple):
    """What the machine reaches: bytes per second of a copy (read and written), operations per second of a product."""

    copy: float
    matrix: float


def parse_shape(text: str) -> Shape:
    """A shape from ``N,m,K``, each a number or a power such as ``2^20``."""
    numbers = text.split(",")
    if len(numbers) != 3 or not all(re.fullmatch(r"\d+(\^\d+)?", number) for number in numbers):
        raise ValueError(f"shape: got {text!r}, expected N,m,K such as 2^20,64,16")
    sizes = [int(base) ** int(power or 1) for base, _, power in (number.partition("^") for number in numbers)]
    if min(sizes) < 1:
        raise ValueError(f"shape: got {text!r}, expected positive numbers")
    return Shape(*sizes)


def as_kind(text: str) -> Kind | None:
    """The pass of that name, None if it is none."""
    return next((kind for kind in KINDS if kind == text), None)


def least_bytes(shape: Shape, kind: Kind, itemsize: int) -> int:
    """What must pass through memory.

    Forward: z read, mu written. With the backward pass z is read again, the gradient of mu read, that of z written.
    The bank and the numbers per token are small beside these and left out.
    """
    passes = 2 if kind == "forward" else 5
    return passes * shape.N * shape.m * itemsize


def operations(shape: Shape, kind: Kind) -> int:
    """What must be multiplied and added.

    Forward: the products of tokens with prototypes and of assignments with prototypes. The backward pass takes the
    first again (no N x K tensor is kept), the gradient of mu with prototypes, one sum for the gradient of z and two for
    that of the bank. Each is 2 N K m.
    """
    products = 2 if kind == "forward" else 7
    return products * 2 * shape.N * shape.K * shape.m


def floor_ms(shape: Shape, kind: Kind, itemsize: int, rates: Rates) -> float:
    """The larger of the time to move the bytes and the time to do the products, in milliseconds."""
    moving = least_bytes(shape, kind, itemsize) / rates.copy
    return 1e3 * max(moving, operations(shape, kind) / rates.matrix)


def tensor_bytes(shape: Shape, kind: Kind, itemsize: int) -> int:
    """Bytes of inputs and outputs and, with the backward pass, of their gradients.

    Outputs are mu and, for each token, five float32 terms and an int64 index. The gradient of the loss is one number.
    """
    tokens, bank, per_token = shape.N * shape.m * itemsize, shape.K * shape.m * itemsize, shape.N * (5 * 4 + 8)
    gradients = 2 * tokens + bank if kind == "forward+backward" else 0
    return 2 * tokens + bank + per_token + gradients


def held_bytes(shape: Shape, kind: Kind, itemsize: int) -> int:
    """Of those, the bytes that are there before the call: inputs and the gradient of mu."""
    given = 2 if kind == "forward+backward" else 1
    return (given * shape.N + shape.K) * shape.m * itemsize
