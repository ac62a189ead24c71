"""Divide C as a rung does: its kernel's macros, its grid and its block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy.typing as npt

from tilewise.devices.limits import MAX_GRID, MAX_THREADS
from tilewise.gemm.chip import H200
from tilewise.gemm.families.simt import k_steps
from tilewise.gemm.families.simt.matrices import Access
from tilewise.gemm.families.simt.table import Table, Way
from tilewise.gemm.families.simt.tiles import RUNG as TUNED
from tilewise.gemm.families.simt.tiles import RUNG_STAGED
from tilewise.gemm.product import ALIGNMENT, REAL
from tilewise.places import ITEM_SIZES, Dim3, TensorMap
from tilewise.precision import DTYPES, HALVES, REALS, name_of

TILES = range(2, 33)  # TILE x TILE threads a block, which has at most 1024
THREADS_A_BLOCK = MAX_THREADS
GRID_X, GRID_Y, _ = MAX_GRID
WARP = 32  # threads
DEFAULT_SIZE = 64  # the default of m, n and k

RINGS = {
    tile: {
        "BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "WARP_M": warp, "WARP_N": warp, "STAGES": stages,
        "BLOCKS": blocks,
    }
    for tile, (m, n, k, warp, stages, blocks) in {
        64: (64, 64, 32, 32, 4, 4), 128: (128, 128, 32, 64, 4, 2), 256: (128, 256, 32, 64, 4, 1),
    }.items()
}  # fmt: skip
"""The tiles of ``multistage``, by the width of a block's tile; each ring fits 99 KB."""
RING_RATES = {64: 0.5, 128: 0.9, 256: 1.0}
"""The relative speed of a multiprocessor with these tiles, estimated from the L2 bytes of a
multiply-add and not measured.
"""

Geometry = tuple[Dim3, Dim3]
Macros = dict[str, int]
Rule = Callable[[int, int, int, str], Geometry]


class Sizes(NamedTuple):
    """The sizes of a product: C is m x n, A is m x k; leading dimensions are in elements."""

    m: int
    n: int
    k: int
    lda: int
    ldb: int
    ldc: int


def one_thread(m: int, n: int, tile: int, dtype: str) -> Geometry:
    return (1, 1, 1), (1, 1, 1)


def one_block(m: int, n: int, tile: int, dtype: str) -> Geometry:
    if m * n > THREADS_A_BLOCK:
        raise ValueError(
            f"single_block has a thread for each element of C in one block, at most "
            f"{THREADS_A_BLOCK:,}; {m:,} x {n:,} is {m * n:,}. Take a smaller C, or another kernel"
        )
    return (1, 1, 1), (max(m, 1), max(n, 1), 1)


def rows_along_x(m: int, n: int, tile: int, dtype: str = "") -> Geometry:
    """Return blocks of ``tile`` x ``tile`` threads over C, with its rows along x."""
    return (_tiles(m, tile, "m", GRID_X), _tiles(n, tile, "n", GRID_Y), 1), (tile, tile, 1)


def columns_along_x(m: int, n: int, tile: int, dtype: str = "") -> Geometry:
    """Return blocks of ``tile`` x ``tile`` threads over C, with its columns along x."""
    return (_tiles(n, tile, "n", GRID_X), _tiles(m, tile, "m", GRID_Y), 1), (tile, tile, 1)


def no_options(tile: int, dtype: str) -> tuple[str, ...]:
    return ()


def no_shared(macros: Macros) -> int:
    return 0


def no_trailing(sizes: Sizes, macros: Macros, dtype: str) -> tuple[TensorMap | bytes, ...]:
    return ()


def square(tile: int, dtype: str) -> Macros:
    return {"TILE": tile}


def column(tile: int, dtype: str) -> Macros:
    """Return the macros for threads that compute a column of elements each."""
    return {"BLOCK_M": tile, "BLOCK_N": tile, "BLOCK_K": 8, "THREAD_M": 8}


def rectangle(tile: int, dtype: str) -> Macros:
    """Return the macros for threads that compute a square of elements each, in whole warps."""
    edge = 8 if tile >= 64 else 4
    blocks = {"BLOCK_M": tile, "BLOCK_N": tile, "BLOCK_K": 8}
    return {**blocks, "THREAD_M": edge, "THREAD_N": edge}


