"""The ladder: kernels for one and the same product, each one idea faster than the last.

Every rung is a file of ``kernels/ladder/`` with one signature (BLAS's order, row-major)::

    NAME(int m, int n, int k, real alpha, const real* a, int lda,
         const real* b, int ldb, real beta, real* c, int ldc)

where ``real`` is float or double; of the rungs by tensor cores the matrices are ``half_t``, 16
bits, and the scalars float. It computes C = alpha A B + beta C at any size. With ``beta`` 0 it
never reads C, with ``alpha`` 0 never A or B.
"""

from __future__ import annotations

from difflib import get_close_matches

from tilewise.gemm.families.simt.tiles import RUNG as TUNED
from tilewise.ladder.geometry import (
    RINGS,
    THREADS_A_BLOCK,
    TILES,
    by_tiles,
    check_tile,
    column,
    columns_along_x,
    fragments,
    one_block,
    one_thread,
    rectangle,
    ring,
    ring_bytes,
    ring_tile,
    rows_along_x,
    tuned_macros,
    tuned_options,
    tuned_tile,
)
from tilewise.ladder.rung import Rung
from tilewise.ladder.warpgroups import (
    at_once,
    clusters,
    ring_and_rows,
    roles,
    tensor_maps,
    warpgroups,
)
from tilewise.precision import HALVES

__all__ = ["RUNGS", "Rung", "left_out", "rung", "rungs_of", "tile_each"]

RUNGS = (
    Rung(
        1,
        "single_thread",
        "One thread computes all of C.",
        "A GPU's one lane is slower than a CPU's core: all of its speed is in their number.",
        None,
        one_thread,
        default_size=32,  # one thread is slow on the emulator: 64 takes 8 s
    ),
    Rung(
        2,
        "single_block",
        "Each element of C has a thread, and one block holds them all.",
        "A block ends at 1024 threads and runs on one multiprocessor; the others stand idle.",
        None,
        one_block,
        default_size=32,
        most_elements=THREADS_A_BLOCK,
    ),
    Rung(
        3,
        "naive",
        "Many blocks cover C; a warp's threads stand one below the other, in 32 rows.",
        "Any size works, but a load of A fetches a 32-byte sector for each thread's 4 bytes.",
        32,
        rows_along_x,
        TILES,
        counter="global load sectors",
    ),
    Rung(
        4,
        "coalesced",
        "A warp's threads stand side by side in one row of C.",
        "Two indices are swapped, and neighbours share the sectors that they load.",
        32,
        columns_along_x,
        TILES,
        counter="global load sectors",
    ),
    Rung(
        5,
        "tiled",
        "A block loads a tile of A and of B into shared memory, and each thread reuses both.",
        "What is loaded once is used TILE times; larger tiles take more shared memory.",
        32,
        columns_along_x,
        TILES,
        counter="global load requests",
    ),
    Rung(
        6,
        "tiled_conflicts",
        "The same with both tiles stored transposed.",
        "The result is as right, but a warp's lanes meet in one bank and are served in turn.",
        32,
        columns_along_x,
        TILES,
        counter="shared load bank conflicts",
        against="tiled",
    ),
    Rung(
        7,
        "tiled_branchless",
        "The tiled kernel with clamped indices and selects in place of branches at the edge.",
        "Nothing falls: only blocks at the edge could diverge, and the speed hardly changes.",
        32,
        columns_along_x,
        TILES,
        counter="divergent branches",
        against="tiled",
    ),
    Rung(
        8,
        "thread_tile_1d",
        "Each thread computes a column of elements, and reuses a value of B from a register.",
        "A multiply-add takes 1.1 shared values where tiled's takes 2.",
        64,
        by_tiles(column),
        (16, 32, 64),
        column,
        counter="shared load wavefronts",
        against="tiled",
    ),
    Rung(
        9,
        "thread_tile_2d",
        "Each thread computes a square of elements; A's tile is stored transposed.",
        "With 8 x 8 elements a multiply-add takes a quarter of a shared value.",
        128,
        by_tiles(rectangle),
        (16, 32, 64, 128),
        rectangle,
        counter="shared load wavefronts",
    ),
    Rung(
        10,
        "vectorized",
        "Loads and stores of 16 bytes, in global and in shared memory.",
        "As many bytes by a quarter of the instructions.",
        128,
        by_tiles(rectangle),
        (16, 32, 64, 128),
        rectangle,
        counter="global load requests",
    ),
    Rung(
        11,
        "warp_tile",
        "Each warp has a tile of its own, its lanes' 16-byte pieces side by side.",
        "Lanes that read the same share it, and the others are in other banks: no conflicts.",
        128,
        by_tiles(rectangle),
        (32, 64, 128),
        rectangle,
        counter="shared load bank conflicts",
    ),
    Rung(
        12,
        "double_buffered",
        "The next tiles are copied (cp.async) while these are used.",
        "A phase has one barrier, and nobody waits for a load that began a phase ago.",
        128,
        by_tiles(rectangle),
        (32, 64, 128),
        rectangle,
        counter="barriers",
        needs="sm_80",
    ),
    Rung(
        13,
        "tuned",
        "The same with sizes chosen by a sweep, and blocks in an order that shares in L2.",
        "What is left in the loop are multiply-adds and their reads of shared memory.",
        64,
        by_tiles(tuned_macros),
        tuple(TUNED["float32"]),
        tuned_macros,
        counter="shared load wavefronts",
        needs="sm_80",
        _options=tuned_options,
        _chooses=tuned_tile,
    ),
    Rung(
        14,
        "tensor_core",
        "The tensor cores multiply 16-bit numbers, a warp's pieces of 16 x 16 and 16 x 8 at once.",
        "A warp's one instruction does 2048 multiply-adds, and its lanes load the pieces in pairs.",
        128,
        by_tiles(fragments),
        (32, 64, 128),
        fragments,
        counter="shared load requests",
        dtypes=HALVES,
        needs="sm_80",
    ),
    Rung(
        15,
        "ldmatrix",
        "ldmatrix loads the fragments, four pieces of 8 x 8 at once, from tiles that are swizzled.",
        "A fragment of A takes one instruction in place of four; two of B one in place of eight.",
        128,
        by_tiles(fragments),
        (32, 64, 128),
        fragments,
        counter="shared requests",
        dtypes=HALVES,
        needs="sm_80",
    ),
    Rung(
        16,
        "multistage",
        "Copies fill a ring of tiles several phases ahead; a warp loads its next fragments early.",
        "A phase has one barrier, and the tensor cores wait neither for copies nor for fragments.",
        128,
        by_tiles(ring),
        tuple(RINGS),
        ring,
        counter="barriers",
        dtypes=HALVES,
        needs="sm_80",
        _chooses=ring_tile,
        _shared=ring_bytes,
    ),
    Rung(
        17,
        "warpgroup",
        "Four warps at once multiply tiles where they lie in shared memory; a TMA copies them.",
        "No thread copies or loads what is multiplied: one begins a copy, and all wait for bytes.",
        128,
        by_tiles(warpgroups),
        (128,),
        warpgroups,
        counter="global load requests",
        dtypes=HALVES,
        needs="sm_90a",
        _shared=ring_bytes,
        _trailing=tensor_maps,
    ),
    Rung(
        18,
        "specialized",
        "One warpgroup only loads and two only multiply, with most of the registers.",
        "Warpgroups wait for stages of the ring, and no more for each other at a barrier.",
        128,
        by_tiles(roles),
        (128,),
        roles,
        counter="barriers",
        dtypes=HALVES,
        needs="sm_90a",
        _shared=ring_bytes,
        _trailing=tensor_maps,
    ),
    Rung(
        19,
        "persistent",
        "Blocks stay and take tile after tile, in clusters of two that load B once for both.",
        "The next tile's loads begin while this one is stored, and B is read half as often.",
        128,
        clusters,
        (128,),
        roles,
        counter="global bulk load sectors",
        dtypes=HALVES,
        needs="sm_90a",
        _shared=ring_and_rows,
        _trailing=tensor_maps,
        _at_once=at_once,
    ),
)


