"""Sizes of blocks by the size of the problem, as measured on an H200 (docs/lab/0006-kernels.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

SMALLEST = 16  # rows and columns that a product on the chip needs
WIDEST_IN_THREE = 512  # dimensions for which float32 fits shared memory in two parts


@dataclass(frozen=True)
class Tile:
    """A kernel's block sizes over tokens, prototypes and dimensions, its warps and how it shares the machine."""

    BN: int
    BK: int
    BM: int
    warps: int = 4
    stages: int = 2  # depth of the pipeline of loads
    per_processor: int = 1  # programs on one multiprocessor, where a kernel chooses how many there are
    registers: int | None = None  # a bound for each thread, so that so many programs fit

    def options(self, K: int, m: int) -> dict[str, int]:
        """As a kernel takes them for a bank of K prototypes of dimension m."""
        sizes = {"BN": self.BN, "BK": self.BK, "BM": self.BM, "RAGGED": K % self.BK != 0, "PADDED": m != self.BM}
        limits = {} if self.registers is None else {"maxnreg": self.registers}
        return sizes | limits | {"num_warps": self.warps, "STAGES": self.stages}

    def fitted(self, room: int, held: Held, itemsize: int) -> Tile | None:
        """This tile, or a smaller one that needs no more than ``room`` bytes of shared memory; None if none does."""
        tile = self
        while held.bytes(tile, itemsize) > room:
            if tile.stages > 1:
                tile = replace(tile, stages=tile.stages - 1)
            elif max(tile.BN, tile.BK) == SMALLEST or (held.whole_bank and tile.BN == SMALLEST):
                return None
            elif tile.BN >= tile.BK or held.whole_bank:
                tile = replace(tile, BN=tile.BN // 2, registers=None)
            else:
                tile = replace(tile, BK=tile.BK // 2)
        return tile


@dataclass(frozen=True)
class Held:
    """What a kernel holds in shared memory: blocks of tokens and of prototypes, kept or in flight."""

    tokens: int = 0
    tokens_in_flight: int = 0
    bank: int = 0
    bank_in_flight: int = 0
    weights: int = 0
    whole_bank: bool = False

    def bytes(self, tile: Tile, itemsize: int) -> int:
        """An upper estimate."""
        token_blocks = self.tokens + self.tokens_in_flight * tile.stages
        bank_blocks = self.bank + self.bank_in_flight * tile.stages
        vectors = (token_blocks * tile.BN + bank_blocks * tile.BK) * tile.BM
        return itemsize * (vectors + self.weights * tile.BN * tile.BK) + 4096


RESIDENT_FORWARD = Held(tokens=1, tokens_in_flight=1, bank=1, whole_bank=True)
RESIDENT_BACKWARD = Held(tokens=1, tokens_in_flight=2, bank=1, weights=2, whole_bank=True)
STREAMED_FORWARD = Held(tokens=1, bank_in_flight=1)
STREAMED_TOKENS = Held(tokens=2, bank_in_flight=1)
STREAMED_PROTOTYPES = Held(tokens_in_flight=2, bank=1)


@dataclass(frozen=True)
class Tiles:
    """The tiles of the kernels for one size of problem: two for a resident bank, three for a streamed one."""

    resident: bool
    forward: Tile
    backward: Tile
    tokens: Tile
    prototypes: Tile

    @staticmethod
    def choose(z: Tensor, prototypes: Tensor) -> Tiles | None:
        """For these tokens and this bank; None where no tile fits the chip."""
        itemsize = max(z.element_size(), prototypes.element_size())
        return _choose(int(prototypes.shape[1]), int(prototypes.shape[2]), itemsize, z.device)

    @staticmethod
    def chosen(z: Tensor, prototypes: Tensor) -> Tiles:
        """The same, for sizes that the dispatcher has let through."""
        tiles = Tiles.choose(z, prototypes)
        if tiles is None:
            raise RuntimeError(f"no block of {prototypes.shape[2]} dimensions fits the shared memory of this GPU")
        return tiles


def precision(z: Tensor, tile: Tile) -> str:
    """How float32 is multiplied: in three products of the matrix unit, or in one, less exact, if PyTorch may do so."""
    if z.is_cuda and torch.backends.cuda.matmul.allow_tf32:
        return "tf32"
    return "tf32x3" if z.is_cuda and tile.BM <= WIDEST_IN_THREE else "ieee"


@lru_cache
def _choose(K: int, m: int, itemsize: int, device: torch.device) -> Tiles | None:
    room = _shared_memory(device)
    BM, BK = max(SMALLEST, _power_of_two(m)), max(SMALLEST, _power_of_two(K))
    if itemsize == 4 and BM <= WIDEST_IN_THREE:
        itemsize = 8  # in three products, each number is held in two parts
    if BK <= 64 and BM <= 128:
        forward = _resident_forward(BK, BM, itemsize).fitted(room, RESIDENT_FORWARD, itemsize)
        backward = _resident_backward(BK, BM, itemsize).fitted(room, RESIDENT_BACKWARD, itemsize)
        if forward is not None and backward is not None:
            return Tiles(True, forward, backward, forward, backward)
    streamed = [
        tile.fitted(room, held, itemsize)
        for tile, held in zip(
            _streamed(BK, BM, itemsize),
            (STREAMED_FORWARD, STREAMED_TOKENS, STREAMED_PROTOTYPES),
            strict=True,
        )
    ]
    fitting = [tile for tile in streamed if tile is not None]
    if len(fitting) < len(streamed):
        return None
    outputs, tokens, bank = fitting
    return Tiles(False, outputs, tokens, tokens, bank)


def _resident_forward(BK: int, BM: int, itemsize: int) -> Tile:
    if itemsize > 2:
        # products in three parts cannot be pipelined across tokens
        return Tile(64, BK, BM, warps=4, stages=1, per_processor=2)
    if BM <= 64:
        return Tile(64, BK, BM, warps=4, stages=3, per_processor=4, registers=128)
    if BK <= 32:
        return Tile(128, BK, BM, warps=8, stages=4, per_processor=1)
    return Tile(64, BK, BM, warps=4, stages=3, per_processor=2)


def _resident_backward(BK: int, BM: int, itemsize: int) -> Tile:
    if itemsize > 2:
        return Tile(64, BK, BM, warps=8, stages=1, per_processor=1)
    if BM <= 64:
        return Tile(64, BK, BM, warps=4, stages=3, per_processor=2)
    if BK <= 32:
        return Tile(128, BK, BM, warps=8, stages=3, per_processor=1)
    return Tile(64, BK, BM, warps=4, stages=2, per_processor=2)


def _streamed(BK: int, BM: int, itemsize: int) -> tuple[Tile, Tile, Tile]:
    """For outputs, for gradients of tokens and for gradients of prototypes."""
    if itemsize > 2 or BM > 256:
        # more rows than these do not leave the compiler enough registers
        rows = {512: 64}.get(BM, 16) if itemsize == 2 else max(SMALLEST, min(64, 8192 // BM))
        tile = Tile(rows, min(BK, 32), BM, warps=8, stages=2)
        few = max(SMALLEST, min(64, 16384 // BM))
        return tile, tile, Tile(min(BK, 32), few, BM, warps=8, stages=2, per_processor=2)
    if BM == 256:
        tokens = Tile(64, min(BK, 32), BM, stages=3)
        return Tile(64, min(BK, 64), BM), tokens, Tile(64, min(BK, 128), BM, warps=8, per_processor=2)
    wide = Tile(64, min(BK, 128), BM, stages=2 if BM == 128 else 3)
    return wide, replace(wide, BK=min(BK, 64)), Tile(64, min(BK, 128), BM, warps=8, per_processor=2)


def blocks_of(count: int, size: int) -> int:
    """How many blocks cover so many; Triton's own function for it takes longer than a launch."""
    return -(-count // size)


def _power_of_two(count: int) -> int:
    """The least power of two that is not smaller."""
    return 1 << (count - 1).bit_length()


def programs(z: Tensor, tile: Tile) -> int:
    """How many programs walk over the tokens together."""
    return max(1, min(blocks_of(z.shape[0], tile.BN), _processors(z.device) * tile.per_processor))


def token_shares(z: Tensor, prototypes: Tensor, tile: Tile) -> tuple[int, int]:
    """Into how many parts the tokens are cut to fill the machine with blocks of prototypes, and tokens in a part."""
    blocks = blocks_of(prototypes.shape[1], tile.BK) * prototypes.shape[0]
    wanted = _processors(z.device) * tile.per_processor // blocks
    affordable = z.nbytes // (2 * 4 * prototypes.numel())  # parts of the gradient, in float32, in half of what z takes
    count = max(1, min(wanted, affordable, blocks_of(z.shape[0], tile.BN)))
    tokens = blocks_of(blocks_of(z.shape[0], count), tile.BN) * tile.BN
    return blocks_of(z.shape[0], tokens), tokens


@lru_cache
def _processors(device: torch.device) -> int:
    # the interpreter runs one program after the other: two are enough to see them work together
    return int(torch.cuda.get_device_properties(device).multi_processor_count) if device.type == "cuda" else 2


@lru_cache
def _shared_memory(device: torch.device) -> int:
    if device.type != "cuda":
        return 2**30
    # an older PyTorch does not tell: what every GPU since Ampere has
    return int(getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 99 * 1024))
