"""The kernels' callers: sizes and strides in, tensors out."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import cast

import torch
from torch import Tensor

from ddcl.ops.centring import bank_center
from ddcl.ops.triton import backward_resident, backward_streamed, forward_kernels
from ddcl.ops.triton.descriptors import can_describe, describe_bank, describe_numbers, describe_tokens
from ddcl.ops.triton.tuning import Tile, Tiles, blocks_of, precision, programs, token_shares
from ddcl.ops.types import Gradient, InputGradients, TokenTerms, Upstream, empty_terms

FARTHEST_ROW = 2**22  # numbers from one token to the next; a block has at most 128 tokens


class Bank:
    """A bank as the kernels take it: contiguous, and for float32 centred, as its digits would go into the offset.

    Products of half precision numbers are exact in float32, so there is nothing to gain for them. Where tokens and
    bank differ in precision, as under autocast, everything is done in float32: a bank rounded to half precision
    could not tell prototypes apart that are about to part.
    """

    def __init__(self, z: Tensor, prototypes: Tensor, norms: bool) -> None:
        self.points = prototypes.contiguous()
        self.center = None
        if prototypes.dtype == torch.float32 or z.dtype != prototypes.dtype:
            bank = prototypes.float()
            center = bank_center(bank)
            self.points, self.center = (bank - center).contiguous(), center.contiguous()
        self.norms = torch.linalg.vector_norm(self.points, dim=-1, dtype=torch.float32).square_() if norms else None

    def can_describe(self, tile: Tile) -> bool:
        """Whether the copy engine can move blocks of it without reaching into the next head."""
        H, K, m = self.points.shape
        flat = self.points.reshape(H * K, 1, m)
        return can_describe(m, tile.BM, flat) and (H == 1 or K % tile.BK == 0)

    def blocks(self, described: bool, tile: Tile) -> tuple[object, object]:
        """Prototypes and their squared lengths as a kernel takes them that walks over the bank."""
        if not described:
            return self.points, self.norms
        return describe_bank(self.points, tile.BK, tile.BM), describe_numbers(cast(Tensor, self.norms), tile.BK)


def forward(
    z: Tensor, prototypes: Tensor, temperature: Tensor, mask: Tensor | None
) -> tuple[TokenTerms, Tensor | None]:
    """All outputs, and the level of each token, from which q can be had again, where the bank is streamed."""
    H, K, m = prototypes.shape
    N = z.shape[0]
    out = empty_terms(z)
    z = _addressable(z)
    tiles = Tiles.chosen(z, prototypes)
    level = None if tiles.resident else torch.empty(H, N, dtype=torch.float32, device=z.device)
    if not N:
        return out, level
    bank = Bank(z, prototypes, norms=not tiles.resident)
    tile = tiles.forward
    sizes = (N, K, m, H, *z.stride(), *_temperature_strides(temperature))
    described = can_describe(m, tile.BM, z, out.centroid) and bank.can_describe(tile)
    options = tile.options(K, m) | {"PRECISION": precision(z, tile), "DESCRIBED": described}
    tokens, centroid = _tokens(described, tile, z, out.centroid)
    terms = (centroid, *out[1:])
    with _on_device_of(z):
        if tiles.resident:
            forward_kernels.resident[programs(z, tile), H](
                tokens, bank.points, bank.center, temperature, _as_bytes(mask), *terms, *sizes, **options
            )
        else:
            forward_kernels.streamed[blocks_of(N, tile.BN), H](
                tokens, *bank.blocks(described, tile), bank.center, temperature, _as_bytes(mask),
                *terms, level, *sizes, **options,
            )  # fmt: skip
    return out, level


def backward(
    z: Tensor,
    prototypes: Tensor,
    temperature: Tensor,
    mask: Tensor | None,
    gradient: Gradient,
    upstream: Upstream,
    needed: tuple[bool, bool, bool],
    kept: tuple[Tensor, Tensor, Tensor],
    level: Tensor | None,
) -> InputGradients:
    """Gradients for tokens, prototypes and temperature together.

    ``kept``: centroids, entropies and indices as ``forward`` gave them, like ``level``.
    """
    call = _Backward(z, prototypes, temperature, mask, gradient, upstream, needed)
    if not z.shape[0] or call.nothing_arrives:
        return call.zeros()
    with _on_device_of(z):
        return call.resident() if level is None else call.streamed(*kept, level)


class _Backward:
    """One backward pass: what its kernels are given."""

    def __init__(
        self,
        z: Tensor,
        prototypes: Tensor,
        temperature: Tensor,
        mask: Tensor | None,
        gradient: Gradient,
        upstream: Upstream,
        needed: tuple[bool, bool, bool],
    ) -> None:
        z = _addressable(z)
        if upstream.centroid is not None:
            upstream = upstream._replace(centroid=_addressable(upstream.centroid))
        self.z, self.prototypes, self.temperature, self.mask = z, prototypes, temperature, _as_bytes(mask)
        self.full, self.upstream, self.needed = gradient == "full", upstream, needed
        self.tiles = Tiles.chosen(z, prototypes)
        self.sizes = (z.shape[0], *prototypes.shape[1:], prototypes.shape[0])
        self.token_strides = (*z.stride(), *_temperature_strides(temperature))
        # in mode stop, q and with it the entropy are constants
        self.entropy = upstream.entropy if self.full else None
        losses = (*upstream[1:5], self.entropy)
        self.term_strides = [stride for term in losses for stride in _term_strides(term)]

    @property
    def nothing_arrives(self) -> bool:
        """Whether no output with a gradient was used."""
        return all(term is None for term in (*self.upstream[:5], self.entropy))

    def zeros(self) -> InputGradients:
        """Gradients of nothing."""
        inputs = (self.z, self.prototypes, self.temperature)
        return InputGradients(
            *(torch.zeros_like(x) if flag else None for x, flag in zip(inputs, self.needed, strict=True))
        )

    def options(self, tile: Tile, described: bool) -> dict[str, object]:
        """Compile-time arguments of a kernel."""
        own = {"PRECISION": precision(self.z, tile), "FULL": self.full, "DESCRIBED": described}
        return tile.options(*self.sizes[1:3]) | own

    def resident(self) -> InputGradients:
        """One kernel; each of its programs leaves a share of the bank's gradient."""
        tile, H = self.tiles.backward, self.sizes[-1]
        bank = Bank(self.z, self.prototypes, norms=False)
        grid = (programs(self.z, tile), H)
        d_z, d_t = self._for_tokens()
        shares = self._shares(grid[0]) if self.needed[1] else None
        up = self.upstream
        described = can_describe(self.sizes[2], tile.BM, self.z, up.centroid, d_z)
        tokens, arriving, leaving = _tokens(described, tile, self.z, up.centroid, d_z)
        backward_resident.resident[grid](
            tokens, bank.points, bank.center, self.temperature, self.mask,
            arriving, up.total, up.reconstruction, up.variance, up.quantization, self.entropy, leaving, shares, d_t,
            *self.sizes, *self.token_strides, *_vector_strides(up.centroid), *self.term_strides,
            **self.options(tile, described),
        )  # fmt: skip
        return self._collect(d_z, shares, d_t)

    def streamed(self, centroid: Tensor, entropy: Tensor, indices: Tensor, level: Tensor) -> InputGradients:
        """A walk over the bank for tokens, then one over the tokens for the bank."""
        bank = Bank(self.z, self.prototypes, norms=True)
        up, (N, K, m, H) = self.upstream, self.sizes
        losses = (up.total, up.reconstruction, up.variance, up.quantization, self.entropy)
        strides = (*self.sizes, *self.token_strides)

        effective = None
        if up.reconstruction is not None or up.variance is not None:
            # float16 has too small a range for a gradient that has not been scaled
            dtype = torch.float32 if bank.points.dtype == torch.float16 else bank.points.dtype
            effective = torch.empty(self.z.shape, dtype=dtype, device=self.z.device)
            tile = self.tiles.forward
            backward_streamed.effective_gradient[blocks_of(N, tile.BN), H](
                self.z, *bank.blocks(False, tile), *self._other_inputs(bank), level,
                up.centroid, up.reconstruction, up.variance, effective,
                *strides, *_vector_strides(up.centroid), *self.term_strides[2:6],
                **tile.options(K, m), PRECISION=precision(self.z, tile), DESCRIBED=False,
            )  # fmt: skip

        d_z, d_t = self._for_tokens()
        shift = torch.empty_like(level) if self.full and self.needed[1] else None
        if any(one is not None for one in (d_z, d_t, shift)):
            tile = self.tiles.tokens
            moved = (self.z, centroid, up.centroid, effective, d_z)
            described = can_describe(m, tile.BM, *moved) and bank.can_describe(tile)
            z, mu, arriving, shifted, leaving = _tokens(described, tile, *moved)
            backward_streamed.tokens[blocks_of(N, tile.BN), H](
                z, *bank.blocks(described, tile), *self._other_inputs(bank),
                mu, entropy, indices, level, arriving, shifted, *losses, leaving, d_t, shift,
                *strides, *_vector_strides(up.centroid), *self.term_strides, **self.options(tile, described),
            )  # fmt: skip

        shares = None
        if self.needed[1]:
            tile = self.tiles.prototypes
            count, tokens = token_shares(self.z, self.prototypes, tile)
            shares = self._shares(count)
            upstream = up.centroid if effective is None else effective
            described = can_describe(m, tile.BM, self.z, upstream) and bank.can_describe(tile)
            z, arriving = _tokens(described, tile, self.z, upstream)
            kept: tuple[object, object] = level, shift
            if described:
                kept = describe_numbers(level, tile.BN), None if shift is None else describe_numbers(shift, tile.BN)
            backward_streamed.prototypes[blocks_of(K, tile.BK), count, H](
                z, *bank.blocks(described, tile), *self._other_inputs(bank),
                indices, *kept, arriving, *losses, shares,
                *strides, *_vector_strides(upstream), *self.term_strides, tokens,
                TAIL=N % tile.BN != 0, **self.options(tile, described),
            )  # fmt: skip
        return self._collect(d_z, shares, d_t)

    def _other_inputs(self, bank: Bank) -> tuple[Tensor | None, ...]:
        return bank.center, self.temperature, self.mask

    def _for_tokens(self) -> tuple[Tensor | None, Tensor | None]:
        z, (N, *_, H) = self.z, self.sizes
        d_z = torch.empty_like(z, memory_format=torch.contiguous_format) if self.needed[0] else None
        d_t = torch.empty(N, H, dtype=torch.float32, device=z.device) if self.needed[2] and self.full else None
        return d_z, d_t

    def _shares(self, count: int) -> Tensor:
        """Room for the bank's gradient in parts; a single part is the gradient itself."""
        dtype = torch.float32 if count > 1 else self.prototypes.dtype
        return torch.empty(count, *self.prototypes.shape, dtype=dtype, device=self.z.device)

    def _collect(self, d_z: Tensor | None, shares: Tensor | None, d_t: Tensor | None) -> InputGradients:
        d_bank = None
        if shares is not None:
            d_bank = shares[0] if len(shares) == 1 else shares.sum(0).to(self.prototypes.dtype)
        if self.needed[2] and d_t is None:
            d_t = torch.zeros_like(self.temperature)
        elif d_t is not None and self.temperature.shape[0] == 1:
            d_t = d_t.sum(0, keepdim=True)
        return InputGradients(d_z, d_bank, d_t)


