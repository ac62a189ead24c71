"""The ladder: kernels for one and the same product, each one idea faster than the last.

Every rung is a file of ``kernels/ladder/`` with one signature (BLAS's order, row-major)::

    NAME(int m, int n, int k, real alpha, const real* a, int lda,
         const real* b, int ldb, real beta, real* c, int ldc)

and computes C = alpha A B + beta C at any size. With ``beta`` 0 it never reads C, with ``alpha``
0 never A or B.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tilewise.devices.limits import MAX_GRID, MAX_THREADS
from tilewise.kernel import Kernel
from tilewise.launch import Dim3
from tilewise.numbers import DTYPES

FOLDER = Path(__file__).parent / "kernels" / "ladder"
TILES = range(2, 33)  # TILE x TILE threads a block, and a block has at most 1024
THREADS_A_BLOCK = MAX_THREADS
GRID_X, GRID_Y, _ = MAX_GRID
REAL = {"float32": "float", "float64": "double"}  # the macro ``real``

Geometry = tuple[Dim3, Dim3]
_Rule = Callable[[int, int, int], Geometry]


def _one_thread(m: int, n: int, tile: int) -> Geometry:
    return (1, 1, 1), (1, 1, 1)


def _one_block(m: int, n: int, tile: int) -> Geometry:
    if m * n > THREADS_A_BLOCK:
        raise ValueError(
            f"single_block has a thread for each element of C in one block, at most "
            f"{THREADS_A_BLOCK}; {m} x {n} is {m * n}. Take a smaller C, or another kernel"
        )
    return (1, 1, 1), (max(m, 1), max(n, 1), 1)


def rows_along_x(m: int, n: int, tile: int) -> Geometry:
    """Blocks of ``tile`` x ``tile`` threads over C, its rows along x."""
    return (_tiles(m, tile, "m", GRID_X), _tiles(n, tile, "n", GRID_Y), 1), (tile, tile, 1)


def columns_along_x(m: int, n: int, tile: int) -> Geometry:
    """Blocks of ``tile`` x ``tile`` threads over C, its columns along x."""
    return (_tiles(n, tile, "n", GRID_X), _tiles(m, tile, "m", GRID_Y), 1), (tile, tile, 1)


def _tiles(size: int, tile: int, name: str, limit: int) -> int:
    count = max(-(-size // tile), 1)
    if count > limit:
        raise ValueError(
            f"{name} is {size}; with tiles of {tile} that is {count} blocks, and a grid has at "
            f"most {limit} that way: {name} may be {limit * tile} at most"
        )
    return count


def check_tile(tile: int) -> int:
    """``tile``, if it is one.

    Raises
    ------
    TypeError
        If it is no integer.
    ValueError
        If it is not from 2 to 32.
    """
    if isinstance(tile, bool) or not hasattr(tile, "__index__"):
        raise TypeError(f"tile is {tile!r}; it must be an integer")
    if tile not in TILES:
        raise ValueError(f"tile is {tile}; it must be from {TILES[0]} to {TILES[-1]}")
    return int(tile)


def real_of(dtype: npt.DTypeLike) -> str:
    """The C++ type of ``dtype``: the macro ``real``.

    Raises
    ------
    TypeError
        If it is neither float32 nor float64.
    """
    name = np.dtype(dtype).name
    if name not in REAL:
        raise TypeError(f"dtype {name} is not supported; there are {', '.join(DTYPES)}")
    return REAL[name]


@dataclass(frozen=True)
class Rung:
    """One kernel of the ladder.

    Attributes
    ----------
    number : int
        From 1.
    name : str
        Of the kernel's function.
    idea : str
        What it does, in one sentence.
    lesson : str
        What running it shows, in one sentence.
    default_tile : int or None
        Edge of a block where none is asked for; None for a rung that has no tiles.
    """

    number: int
    name: str
    idea: str
    lesson: str
    default_tile: int | None
    _rule: _Rule = field(repr=False)

    @property
    def path(self) -> Path:
        """The CUDA C++ file."""
        return FOLDER / f"{self.number:02d}_{self.name}.cu"

    def tile(self, tile: int | None = None) -> int | None:
        """The tile to use where ``tile`` is asked for; None for a rung that has none.

        Raises
        ------
        TypeError
            If it is no integer.
        ValueError
            If it is not from 2 to 32, or the rung has no tiles.
        """
        if self.default_tile is None:
            if tile is not None:
                raise ValueError(f"{self.name} has no tiles, so tile {tile} means nothing to it")
            return None
        return self.default_tile if tile is None else check_tile(tile)

    def kernel(self, dtype: npt.DTypeLike = "float32", tile: int | None = None) -> Kernel:
        """The kernel for matrices of ``dtype``.

        Raises
        ------
        TypeError
            If ``dtype`` is not supported.
        ValueError
            As :meth:`tile`.
        """
        defines: dict[str, str | int] = {"real": real_of(dtype)}
        edge = self.tile(tile)
        if edge is not None:
            defines["TILE"] = edge
        return Kernel(self.path, self.name, defines)

    def geometry(self, m: int, n: int, tile: int | None = None) -> Geometry:
        """Grid and block for an m x n matrix C, each as (x, y, z).

        Raises
        ------
        ValueError
            As :meth:`tile`; if C has more elements than this rung can do; if the grid would pass
            CUDA's limits.
        """
        if m < 0 or n < 0:
            raise ValueError(f"C is {m} x {n}; a size must be at least 0")
        return self._rule(m, n, self.tile(tile) or 1)


RUNGS = (
    Rung(
        1,
        "single_thread",
        "One thread computes all of C.",
        "A GPU's one lane is slower than a CPU's core: all of its speed is in their number.",
        None,
        _one_thread,
    ),
    Rung(
        2,
        "single_block",
        "Each element of C has a thread, and one block holds them all.",
        "A block ends at 1024 threads and runs on one multiprocessor; the others stand idle.",
        None,
        _one_block,
    ),
    Rung(
        3,
        "naive",
        "Many blocks cover C; a warp's threads stand one below the other, in 32 rows.",
        "Any size works, but a load of A fetches a 32-byte sector for each thread's 4 bytes.",
        32,
        rows_along_x,
    ),
    Rung(
        4,
        "coalesced",
        "A warp's threads stand side by side in one row of C.",
        "Swapping two indices cuts the sectors of a load to an eighth: neighbours share them.",
        32,
        columns_along_x,
    ),
    Rung(
        5,
        "tiled",
        "A block loads a tile of A and of B into shared memory, and each thread reuses both.",
        "Global loads fall to 1/TILE; larger tiles reuse more and take more shared memory.",
        32,
        columns_along_x,
    ),
    Rung(
        6,
        "tiled_conflicts",
        "The same with both tiles stored transposed.",
        "The result is as right, but a warp's lanes meet in one bank and are served in turn.",
        32,
        columns_along_x,
    ),
    Rung(
        7,
        "tiled_branchless",
        "The tiled kernel with clamped indices and selects in place of branches at the edge.",
        "Only blocks at the edge diverge, so there is little to win: the speed hardly changes.",
        32,
        columns_along_x,
    ),
)


def rung(name: str) -> Rung:
    """The rung called ``name``.

    Raises
    ------
    ValueError
        If there is none of that name; the message lists those there are.
    """
    for candidate in RUNGS:
        if candidate.name == name:
            return candidate
    names = ", ".join(candidate.name for candidate in RUNGS)
    raise ValueError(f"no kernel called {name!r} on the ladder; there are {names}")
