"""Compare tile sizes: what each loads, reuses and takes, counted without running anything.

A block computes a tile of C, BLOCK_M x BLOCK_N. In each phase it loads a tile of A and one of B,
BLOCK_K deep, into shared memory; each thread keeps THREAD_M x THREAD_N sums in registers. With one
thread for each element, and square tiles, that is the ladder's rung ``tiled``. D. Kirk, W. Hwu,
"Programming Massively Parallel Processors", ch. 5 and 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.limits import MAX_GRID, MAX_THREADS
from tilewise.devices.occupancy import Multiprocessor, Occupancy, multiprocessor, occupancy
from tilewise.ladder.geometry import real_of
from tilewise.ladder.problem import check_sizes
from tilewise.places import Dim3


@dataclass(frozen=True)
class Shape:
    """A size of tiles.

    Attributes
    ----------
    block_m, block_n : int
        The rows and columns of a block's tile of C.
    block_k : int
        The depth of the tiles of A and B: a phase's step along k.
    thread_m, thread_n : int
        The rows and columns of a thread's tile of C.

    Raises
    ------
    ValueError
        If the tile is empty, can't be cut into threads' tiles, or takes more than 1024 threads.
    """

    block_m: int
    block_n: int
    block_k: int
    thread_m: int = 1
    thread_n: int = 1

    def __post_init__(self) -> None:
        extents = (self.block_m, self.block_n, self.block_k, self.thread_m, self.thread_n)
        if min(extents) < 1:
            raise ValueError(f"a tile of {self.name}: every extent must be at least 1")
        if self.block_m % self.thread_m or self.block_n % self.thread_n:
            raise ValueError(
                f"a tile of {self.name}: {self.block_m} x {self.block_n} can't be cut into "
                f"threads' tiles of {self.thread_m} x {self.thread_n}"
            )
        if self.threads > MAX_THREADS:
            raise ValueError(
                f"a tile of {self.name} takes {self.threads:,} threads; a block has at most "
                f"{MAX_THREADS:,}"
            )

    @property
    def name(self) -> str:
        """The name: ``"TILE 16"``, or ``"128x128x8 of 8x8"`` with the thread's tile."""
        if (self.thread_m, self.thread_n) == (1, 1) and (
            self.block_m == self.block_n == self.block_k
        ):
            return f"TILE {self.block_m}"
        block = f"{self.block_m}x{self.block_n}x{self.block_k}"
        return f"{block} of {self.thread_m}x{self.thread_n}"

    @property
    def accumulators(self) -> int:
        """The number of sums that a thread keeps in registers."""
        return self.thread_m * self.thread_n

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.block_m * self.block_n // self.accumulators

    @property
    def loads(self) -> int:
        """The elements that a block loads from global memory in a phase."""
        return (self.block_m + self.block_n) * self.block_k

    @property
    def multiply_adds(self) -> int:
        """The multiply-adds of a block in a phase."""
        return self.block_m * self.block_n * self.block_k

    @property
    def operations(self) -> int:
        """The multiplications and additions of a block in a phase."""
        return 2 * self.multiply_adds

    @property
    def operations_a_load(self) -> float:
        """The operations for each element that is loaded from global memory."""
        return self.operations / self.loads


SQUARES = tuple(Shape(tile, tile, tile) for tile in (2, 4, 8, 16, 32))
"""The ladder's square tiles: one thread for each element, at most 1024 threads."""

# From each tile to the next one thing grows: the thread's tile, the block's, or the depth. Blocks
# have 64 to 512 threads, each of which loads the same number of elements in a phase. Up to 64 sums
# leave room in a thread's 255 registers, even if a sum is a double and takes two.
THREAD_TILES = (
    Shape(64, 64, 8, 4, 4),
    Shape(64, 64, 8, 8, 8),
    Shape(128, 64, 8, 8, 4),
    Shape(128, 64, 8, 8, 8),
    Shape(128, 128, 8, 8, 8),
    Shape(128, 128, 16, 8, 8),
    Shape(256, 128, 8, 8, 8),
)


