"""The tile sizes of the kernels for float32 and float64, and the planner's choices among them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import ClassVar

from tilewise.devices.limits import RESERVED_SHARED
from tilewise.gemm.chip import Chip
from tilewise.gemm.product import Product
from tilewise.places import ITEM_SIZES

PADDING = 4  # elements of a row of shared memory, as in pipeline.cuh
SWIZZLE, SWIZZLED = 128, 1024  # bytes, as in simt_tma.cuh
BARRIERS = 16  # bytes of a stage, as in dmma_tma.cuh


class Blocks:
    """The base of the tiles of all kernels: the number of blocks that compute D."""

    block_m: int
    block_n: int
    slices: int = 1

    def blocks(self, product: Product) -> int:
        """Return how many blocks compute D if they do not divide k."""
        down, across = -(-product.m // self.block_m), -(-product.n // self.block_n)
        return down * across * product.batch


@dataclass(frozen=True)
class Tiles(Blocks):
    """The sizes of a kernel without tensor cores: macros of ``simt.cuh``.

    docs/tuning.md tells how they were found.

    Attributes
    ----------
    block_m, block_n, block_k : int
        The tile of D that a block computes, and the depth of a k-step.
    thread_m, thread_n : int
        The tile of D that a thread computes.
    lanes_m : int
        The number of a warp's 32 lanes that lie along the rows of its tile.
    stages : int
        The pipeline stages in shared memory.
    double_buffer : bool
        Whether an inner step's operands are read from shared memory one step ahead.
    order : (int, int, int, int)
        ``ORDER_M``, ``ORDER_N``, ``BY_ROWS`` and ``INNER_BY_ROWS``: the order in which a thread
        goes through its elements.
    residents : int
        The number of blocks that a multiprocessor holds at once.
    bulk : bool
        Whether bulk copies by tensor maps fill the tiles, on Hopper GPUs (``simt_tma.cuh``).
    level : int
        The optimization level of ptxas; at 1 it keeps the order of the multiply-adds.
    slices : int
        The number of groups of warps that share each k-step.
    wide_only : bool
        Whether the kernel takes A and B only if both are MN-major and copied by 16 bytes. Products
        that suit such large tiles have other matrices copied first.
    """

    block_m: int
    block_n: int
    block_k: int
    thread_m: int
    thread_n: int
    lanes_m: int
    stages: int
    double_buffer: bool
    order: tuple[int, int, int, int]
    residents: int
    bulk: bool = False
    level: int = 3
    slices: int = 1
    wide_only: bool = False

    kernel = "gemm_simt"
    words = "the kernel without tensor cores"
    by_tensor_cores: ClassVar[bool] = False

    def __str__(self) -> str:
        name = f"{self.block_m}x{self.block_n}x{self.block_k} by {self.thread_m}x{self.thread_n}"
        name += " bulk" * self.bulk
        return f"{name} in {self.slices} slices" if self.slices > 1 else name

    def stages_rows(self, dtype: str) -> bool:
        """Return whether unaligned rows of D are stored through shared memory (simt.cu)."""
        line = 32 // self.lanes_m * self.thread_n  # columns of a warp's tile
        is_short = self.thread_n * ITEM_SIZES[dtype] <= 32
        return self.slices == 1 and is_short and (line % 32 == 0 or 32 % line == 0)

    @property
    def threads(self) -> int:
        """The number of threads of a block."""
        return self.slices * self.block_m * self.block_n // (self.thread_m * self.thread_n)

    @property
    def macros(self) -> dict[str, int]:
        """The macros by which the kernel is compiled."""
        order_m, order_n, by_rows, inner_by_rows = self.order
        return {
            "BLOCK_M": self.block_m, "BLOCK_N": self.block_n, "BLOCK_K": self.block_k,
            "THREAD_M": self.thread_m, "THREAD_N": self.thread_n, "LANES_M": self.lanes_m,
            "STAGES": self.stages, "DOUBLE_BUFFER": int(self.double_buffer), "ORDER_M": order_m,
            "ORDER_N": order_n, "BY_ROWS": by_rows, "INNER_BY_ROWS": inner_by_rows,
            "BLOCKS": self.residents, "SLICES": self.slices,
        }  # fmt: skip

    @property
    def options(self) -> tuple[str, ...]:
        """The options for NVRTC."""
        return () if self.level == 3 else (f"--ptxas-options=-O{self.level}",)

    def takes(
        self, dtype: str, a_is_k_major: bool, b_is_k_major: bool, is_mapped: bool, is_wide: bool
    ) -> bool:
        """Return whether the kernel can read A and B.

        Parameters
        ----------
        dtype : str
        a_is_k_major, b_is_k_major : bool
        is_mapped : bool
            Whether tensor maps can describe both.
        is_wide : bool
            Whether both are MN-major and can be copied by 16 bytes.
        """
        if not self.bulk:
            return is_wide or not self.wide_only
        # The pieces of a swizzled row are where a thread expects them if the rows of a warp that
        # have one index are 128 bytes apart. A thread stores pieces of D, so B is MN-major.
        reads_k_major = self.lanes_m * self.block_k * ITEM_SIZES[dtype] == SWIZZLE
        return is_mapped and not b_is_k_major and (reads_k_major or not a_is_k_major)

    def box(self, edge: int, is_k_major: bool) -> tuple[int, int]:
        """Return the box of one bulk copy from a matrix of which a tile has ``edge`` rows."""
        return (self.block_k, edge) if is_k_major else (edge, self.block_k)

    def shared(self, dtype: str, a_is_k_major: bool, b_is_k_major: bool) -> int:
        """Return the bytes of a block's shared memory."""
        if self.bulk:
            tiles = self.block_k * (self.block_m + self.block_n) * ITEM_SIZES[dtype]
            return self.stages * (tiles + SWIZZLED)
        rows = self.block_m + PADDING * a_is_k_major + self.block_n + PADDING * b_is_k_major
        return self.stages * self.block_k * rows * ITEM_SIZES[dtype]


