"""The ladder: kernels for one and the same product, each one idea faster than the last.

Every rung is a file of ``kernels/ladder/`` with one signature (BLAS's order, row-major)::

    NAME(int m, int n, int k, real alpha, const real* a, int lda,
         const real* b, int ldb, real beta, real* c, int ldc)

and computes C = alpha A B + beta C at any size. With ``beta`` 0 it never reads C, with ``alpha``
0 never A or B.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.gemm.families.simt.tiles import RUNG as TUNED
from tilewise.kernel import SOURCES, Kernel
from tilewise.ladder import lessons
from tilewise.ladder.geometry import (
    DEFAULT_SIZE,
    THREADS_A_BLOCK,
    TILES,
    Geometry,
    Macros,
    Rule,
    by_tiles,
    check_tile,
    column,
    columns_along_x,
    no_options,
    one_block,
    one_thread,
    real_of,
    rectangle,
    rows_along_x,
    square,
    tuned_macros,
    tuned_options,
    tuned_tile,
)

FOLDER = SOURCES / "ladder"


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
    why : str
        What running it shows, in one sentence.
    default_tile : int or None
        Edge of a block's tile where none is asked for; None for a rung that has no tiles.
    tiles : sequence of int
        The edges that it takes; empty for a rung that has no tiles.
    counter : str
        What its idea is about, as ``lessons.json`` names it; where it is empty, what falls most.
    against : str
        The rung beside which it is counted; where it is empty, the one before.
    default_size : int
        What m, n and k are where they are not given.
    most_elements : int or None
        The most elements that C may have; None where the grid alone bounds them.
    """

    number: int
    name: str
    idea: str
    why: str
    default_tile: int | None
    _rule: Rule = field(repr=False)
    tiles: Sequence[int] = field(default=(), repr=False)
    _macros: Callable[[int, str], Macros] = field(default=square, repr=False)
    counter: str = field(default="", repr=False)
    against: str = field(default="", repr=False)
    default_size: int = field(default=DEFAULT_SIZE, repr=False)
    most_elements: int | None = field(default=None, repr=False)
    _options: Callable[[int, str], tuple[str, ...]] = field(default=no_options, repr=False)
    _chooses: Callable[[int, int, int, str], int] | None = field(default=None, repr=False)

    @property
    def lesson(self) -> str:
        """What running it shows, with the counter that its idea is about, as it was counted."""
        return " ".join(filter(None, (self.why, lessons.sentence(self.name))))

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
            If it is none of ``tiles``, or the rung has none.
        """
        if self.default_tile is None:
            if tile is not None:
                raise ValueError(f"{self.name} has no tiles, so tile {tile} means nothing to it")
            return None
        return self.default_tile if tile is None else check_tile(tile, self.tiles, self.name)

    def sizes(
        self, m: int | None = None, n: int | None = None, k: int | None = None
    ) -> tuple[int, int, int]:
        """m, n and k: those that are given, and for each None a size at which the rung works.

        Examples
        --------
        >>> import tilewise
        >>> tilewise.rung("tiled").sizes(m=100), tilewise.rung("single_block").sizes(m=100)
        ((100, 64, 64), (100, 10, 32))
        """
        usual = self.default_size

        def fitting(other: int | None) -> int:
            if self.most_elements is None or not other or other < 0:
                return usual
            return max(min(usual, self.most_elements // other), 1)

        rows = fitting(n) if m is None else m
        columns = fitting(m) if n is None else n
        return rows, columns, usual if k is None else k

    @property
    def tile_by_size(self) -> bool:
        """Whether :meth:`tile_for` depends on the product."""
        return self._chooses is not None

    def tile_for(
        self, m: int, n: int, k: int, dtype: npt.DTypeLike = "float32", tile: int | None = None
    ) -> int | None:
        """The tile to use for a product: ``tile``, or the one that suits it.

        Raises
        ------
        TypeError, ValueError
            As :meth:`tile` and :meth:`kernel`.
        """
        real_of(dtype)
        if tile is None and self._chooses is not None:
            return self._chooses(m, n, k, np.dtype(dtype).name)
        return self.tile(tile)

    def macros(self, tile: int | None = None, dtype: npt.DTypeLike = "float32") -> Macros:
        """What ``tile`` means to the kernel: the macros of its sizes, none without tiles.

        Raises
        ------
        TypeError, ValueError
            As :meth:`tile`.
        """
        edge = self.tile(tile)
        return {} if edge is None else self._macros(edge, np.dtype(dtype).name)

    def kernel(self, dtype: npt.DTypeLike = "float32", tile: int | None = None) -> Kernel:
        """The kernel for matrices of ``dtype``.

        Raises
        ------
        TypeError
            If ``dtype`` is not supported.
        ValueError
            As :meth:`tile`.
        """
        defines = {"real": real_of(dtype), **self.macros(tile, dtype)}
        edge = self.tile(tile)
        options = () if edge is None else self._options(edge, np.dtype(dtype).name)
        return Kernel(self.path, self.name, defines, options)

    def geometry(
        self, m: int, n: int, tile: int | None = None, dtype: npt.DTypeLike = "float32"
    ) -> Geometry:
        """Grid and block for an m x n matrix C of ``dtype``, each as (x, y, z).

        Raises
        ------
        ValueError
            As :meth:`tile`; if C has more elements than this rung can do; if the grid would pass
            CUDA's limits.
        """
        if m < 0 or n < 0:
            raise ValueError(f"C is {m} x {n}; a size must be at least 0")
        return self._rule(m, n, self.tile(tile) or 1, np.dtype(dtype).name)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "rung": self.number,
            "kernel": self.name,
            "file": self.path.name,
            "idea": self.idea,
            "lesson": self.lesson,
            "default_tile": self.default_tile,
            "tiles": list(self.tiles),
        }


RUNGS = (
    Rung(
        1,
        "single_thread",
        "One thread computes all of C.",
        "A GPU's one lane is slower than a CPU's core: all of its speed is in their number.",
        None,
        one_thread,
        default_size=32,  # one thread is slow on the emulator: 64 take 8 s
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
        _options=tuned_options,
        _chooses=tuned_tile,
    ),
)


def tile_each(tile: int | None) -> dict[str, int | None]:
    """By rung, ``tile`` where it takes that, and its own where it does not.

    Raises
    ------
    TypeError
        If it is no integer.
    ValueError
        If no rung takes it.
    """
    if tile is not None:
        check_tile(tile, sorted({edge for each in RUNGS for edge in each.tiles}))
    return {each.name: tile if tile in each.tiles else each.default_tile for each in RUNGS}


def rung(name: str) -> Rung:
    """Return the rung called ``name``.

    Parameters
    ----------
    name : str
        As ``"tiled"``; ``[each.name for each in tilewise.RUNGS]`` are all.

    Raises
    ------
    ValueError
        If there is none of that name; the message lists those there are.

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