def _tokens(described: bool, tile: Tile, *tensors: Tensor | None) -> list[object]:
    """Tensors (N, H, m) as a kernel takes them."""
    return [describe_tokens(tensor, tile.BN, tile.BM) if described else tensor for tensor in tensors]


def _addressable(vectors: Tensor) -> Tensor:
    """(N, H, m) in rows whose numbers lie side by side, or are all one, near enough for steps of 32 bits in a block."""
    row, _, number = vectors.stride()
    return vectors if number in (0, 1) and row < FARTHEST_ROW else vectors.contiguous()


def _as_bytes(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else mask.contiguous().view(torch.uint8)


def _term_strides(values: Tensor | None) -> tuple[int | None, int]:
    """Steps from token to token and from head to head; None where one number serves all tokens."""
    if values is None:
        return None, 0
    return values.stride(0) or None, values.stride(1)


def _temperature_strides(temperature: Tensor) -> tuple[int | None, int]:
    """The same; None where one row serves all tokens."""
    return (None if temperature.shape[0] == 1 else temperature.stride(0)), temperature.stride(1)


def _vector_strides(values: Tensor | None) -> tuple[int, ...]:
    return (0, 0, 1) if values is None else values.stride()


def _on_device_of(z: Tensor) -> AbstractContextManager[object]:
    return torch.cuda.device(z.device) if z.is_cuda else nullcontext()