@dataclass(frozen=True)
class TensorTiles(Blocks):
    """The sizes of the kernel by tensor cores, for float64: macros of ``dmma.cu``.

    Attributes
    ----------
    block_m, block_n : int
        The tile of D that a block computes.
    warps_m, warps_n : int
        The warps that share it, down and across.
    stages : int
        The pipeline stages in shared memory.
    residents : int
        The number of blocks that a multiprocessor holds at once.
    bulk : bool
        Whether bulk copies by tensor maps fill the tiles, on Hopper GPUs, rather than cp.async.
    double_buffer : bool
        Whether, with cp.async, an inner step's operands are read from shared memory one step ahead.
    block_k : int
        The depth of a k-step.
    """

    block_m: int
    block_n: int
    warps_m: int
    warps_n: int
    stages: int
    residents: int
    bulk: bool = True
    double_buffer: bool = False
    block_k: int = field(default=16, init=False)

    kernel = "gemm_dmma"
    by_tensor_cores: ClassVar[bool] = True
    options: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        how = "" if self.bulk else ", cp.async"
        return f"{self.block_m}x{self.block_n} by tensor cores{how}"

    @property
    def words(self) -> str:
        """The kernel in words."""
        how = "" if self.bulk else ", without tensor maps"
        return f"the kernel by tensor cores{how}"

    @property
    def threads(self) -> int:
        """The number of threads of a block."""
        return 32 * self.warps_m * self.warps_n

    def stages_rows(self, dtype: str) -> bool:
        """Return False: unaligned rows of D are not stored through shared memory."""
        return False

    @property
    def macros(self) -> dict[str, int]:
        """The macros by which the kernel is compiled."""
        by_async = {"BLOCK_K": self.block_k, "DOUBLE_BUFFER": int(self.double_buffer)}
        return {
            "BLOCK_M": self.block_m, "BLOCK_N": self.block_n, "WARPS_M": self.warps_m,
            "WARPS_N": self.warps_n, "STAGES": self.stages, "BLOCKS": self.residents,
            **({} if self.bulk else by_async),
        }  # fmt: skip

    def takes(
        self, dtype: str, a_is_k_major: bool, b_is_k_major: bool, is_mapped: bool, is_wide: bool
    ) -> bool:
        """Return whether the kernel can read A and B; the parameters are those of Tiles."""
        return dtype == "float64" and (is_mapped or not self.bulk)

    def box(self, edge: int, is_k_major: bool) -> tuple[int, int]:
        """Return the box of one bulk copy from a matrix of which a tile has ``edge`` rows."""
        return self.block_k, (edge if is_k_major else self.block_k)

    def shared(self, dtype: str, a_is_k_major: bool, b_is_k_major: bool) -> int:
        """Return the bytes of a block's shared memory."""
        rows = self.block_m + self.block_n + (0 if self.bulk else 2 * PADDING)
        return self.stages * (self.block_k * rows * ITEM_SIZES[dtype] + self.bulk * BARRIERS)


