"""The sizes of the kernels for float32 and float64."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from tilewise.gemm.families.simt.timing import Timed
from tilewise.gemm.product import ITEM_SIZES

PADDING = 4  # of pipeline.cuh
SWIZZLE, SWIZZLED = 128, 1024  # bytes, of simt_tma.cuh
BARRIERS = 16  # bytes of a stage, of dmma_tma.cuh


@dataclass(frozen=True)
class Tiles(Timed):
    """The sizes of one kernel: macros of ``simt.cuh``. How they were found: docs/tuning.md.

    Attributes
    ----------
    block_m, block_n, block_k : int
        A block's tiles of D, and how deep those of A and B are.
    thread_m, thread_n : int
        What a thread computes.
    lanes_m : int
        Of a warp's 32 lanes, how many lie down its rows.
    stages : int
        Of tiles in shared memory.
    ahead : bool
        Whether a step's operands are read the step before.
    order : (int, int, int, int)
        ``ORDER_M``, ``ORDER_N``, ``BY_ROWS`` and ``INNER_BY_ROWS``: how a thread goes through
        its elements.
    residents : int
        Blocks of a multiprocessor at once.
    bulk : bool
        Whether tiles are copied by tensor maps, on a Hopper GPU: ``simt_tma.cuh``.
    level : int
        Of ptxas's optimization. At 1 it keeps the order of the multiply-adds.
    slices : int
        Groups of as many warps that share each k-step.
    wide_only : bool
        Whether A and B are only read by 16 bytes, both MN-major. Products that suit such large
        tiles have others copied before.
    """

    block_m: int
    block_n: int
    block_k: int
    thread_m: int
    thread_n: int
    lanes_m: int
    stages: int
    ahead: bool
    order: tuple[int, int, int, int]
    residents: int
    bulk: bool = False
    level: int = 3
    slices: int = 1
    wide_only: bool = False

    kernel = "gemm_simt"
    words = "the kernel without tensor cores"

    @property
    def needs_hopper(self) -> bool:
        """Whether other GPUs can't run it."""
        return self.bulk

    def __str__(self) -> str:
        name = f"{self.block_m}x{self.block_n}x{self.block_k} by {self.thread_m}x{self.thread_n}"
        name += " bulk" * self.bulk
        return f"{name} in {self.slices} slices" if self.slices > 1 else name

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @property
    def threads(self) -> int:
        return self.slices * self.block_m * self.block_n // (self.thread_m * self.thread_n)

    @property
    def macros(self) -> dict[str, int]:
        """What they are to the kernels."""
        order_m, order_n, by_rows, inner_by_rows = self.order
        return {
            "BLOCK_M": self.block_m, "BLOCK_N": self.block_n, "BLOCK_K": self.block_k,
            "THREAD_M": self.thread_m, "THREAD_N": self.thread_n, "LANES_M": self.lanes_m,
            "STAGES": self.stages, "DOUBLE_BUFFER": int(self.ahead), "ORDER_M": order_m,
            "ORDER_N": order_n, "BY_ROWS": by_rows, "INNER_BY_ROWS": inner_by_rows,
            "BLOCKS": self.residents, "SLICES": self.slices,
        }  # fmt: skip

    @property
    def options(self) -> tuple[str, ...]:
        """For NVRTC."""
        return () if self.level == 3 else (f"--ptxas-options=-O{self.level}",)

    def takes(
        self, dtype: str, a_along_k: bool, b_along_k: bool, are_aligned: bool, are_wide: bool
    ) -> bool:
        """Whether it can copy A and B as they lie.

        ``are_aligned`` for bulk copies; ``are_wide`` where both are MN-major, to be copied by 16
        bytes.
        """
        if not self.bulk:
            return are_wide or not self.wide_only
        # A swizzled line's pieces are where a thread expects them if a warp's lines of one index
        # have 128 bytes between them. A thread stores pieces of D, so B is MN-major.
        reads_along_k = self.lanes_m * self.block_k * ITEM_SIZES[dtype] == SWIZZLE
        return are_aligned and not b_along_k and (reads_along_k or not a_along_k)

    def box(self, edge: int, along_k: bool) -> tuple[int, int]:
        """What of A or B, of whose lines a tile has ``edge``, one bulk copy brings."""
        return (self.block_k, edge) if along_k else (edge, self.block_k)

    def shared(self, dtype: str, a_along_k: bool, b_along_k: bool) -> int:
        """Bytes of a block."""
        if self.bulk:
            tiles = self.block_k * (self.block_m + self.block_n) * ITEM_SIZES[dtype]
            return self.stages * (tiles + SWIZZLED)
        lines = self.block_m + PADDING * a_along_k + self.block_n + PADDING * b_along_k
        return self.stages * self.block_k * lines * ITEM_SIZES[dtype]


