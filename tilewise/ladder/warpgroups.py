"""The launches of the rungs for Hopper: macros, shared memory, tensor maps, persistent blocks."""

from __future__ import annotations

from tilewise.gemm.chip import H200
from tilewise.gemm.product import ALIGNMENT
from tilewise.ladder.geometry import Geometry, Macros, Sizes, by_tiles, ring_bytes
from tilewise.places import ITEM_SIZES, Place, TensorMap

COLUMNS = 64  # columns of a box: 128 bytes, over which it is swizzled
CLUSTER = 2  # blocks of `persistent`, one below the other
MAP_BYTES = 128
MULTIPROCESSORS = H200.multiprocessors
"""The number of multiprocessors to assume without a GPU."""


def warpgroups(tile: int, dtype: str) -> Macros:
    """Return the macros for warpgroups that load and multiply, with 64 x 256 of C each."""
    block = {"BLOCK_M": tile, "BLOCK_N": 256, "BLOCK_K": COLUMNS}
    return block | {"WARP_M": 16, "WARP_N": 256, "STAGES": 4}


def roles(tile: int, dtype: str) -> Macros:
    """Return the macros for warpgroups that multiply, beside one that loads."""
    return warpgroups(tile, dtype) | {"LOADERS": 128}


def ring_and_rows(macros: Macros) -> int:
    """Return the shared memory of a ring of tiles, and of 64 columns of a block's tile of C."""
    return ring_bytes(macros) + 2 * macros["BLOCK_M"] * COLUMNS


def tensor_maps(sizes: Sizes, macros: Macros, dtype: str) -> tuple[TensorMap | bytes, ...]:
    """Return the maps of A and B, or zeros if rows are not 16-byte aligned or there are none."""
    m, n, k, lda, ldb, _ = sizes
    pitches = [pitch * ITEM_SIZES[dtype] for pitch in (lda, ldb)]
    if 0 in (m, n, k) or any(pitch % ALIGNMENT for pitch in pitches):
        return (bytes(MAP_BYTES),) * 2
    return tuple(
        TensorMap(Place(array), dtype, extents, (pitch,), (COLUMNS, rows), swizzle="128B")
        for array, (extents, pitch, rows) in enumerate(
            zip(((k, m), (n, k)), pitches, (macros["BLOCK_M"], macros["BLOCK_K"]), strict=True)
        )
    )


def clusters(m: int, n: int, tile: int, dtype: str) -> Geometry:
    """Return a grid with a cluster of blocks for each tile that a cluster takes, all in a row."""
    (across, down, _), block = by_tiles(roles)(m, n, tile, dtype)
    return (CLUSTER * across * -(-down // CLUSTER), 1, 1), block


def at_once(grid: int, multiprocessors: int | None) -> int:
    """Return how many of so many blocks run at once: whole clusters, a block a multiprocessor."""
    return min(grid, (multiprocessors or MULTIPROCESSORS) // CLUSTER * CLUSTER)