AnyTiles = Tiles | TensorTiles

# Small tiles, by their rows.
SMALL: dict[str, dict[int, Tiles]] = {
    "float32": {
        16: Tiles(16, 64, 32, 4, 4, 4, 3, True, (2, 1, 1, 1), 3, slices=4),
        32: Tiles(32, 64, 32, 4, 8, 8, 3, True, (1, 4, 1, 1), 2, slices=4),
    },
    "float64": {
        16: Tiles(16, 64, 16, 4, 4, 4, 3, True, (4, 1, 0, 0), 7),
        32: Tiles(32, 64, 8, 4, 8, 4, 4, False, (1, 4, 1, 1), 8),
    },
}

# The tiles that the planner chooses from: those that together lose least on random products and on
# the suites (benchmarks/fit_simt.py). They are few, because each needs kernels for every layout and
# alignment.
TILES: dict[str, tuple[Tiles, ...]] = {
    "float32": (
        Tiles(16, 64, 32, 4, 4, 4, 4, True, (2, 4, 1, 1), 5, slices=2),
        Tiles(32, 64, 32, 4, 4, 8, 3, True, (4, 1, 0, 0), 5),
        Tiles(16, 128, 32, 4, 8, 4, 2, False, (2, 1, 0, 1), 5, slices=2),
        Tiles(128, 16, 16, 8, 4, 8, 4, True, (4, 1, 1, 1), 6),
        Tiles(128, 32, 16, 8, 4, 8, 3, False, (4, 1, 0, 0), 5),
        Tiles(128, 64, 16, 8, 8, 4, 3, False, (4, 2, 0, 1), 4),
        Tiles(64, 128, 16, 8, 8, 2, 3, False, (4, 2, 0, 1), 4),
        Tiles(96, 192, 8, 12, 12, 8, 3, True, (4, 1, 0, 0), 2, wide_only=True),
        Tiles(192, 192, 8, 12, 12, 8, 3, True, (1, 1, 1, 0), 1, wide_only=True),
        Tiles(64, 128, 16, 8, 8, 4, 3, True, (4, 1, 0, 1), 4, bulk=True),
        Tiles(64, 256, 16, 8, 16, 2, 3, True, (1, 8, 1, 1), 2, bulk=True, level=1),
    ),
    "float64": (
        # Not the ladder's 8 blocks of a multiprocessor, since the epilogue takes too many
        # registers.
        replace(SMALL["float64"][32], residents=6),
        Tiles(64, 64, 16, 8, 8, 8, 2, True, (2, 1, 0, 0), 4, level=1),
        Tiles(16, 64, 16, 4, 8, 4, 3, False, (4, 2, 0, 1), 7),
        Tiles(64, 16, 16, 8, 4, 8, 3, False, (2, 4, 1, 0), 7),
    ),
}