def tile_each(tile: int | None) -> dict[str, int | None]:
    """Return ``tile`` by rung, or the rung's own tile if it does not take that one.

    Raises
    ------
    TypeError
        If it is not an integer.
    ValueError
        If no rung takes it.
    """
    if tile is not None:
        check_tile(tile, sorted({edge for each in RUNGS for edge in each.tiles}))
    return {each.name: tile if tile in each.tiles else each.default_tile for each in RUNGS}


def rungs_of(dtype: str | None) -> tuple[Rung, ...]:
    """Return the rungs that take matrices of ``dtype``, or for None all rungs."""
    return tuple(each for each in RUNGS if dtype is None or dtype in each.dtypes)


def left_out(arch: str, dtype: str | None = None) -> list[str]:
    """Return sentences on the rungs for ``dtype`` that an architecture can't run."""
    needs: dict[str, list[str]] = {}
    for each in rungs_of(dtype):
        if not each.runs_on(arch):
            needs.setdefault(each.needs, []).append(each.name)
    return [
        f"not run on {arch}: {', '.join(names)} "
        f"({f'{wanted} alone' if wanted[-1].isalpha() else f'from {wanted} on'})"
        for wanted, names in needs.items()
    ]


def rung(name: str) -> Rung:
    """Return the rung with a name.

    Parameters
    ----------
    name : str
        The name, as in ``"tiled"``; ``[each.name for each in tilewise.RUNGS]`` are all names.

    Raises
    ------
    ValueError
        If there is no rung with that name; the message lists the names.

    Examples
    --------
    >>> import tilewise
    >>> rung = tilewise.rung("tiled")
    >>> rung.number, rung.default_tile
    (5, 32)
    """
    for candidate in RUNGS:
        if candidate.name == name:
            return candidate
    names = [candidate.name for candidate in RUNGS]
    near = get_close_matches(name, names, 3)
    there = f"there are {', '.join(names)}"
    if near:
        there = f"did you mean {' or '.join(near)}? T{there[1:]}"
    raise ValueError(f"no kernel called {name!r} on the ladder; {there}")