@dataclass(frozen=True)
class Tile:
    """A size of tiles on a product C = A B.

    Attributes
    ----------
    shape : Shape
    m, n, k : int
        The sizes: C is m x n, A is m x k, B is k x n.
    dtype : str
        The dtype of all three.
    occupancy : Occupancy or None
        The occupancy; None if ``misfit`` says why no such block can be launched.
    misfit : str
        Why no such block can be launched; empty if it can.
    """

    shape: Shape
    m: int
    n: int
    k: int
    dtype: str
    occupancy: Occupancy | None
    misfit: str = ""

    @property
    def shared_bytes(self) -> int:
        """The bytes of shared memory of a block: the tile of A and the tile of B."""
        return self.shape.loads * np.dtype(self.dtype).itemsize

    @property
    def grid(self) -> Dim3:
        """The blocks of the grid, with C's columns along x."""
        return _grid(self.shape, self.m, self.n)

    @property
    def blocks(self) -> int:
        """The number of blocks in the grid."""
        return self.grid[0] * self.grid[1]

    @property
    def phases(self) -> int:
        """The number of phases of a block."""
        return -(-self.k // self.shape.block_k)

    @property
    def loaded(self) -> int:
        """The elements that all blocks load from global memory; none outside the matrices."""
        columns_of_blocks, rows_of_blocks, _ = self.grid
        return self.k * (self.m * columns_of_blocks + self.n * rows_of_blocks)

    @property
    def loaded_untiled(self) -> int:
        """The elements loaded without tiles, if a thread reads a row of A and a column of B."""
        return 2 * self.m * self.n * self.k

    @property
    def traffic_bytes(self) -> int:
        """The bytes of ``loaded``."""
        return self.loaded * np.dtype(self.dtype).itemsize

    @property
    def untiled_bytes(self) -> int:
        """The bytes of ``loaded_untiled``."""
        return self.loaded_untiled * np.dtype(self.dtype).itemsize

    @property
    def traffic_ratio(self) -> float:
        """The ratio of ``loaded`` to ``loaded_untiled``: 1/TILE if square tiles fit."""
        return self.loaded / self.loaded_untiled

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        shape = self.shape
        return {
            "name": shape.name,
            "block_m": shape.block_m,
            "block_n": shape.block_n,
            "block_k": shape.block_k,
            "thread_m": shape.thread_m,
            "thread_n": shape.thread_n,
            "threads": shape.threads,
            "accumulators": shape.accumulators,
            "shared_bytes": self.shared_bytes,
            "loads": shape.loads,
            "multiply_adds": shape.multiply_adds,
            "operations": shape.operations,
            "operations_a_load": shape.operations_a_load,
            "grid": list(self.grid),
            "blocks": self.blocks,
            "phases": self.phases,
            "loaded": self.loaded,
            "traffic_bytes": self.traffic_bytes,
            "untiled_bytes": self.untiled_bytes,
            "traffic_ratio": self.traffic_ratio,
            "occupancy": None if self.occupancy is None else self.occupancy.to_dict(),
            "misfit": self.misfit,
        }


def tiles(
    m: int,
    n: int,
    k: int,
    dtype: npt.DTypeLike = "float32",
    arch: str | Multiprocessor = "sm_90",
    *,
    registers: int = 0,
    shapes: Sequence[Shape] = SQUARES + THREAD_TILES,
) -> tuple[Tile, ...]:
    """Return what each size of tiles does for C = A B.

    Parameters
    ----------
    m, n, k : int
        The sizes: C is m x n, A is m x k, B is k x n.
    dtype : str or dtype
        The dtype, float32 or float64.
    arch : str or Multiprocessor
        The architecture, as in ``"sm_90"``, or a description of another multiprocessor.
    registers : int
        The registers of a thread, for all tiles; by default the occupancy ignores them, because the
        compiler decides how many a kernel takes.
    shapes : sequence of Shape
        The sizes of tiles, by default the ladder's square tiles and some with a tile for each
        thread.

    Raises
    ------
    TypeError
        If a size is not an integer, or the dtype is another one.
    ValueError
        If a size is below 1 or over 2**31 - 1, a thread has no such number of registers, or the
        architecture is not known.

    Examples
    --------
    >>> tile = tiles(1024, 1024, 1024)[3]
    >>> tile.shape.name, tile.shape.loads, tile.shape.operations, tile.traffic_ratio
    ('TILE 16', 512, 8192, 0.0625)
    """
    check_sizes(m, n, k)
    real_of(dtype)
    kind = np.dtype(dtype)
    place = multiprocessor(arch) if isinstance(arch, str) else arch
    occupancy(place, 1, registers, 0)  # raises an error for a number that no thread can have
    found = []
    for shape in shapes:
        shared = shape.loads * kind.itemsize
        misfit = _misfit(shape, m, n, shared, place)
        fitting = None if misfit else occupancy(place, shape.threads, registers, shared)
        found.append(Tile(shape, m, n, k, kind.name, fitting, misfit))
    return tuple(found)


def _grid(shape: Shape, m: int, n: int) -> Dim3:
    return -(-n // shape.block_n), -(-m // shape.block_m), 1


def _misfit(shape: Shape, m: int, n: int, shared: int, place: Multiprocessor) -> str:
    """Return why no such block, or no such grid, can be launched; empty if it can."""
    if shared > place.max_shared:
        return (
            f"{shape.name} takes {shared:,} bytes of shared memory a block; a block of "
            f"{place.name} has at most {place.max_shared:,}"
        )
    for axis, blocks, most in zip("xyz", _grid(shape, m, n), MAX_GRID, strict=True):
        if blocks > most:
            return f"{shape.name} takes {blocks:,} blocks along {axis}; a grid has at most {most:,}"
    return ""
