"""The sizes at which a kernel is watched.

They are so small that a page shows all of it, and so large that whole warps run and that what the
rung is about happens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy.typing as npt

from tilewise.kernel import Kernel
from tilewise.ladder.rungs import Rung

PHASES = 3
TURNS = 6  # phases of a rung with a ring of stages: more than stages, so that some are filled again
DEPTH = 8  # k of a product without phases: with 4 bytes each, a sector of a row of A
SMALL = 32  # the widest tile of C of which a page has room for 2 x 2


@dataclass(frozen=True)
class Sizes:
    """The sizes of a product: C is m x n, A is m x k; ``tile`` is None for a rung without tiles."""

    m: int
    n: int
    k: int
    tile: int | None


# The sizes of the rungs without tiles.
UNTILED = {"single_thread": Sizes(4, 4, 4, None), "single_block": Sizes(8, 8, 8, None)}

# The tiles of the other rungs. With 8 a warp has 4 rows of 8 columns, and each row of a tile is a
# sector: two warps that read a transposed tile conflict in banks, and every value can be read on
# the page. With 32 a warp is a column of the naive kernel's C. With 64 a thread's 8 x 8 elements
# make the conflicts that ``warp_tile`` does not have.
TILES = {
    "naive": 32, "coalesced": 32, "tiled": 8, "tiled_conflicts": 8, "tiled_branchless": 8,
    "thread_tile_1d": 16, "thread_tile_2d": 64, "vectorized": 64, "warp_tile": 64,
    "double_buffered": 64, "tuned": 64, "tensor_core": 32, "ldmatrix": 32, "multistage": 64,
    "warpgroup": 128, "specialized": 128, "persistent": 128,
}  # fmt: skip
COMMON_TILE = 16  # of two kernels side by side, whose own tiles differ
OWN_TILE = 8  # of a kernel that is not on the ladder
UNPHASED = ("naive", "coalesced")
# The rungs that are about the edge of C: their last blocks lie across it.
AT_THE_EDGE = ("tiled_branchless",)
RINGS = ("multistage", "warpgroup", "specialized", "persistent")
# The rungs of which a cluster of two blocks, one below the other, shares its loads.
CLUSTERED = ("persistent",)


def sizes(
    target: Rung | Kernel,
    m: int | None = None,
    n: int | None = None,
    k: int | None = None,
    tile: int | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Sizes:
    """Return the sizes to watch a kernel at: the given ones, and others that show what it is about.

    Parameters
    ----------
    target : Rung or Kernel
    m, n, k, tile : int, optional
    dtype : str or dtype

    Raises
    ------
    TypeError, ValueError
        As in :meth:`tilewise.ladder.rungs.Rung.tile`.

    Examples
    --------
    >>> from tilewise.ladder.rungs import rung
    >>> sizes(rung("tiled"))
    Sizes(m=16, n=16, k=24, tile=8)
    >>> sizes(rung("tiled"), tile=16, k=20)
    Sizes(m=32, n=32, k=20, tile=16)
    """
    if isinstance(target, Rung):
        target.dtype(dtype)
    own = _own(target, tile, dtype)
    return Sizes(
        own.m if m is None else m, own.n if n is None else n, own.k if k is None else k, own.tile
    )


def sizes_of_two(
    one: Rung | Kernel,
    other: Rung | Kernel,
    m: int | None = None,
    n: int | None = None,
    k: int | None = None,
    tile: int | None = None,
    dtype: npt.DTypeLike | None = None,
) -> tuple[Sizes, Sizes]:
    """Return the sizes for two kernels side by side: one product, and if possible one tile.

    A size that is not given is the larger of the two kernels' default sizes. If their default tiles
    differ, both take ``COMMON_TILE``, or each keeps its own if one can't.

    Parameters
    ----------
    one, other, m, n, k, tile, dtype
        The arguments of :func:`sizes`.

    Raises
    ------
    TypeError, ValueError
        As in :func:`sizes`.

    Examples
    --------
    >>> from tilewise.ladder.rungs import rung
    >>> sizes_of_two(rung("naive"), rung("tiled"))
    (Sizes(m=32, n=32, k=48, tile=16), Sizes(m=32, n=32, k=48, tile=16))
    >>> [(x.m, x.k, x.tile) for x in sizes_of_two(rung("tiled"), rung("warp_tile"))]
    [(64, 24, 8), (64, 24, 64)]
    """
    both = one, other
    own = [sizes(each, tile=tile if _takes(each, tile) else None, dtype=dtype) for each in both]
    if tile is not None and not any(_takes(each, tile) for each in both):
        own = [sizes(each, tile=tile, dtype=dtype) for each in both]  # raises, and says why
    is_open = tile is None and own[0].tile != own[1].tile
    if is_open and all(_takes(each, COMMON_TILE) for each in both):
        own = [sizes(each, tile=COMMON_TILE, dtype=dtype) for each in both]
    m, n, k = (
        max(getattr(each, axis) for each in own) if given is None else given
        for axis, given in (("m", m), ("n", n), ("k", k))
    )  # fmt: skip
    first, second = (Sizes(m, n, k, each.tile) for each in own)
    return first, second


def _takes(target: Rung | Kernel, tile: int | None) -> bool:
    """Return whether a kernel can be launched with this tile."""
    return isinstance(target, Kernel) or tile in target.tiles


def _own(target: Rung | Kernel, tile: int | None, dtype: npt.DTypeLike | None) -> Sizes:
    """Return the sizes of a kernel for which only the tile may be given."""
    if isinstance(target, Kernel):
        edge = tile or int(target.defines.get("TILE", OWN_TILE))
        return Sizes(2 * edge, 2 * edge, PHASES * edge, edge)
    if not target.tiles:
        target.tile(tile)  # raises an error, because it has no tiles
        return UNTILED[target.name]
    edge = target.tile(TILES[target.name] if tile is None else tile) or 0
    macros = target.macros(edge, dtype)
    down, across, deep = (macros.get(f"BLOCK_{axis}", edge) for axis in "MNK")
    m, n = (2 * size if size <= SMALL else size for size in (down, across))
    m *= 2 if target.name in CLUSTERED else 1
    if target.name in AT_THE_EDGE:
        m -= 3 * down // 4
    phases = TURNS if target.name in RINGS else PHASES
    return Sizes(m, n, DEPTH if target.name in UNPHASED else phases * deep, edge)