def fragments(tile: int, dtype: str) -> Macros:
    """Return the macros for warps that compute tiles of their own, by tensor cores."""
    block = {"BLOCK_M": tile, "BLOCK_N": tile, "BLOCK_K": 32}
    return block | {"WARP_M": tile // 2, "WARP_N": 32 if tile > 64 else tile // 2}


def ring(tile: int, dtype: str) -> Macros:
    """Return the macros for a ring of tiles of 16-bit elements."""
    return RINGS[tile]


def ring_tile(m: int, n: int, k: int, dtype: str) -> int:
    """Return the tile that should be the fastest for a product on an H200, by the time of the
    multiprocessor with the most blocks.
    """

    def cost(tile: int) -> float:
        sizes = RINGS[tile]
        block_m, block_n = sizes["BLOCK_M"], sizes["BLOCK_N"]
        blocks = max(-(-m // block_m), 1) * max(-(-n // block_n), 1)
        return -(-blocks // H200.multiprocessors) * block_m * block_n / RING_RATES[tile]

    fitting = [tile for tile in RINGS if m <= GRID_Y * RINGS[tile]["BLOCK_M"]]
    return min(fitting or RINGS, key=cost)


def ring_bytes(macros: Macros) -> int:
    """Return the bytes of shared memory of a ring of tiles."""
    deep = (macros["BLOCK_M"] + macros["BLOCK_N"]) * macros["BLOCK_K"]
    return 2 * macros["STAGES"] * deep


def tuned_macros(tile: int, dtype: str) -> Macros:
    return TUNED[dtype][tile].macros | {"STAGED": int(tile in RUNG_STAGED)}


def tuned_options(tile: int, dtype: str) -> tuple[str, ...]:
    return TUNED[dtype][tile].options


def tuned_tile(m: int, n: int, k: int, dtype: str) -> int:
    """Return the measured tile that should be the fastest for a product on an H200."""
    a, b = (each * ITEM_SIZES[dtype] % ALIGNMENT != 0 for each in (k, n))
    table = _tuned_table(dtype, a, b)
    seconds = table.seconds(max(m, 1), max(n, 1), k, 1, is_unaligned=b)[:, 0]
    measured = _measured(dtype)
    fitting = [i for i, tile in enumerate(measured) if m <= GRID_Y * TUNED[dtype][tile].block_m]
    return measured[min(fitting or range(len(measured)), key=lambda i: float(seconds[i]))]


@cache
def _measured(dtype: str) -> list[int]:
    return [tile for tile, each in TUNED[dtype].items() if k_steps.is_measured(dtype, str(each))]


@cache
def _tuned_table(dtype: str, a_is_unaligned: bool, b_is_unaligned: bool) -> Table:
    """Return the times of the rung's tiles, with a K-major A and an MN-major B."""
    a, b = Access(True, a_is_unaligned), Access(False, b_is_unaligned)
    ways = [Way(TUNED[dtype][tile], a, b) for tile in _measured(dtype)]
    return Table(dtype, H200, ways, factors={})  # the factors are those of another kernel


def threads(macros: Macros) -> int:
    """Return the threads of a block, by the macros of its kernel."""
    if "TILE" in macros:
        return macros["TILE"] ** 2
    elements = macros["BLOCK_M"] * macros["BLOCK_N"]
    if "WARP_M" in macros:
        multiply = WARP * elements // (macros["WARP_M"] * macros["WARP_N"])
        return multiply + macros.get("LOADERS", 0)
    of_thread = macros["THREAD_M"] * macros.get("THREAD_N", 1)
    return macros.get("SLICES", 1) * elements // of_thread


def by_tiles(macros: Callable[[int, str], Macros]) -> Rule:
    """Return a rule with a block for each tile of C, columns along x, and its threads in a row."""

    def rule(m: int, n: int, tile: int, dtype: str) -> Geometry:
        sizes = macros(tile, dtype)
        across = _tiles(n, sizes["BLOCK_N"], "n", GRID_X)
        down = _tiles(m, sizes["BLOCK_M"], "m", GRID_Y)
        return (across, down, 1), (threads(sizes), 1, 1)

    return rule


def _tiles(size: int, tile: int, name: str, limit: int) -> int:
    count = max(-(-size // tile), 1)
    if count > limit:
        raise ValueError(
            f"{name} is {size:,}; with tiles of {tile} that is {count:,} blocks, and a grid has at "
            f"most {limit:,} that way: {name} may be {limit * tile:,} at most"
        )
    return count


def check_tile(tile: int, tiles: Sequence[int] = TILES, of: str = "") -> int:
    """Return ``tile`` if it is one of ``tiles``; ``of`` names their owner, for the message.

    Raises
    ------
    TypeError
        If it is not an integer.
    ValueError
        If it is not one of them.
    """
    if isinstance(tile, bool) or not hasattr(tile, "__index__"):
        raise TypeError(f"tile is {tile!r}; it must be an integer")
    if tile not in tiles:
        whose = f" for {of}" if of else ""
        raise ValueError(f"tile is {tile}; it must be {listed(tiles)}{whose}")
    return int(tile)


def listed(tiles: Sequence[int]) -> str:
    """Return ascending tiles in words: ``from 2 to 32``, or ``16, 32 or 64``."""
    parts: list[str] = []
    rest = list(tiles)
    while rest:
        run = 1
        while run < len(rest) and rest[run] == rest[0] + run:
            run += 1
        taken, rest = (rest[:run], rest[run:]) if run > 2 else (rest[:1], rest[1:])
        parts.append(f"from {taken[0]} to {taken[-1]}" if len(taken) > 1 else str(taken[0]))
    *others, last = parts
    return f"{', '.join(others)} or {last}" if others else last


def type_macros(dtype: npt.DTypeLike) -> dict[str, Any]:
    """Return the macro for the dtype of a kernel's matrices: ``real``, or ``BFLOAT16``.

    Raises
    ------
    TypeError
        If no kernel takes the dtype.
    """
    name = name_of(dtype)
    if name in HALVES:
        return {"BFLOAT16": int(name == "bfloat16")}
    if name not in REAL:
        raise TypeError(f"dtype {name} is not supported; there are {', '.join(DTYPES)}")
    return {"real": REAL[name]}


def real_of(dtype: npt.DTypeLike) -> str:
    """Return the C++ type of ``dtype``, for the macro ``real``.

    Raises
    ------
    TypeError
        If it is neither float32 nor float64.
    """
    name = name_of(dtype)
    if name not in REALS:
        raise TypeError(f"dtype {name} is not supported; there are {', '.join(REALS)}")
    return REAL[name]