@dataclass(frozen=True)
class TensorTiles(Timed):
    """The sizes of the kernel by tensor cores, for float64 on Hopper GPUs: macros of ``dmma.cu``.

    Attributes
    ----------
    block_m, block_n : int
        A block's tiles of D.
    warps_m, warps_n : int
        How many warps share it, down and across.
    stages : int
        Of tiles in shared memory.
    residents : int
        Blocks of a multiprocessor at once.
    bulk : bool
        Whether tiles are copied by tensor maps.
    ahead : bool
        Of those that are not, whether a step's operands are read the step before.
    """

    block_m: int
    block_n: int
    warps_m: int
    warps_n: int
    stages: int
    residents: int
    bulk: bool = True
    ahead: bool = False
    block_k: int = field(default=16, init=False)

    kernel = "gemm_dmma"
    needs_hopper = True
    options: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        how = "" if self.bulk else ", cp.async"
        return f"{self.block_m}x{self.block_n} by tensor cores{how}"

    @property
    def words(self) -> str:
        """For people."""
        how = "" if self.bulk else ", without tensor maps"
        return f"the kernel by tensor cores{how}"

    @property
    def threads(self) -> int:
        return 32 * self.warps_m * self.warps_n

    @property
    def macros(self) -> dict[str, int]:
        """What they are to the kernel."""
        of_copies = {} if self.bulk else {"BLOCK_K": self.block_k, "DOUBLE_BUFFER": int(self.ahead)}
        return {
            "BLOCK_M": self.block_m, "BLOCK_N": self.block_n, "WARPS_M": self.warps_m,
            "WARPS_N": self.warps_n, "STAGES": self.stages, "BLOCKS": self.residents, **of_copies,
        }  # fmt: skip

    def takes(
        self, dtype: str, a_along_k: bool, b_along_k: bool, are_aligned: bool, are_wide: bool
    ) -> bool:
        """Whether it can copy A and B as they lie."""
        return dtype == "float64" and (are_aligned or not self.bulk)

    def box(self, edge: int, along_k: bool) -> tuple[int, int]:
        """What of A or B, of whose lines a tile has ``edge``, one bulk copy brings."""
        return self.block_k, edge if along_k else self.block_k

    def shared(self, dtype: str, a_along_k: bool, b_along_k: bool) -> int:
        """Bytes of a block."""
        lines = self.block_m + self.block_n + (0 if self.bulk else 2 * PADDING)
        return self.stages * (self.block_k * lines * ITEM_SIZES[dtype] + self.bulk * BARRIERS)


AnyTiles = Tiles | TensorTiles

# By the rows of a tile.
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

# Those that the planner chooses among: the ones that together lose least on random products and on
# the suites (benchmarks/fit_simt.py), for each brings kernels for every layout and alignment.
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
        SMALL["float64"][32],
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
    TensorTiles(64, 64, 2, 2, 3, 3, bulk=False, ahead=True),
    TensorTiles(32, 128, 1, 4, 3, 3, bulk=False, ahead=True),
    TensorTiles(32, 64, 2, 2, 4, 4, bulk=False, ahead=True),
    TensorTiles(32, 32, 2, 2, 4, 5, bulk=False, ahead=True),
)

# Of every kernel for a dtype.
EVERY: dict[str, tuple[AnyTiles, ...]] = {
    **TILES,
    "float64": (*TILES["float64"], *TENSOR_TILES),
}


def tiles_for(dtype: str, is_hopper: bool) -> tuple[AnyTiles, ...]:
    """Return the tiles for a GPU: those by tensor cores alone where it has them for the dtype."""
    if is_hopper:
        return TENSOR_TILES if dtype == "float64" else EVERY[dtype]
    return tuple(tiles for tiles in EVERY[dtype] if not tiles.needs_hopper)


# Of the ladder's ``tuned``, by the rows of a tile. The orders that suit one kernel's machine code
# are not those of another's: the large ones are of a sweep of its own.
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
        # Not measured; of two stages where three take more than the 48 KB of a static array.
        96: Tiles(96, 64, 8, 6, 8, 8, 3, True, (2, 4, 1, 0), 2, level=1),
        128: Tiles(128, 128, 8, 8, 8, 8, 2, True, (4, 4, 1, 0), 1, level=1),
        192: Tiles(192, 64, 8, 12, 8, 8, 2, True, (4, 1, 0, 0), 1),
    },
}
# Those, by the rows of a tile, that store what is not 16-byte aligned by way of shared memory: with
# it 2049 cubed takes 393 µs and not 416. The others' loops are slower with it, for the compiler
# chooses other registers for them.
RUNG_STAGED = (192,)