TENSOR_TILES = (
    TensorTiles(192, 128, 4, 2, 5, 1),
    TensorTiles(128, 128, 2, 4, 6, 1),
    TensorTiles(128, 64, 4, 2, 4, 2),
    TensorTiles(64, 128, 2, 4, 4, 2),
    TensorTiles(64, 64, 2, 2, 3, 4),
    TensorTiles(64, 32, 2, 2, 6, 3),
    TensorTiles(32, 64, 2, 2, 6, 3),
    TensorTiles(32, 32, 2, 2, 6, 4),
    TensorTiles(16, 128, 1, 4, 4, 3),
    TensorTiles(64, 64, 2, 2, 3, 3, bulk=False, double_buffer=True),
    TensorTiles(128, 32, 4, 1, 3, 3, bulk=False),
    TensorTiles(32, 128, 1, 4, 3, 3, bulk=False, double_buffer=True),
    TensorTiles(32, 64, 2, 2, 4, 4, bulk=False, double_buffer=True),
    TensorTiles(32, 32, 2, 2, 4, 5, bulk=False, double_buffer=True),
)

# The tiles of every kernel, by dtype.
EVERY: dict[str, tuple[AnyTiles, ...]] = {
    **TILES,
    "float64": (*TILES["float64"], *TENSOR_TILES),
}


@cache
def tiles_for(dtype: str, chip: Chip) -> tuple[AnyTiles, ...]:
    """Return the tiles for a GPU, only those for tensor cores if it has them for the dtype.

    The number of resident blocks is limited by a multiprocessor's shared memory.
    """
    by_tensor_cores = dtype == "float64" and chip.has_float64_tensor_cores
    return tuple(
        _resident(tiles, dtype, chip)
        for tiles in EVERY[dtype]
        if tiles.by_tensor_cores == by_tensor_cores and (chip.is_hopper or not tiles.bulk)
    )


def _resident(tiles: AnyTiles, dtype: str, chip: Chip) -> AnyTiles:
    room = chip.shared // (tiles.shared(dtype, False, False) + RESERVED_SHARED)
    return tiles if tiles.residents <= room else replace(tiles, residents=room)


# The tiles of the ladder's rung ``tuned``, by their rows. The orders that suit one kernel's machine
# code do not suit another's, so a sweep of the rung's own chose the large ones.
RUNG: dict[str, dict[int, Tiles]] = {
    "float32": {
        **SMALL["float32"],
        64: Tiles(64, 128, 16, 8, 8, 2, 3, False, (1, 4, 0, 1), 4),
        96: Tiles(96, 192, 8, 12, 12, 8, 3, True, (1, 2, 0, 0), 2),
        128: Tiles(128, 256, 8, 8, 16, 16, 3, True, (1, 4, 0, 1), 1),
        192: Tiles(192, 192, 8, 12, 12, 8, 3, True, (4, 1, 0, 0), 1),
    },
    "float64": {
        **SMALL["float64"],
        64: Tiles(64, 64, 16, 8, 8, 8, 2, True, (1, 1, 0, 0), 4, level=1),
        # Not measured; it has two stages where three take more than the 48 KB of a static array.
        96: Tiles(96, 64, 8, 6, 8, 8, 3, True, (2, 4, 1, 0), 2, level=1),
        128: Tiles(128, 128, 8, 8, 8, 8, 2, True, (4, 4, 1, 0), 1, level=1),
        192: Tiles(192, 64, 8, 12, 8, 8, 2, True, (4, 1, 0, 0), 1),
    },
}
# The rows of the rung's tiles that store an unaligned D through shared memory: with it, 2049 cubed
# takes 393 µs instead of 416. The loops of the other tiles are slower with it, because the compiler
# chooses other registers for them.
RUNG_STAGED = (192,)
