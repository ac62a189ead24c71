"""Cut a product into blocks that fit a memory: choose the blocks and their order, count the bytes.

The memory may be the host's, for matrices in files, or a GPU's, for matrices in the host's memory.
This module only plans; it neither reads nor writes. A tile of C stays in memory until all of k has
been added to it, so that C is written once and never read. Tiles are visited in serpentine order,
and the pieces of k forwards and backwards in turn, so that neighbouring tiles share a piece of A or
of B, which stays in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tilewise.shown import plural

STRIPS = 16
"""The number of strips of a tile; additions to a tile and its rounding go strip by strip."""

_FLOORS = (256, 64, 16, 4, 1)  # the least edge of a tile; smaller only if the memory demands it
_WORK = 1 << 36  # multiply-adds of a tile: they take about a second, then the tile is written
_NEAR = 1.01  # among plans within this factor of the fewest bytes, other merits decide


class Span(NamedTuple):
    """A range of rows or columns, from ``start`` up to, but not including, ``stop``."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        """The number of rows or columns."""
        return self.stop - self.start


class Load(NamedTuple):
    """The step that loads a piece of A or of B in place of the last one."""

    matrix: str
    rows: Span
    columns: Span


class Multiply(NamedTuple):
    """The step that multiplies the pieces in memory and sets the tile of C, or adds to it."""

    rows: Span
    columns: Span
    depth: Span
    is_first: bool


class Store(NamedTuple):
    """The step that writes a finished tile of C; ``tile`` counts from 0 in the plan's order."""

    rows: Span
    columns: Span
    tile: int


Step = Load | Multiply | Store


@dataclass(frozen=True)
class Problem:
    """A product C = A B, and the bytes that its elements take.

    Attributes
    ----------
    m, n, k : int
    item, sums, out : int
        The bytes of an element of A and B in their source, of a partial sum in memory, and of C in
        its destination.
    casts : int
        The further bytes of memory that each element of A and B takes, for instance for a cast
        copy.
    copies : int
        The number of further tiles of sums that the multiplication itself keeps in memory.
    """

    m: int
    n: int
    k: int
    item: int
    sums: int
    out: int
    casts: int = 0
    copies: int = 0

    @property
    def compulsory(self) -> int:
        """The bytes of A, B and C: each has to be read or written at least once."""
        inputs = (self.m + self.n) * self.k if self.m and self.n else 0
        return inputs * self.item + self.m * self.n * self.out

    def bound(self, memory: int) -> int:
        """Return the fewest bytes that any order of the multiply-adds can read and write.

        Parameters
        ----------
        memory : int
            The bytes of memory that hold elements of A, B and C.

        Notes
        -----
        That it falls with the root of the memory's size M is from J.-W. Hong and H. T. Kung, *I/O
        complexity: the red-blue pebble game* (STOC 1981), the segments it is proved by from D.
        Irony, S. Toledo and A. Tiskin, *Communication lower bounds for distributed-memory matrix
        multiplication* (J. Parallel Distrib. Comput. 64, 2004), and the constant, 2mnk/sqrt(M) -
        2M, from T. M. Smith, B. Lowery, J. Langou and R. van de Geijn, *A tight I/O lower bound
        for matrix multiplication* (2017). Nothing can move less than the matrices themselves.
        """
        least = min(self.item, self.sums, self.out)
        elements = max(memory // least, 1)
        moved = 2 * self.m * self.n * self.k / math.sqrt(elements) - 2 * elements
        return max(self.compulsory, least * int(moved))


@dataclass(frozen=True)
class BlockPlan:
    """A product's cut into blocks, and the order in which its pieces are multiplied.

    Attributes
    ----------
    problem : Problem
    block_m, block_n, block_k : int
        The rows and columns of a whole tile of C, and the depth of a piece of k.
    by_columns : bool
        Whether consecutive tiles run down the columns of C rather than along its rows.
    """

    problem: Problem
    block_m: int
    block_n: int
    block_k: int
    by_columns: bool = False

    @property
    def is_divided(self) -> bool:
        """Whether a tile of C is the sum of several products."""
        return self.block_k < self.problem.k

    @property
    def pieces(self) -> int:
        """The number of pieces that k is cut into."""
        return max(1, _cuts(self.problem.k, self.block_k))

    @property
    def tiles(self) -> int:
        """The number of tiles of C."""
        return _cuts(self.problem.m, self.block_m) * _cuts(self.problem.n, self.block_n)

    @property
    def memory(self) -> int:
        """The bytes of everything that is in memory at once."""
        return _memory(self.problem, self.block_m, self.block_n, self.block_k)

    @property
    def strip(self) -> int:
        """The rows of a strip of a tile."""
        return self.block_m // STRIPS + 1

    @property
    def bytes_read(self) -> int:
        """The bytes of A and B that all loads together read."""
        p = self.problem
        sizes = (p.m, self.block_m, p.n, self.block_n)
        if self.by_columns:
            sizes = (p.n, self.block_n, p.m, self.block_m)
        return p.item * _read(*sizes, p.k, self.block_k)

    @property
    def bytes_written(self) -> int:
        """The bytes of C that all stores together write."""
        return self.problem.m * self.problem.n * self.problem.out

    @property
    def bytes_moved(self) -> int:
        """The bytes read plus the bytes written."""
        return self.bytes_read + self.bytes_written

    def steps(self, first: int = 0) -> Iterator[Step]:
        """Yield the loads, multiplications and stores of the plan in order.

        Parameters
        ----------
        first : int
            The tile to begin with; those before it are already done.
        """
        p = self.problem
        held: dict[str, tuple[Span, Span]] = {}
        for tile in range(first, self.tiles):
            rows, columns = self._place(tile)
            order = range(self.pieces) if tile % 2 == 0 else range(self.pieces - 1, -1, -1)
            for at, piece in enumerate(order):
                depth = span_of(piece, self.block_k, p.k)
                for matrix, wanted in (("A", (rows, depth)), ("B", (depth, columns))):
                    if held.get(matrix) != wanted:
                        held[matrix] = wanted
                        yield Load(matrix, *wanted)
                yield Multiply(rows, columns, depth, at == 0)
            yield Store(rows, columns, tile)

    def done_before(self, tile: int) -> int:
        """Return the number of elements of C in the tiles before this one."""
        places = map(self._place, range(tile))
        return sum(rows.size * columns.size for rows, columns in places)

    def _place(self, tile: int) -> tuple[Span, Span]:
        p = self.problem
        count = _cuts(p.m, self.block_m) if self.by_columns else _cuts(p.n, self.block_n)
        outer, inner = divmod(tile, count)
        if outer % 2:
            inner = count - 1 - inner
        i, j = (inner, outer) if self.by_columns else (outer, inner)
        return span_of(i, self.block_m, p.m), span_of(j, self.block_n, p.n)


def choose(problem: Problem, memory: int) -> BlockPlan:
    """Return the plan that moves the fewest bytes.

    Among the plans that move at most 1% more than the fewest bytes, it prefers tiles that are
    written about every second, then an undivided k, then the fewest pieces.

    Parameters
    ----------
    problem : Problem
    memory : int
        The bytes that the pieces in memory may take together.

    Raises
    ------
    ValueError
        If not even one element of each matrix fits.
    """
    for floor in _FLOORS:
        found = list(_candidates(problem, memory, floor))
        if found:
            least = min(plan.bytes_moved for plan in found)
            return min((x for x in found if x.bytes_moved <= least * _NEAR), key=_merit)
    least = _memory(problem, 1, 1, 1)
    raise ValueError(
        f"memory is {plural(memory, 'byte')}; one element of each matrix takes {least:,}"
    )


def _merit(plan: BlockPlan) -> tuple[int, bool, int, int]:
    work = plan.block_m * plan.block_n * plan.problem.k
    calls = plan.tiles * plan.pieces
    return int(math.log2(max(work / _WORK, 1))), plan.is_divided, calls, plan.bytes_moved


def _candidates(p: Problem, memory: int, floor: int) -> Iterator[BlockPlan]:
    """Yield plans that fit: for each depth and height of a tile, the widest that fits."""
    least_m, least_n = min(max(p.m, 1), floor), min(max(p.n, 1), floor)

    def fits(block_m: int, block_n: int, block_k: int) -> bool:
        return _memory(p, block_m, block_n, block_k) <= memory

    for block_k in _sizes(p.k, floor, 1.3):
        for block_m in _sizes(p.m, floor, 1.1):
            widest = _largest(p.n, lambda size, m=block_m, k=block_k: fits(m, size, k))  # type: ignore[misc]
            for block_n in _widths(p.n, least_n, widest, block_m * p.k):
                yield BlockPlan(p, block_m, block_n, block_k)
        for block_n in _sizes(p.n, floor, 1.1):
            widest = _largest(p.m, lambda size, n=block_n, k=block_k: fits(size, n, k))  # type: ignore[misc]
            for block_m in _widths(p.m, least_m, widest, block_n * p.k):
                yield BlockPlan(p, block_m, block_n, block_k, by_columns=True)


def _widths(size: int, least: int, widest: int, work: int) -> set[int]:
    """Return widths that cut ``size`` evenly: the widest, and one whose tiles take a second."""
    wanted = (widest, min(widest, max(least, _WORK // max(work, 1))))
    even = {_even(size, each) for each in wanted if each >= least}
    return {each for each in even if each >= least}


def _sizes(size: int, floor: int, growth: float) -> Iterator[int]:
    """Yield the sizes of 1, 2, ... even parts, from the whole down to the least one allowed."""
    size = max(size, 1)
    parts = 1
    while (each := -(-size // parts)) >= min(size, floor):
        yield each
        if each == 1:
            return
        parts = max(parts + 1, int(parts * growth))


def _largest(size: int, fits: Callable[[int], bool]) -> int:
    """Return the largest size that fits, 0 where none does."""
    low, high = 0, max(size, 1)
    if fits(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _memory(p: Problem, block_m: int, block_n: int, block_k: int) -> int:
    strip = (block_m // STRIPS + 1) * block_n
    of_inputs = (block_m + block_n) * block_k * (p.item + p.casts)
    of_sums = block_m * block_n * p.sums * (1 + p.copies)
    added = strip * p.sums if block_k < p.k and not p.copies else 0
    return of_inputs + of_sums + added + (strip * p.out if p.out != p.sums else 0)


def _read(m: int, block_m: int, n: int, block_n: int, k: int, block_k: int) -> int:
    """Count the elements of A and B that are loaded if consecutive tiles run along the rows."""
    rows, columns, pieces = _cuts(m, block_m), _cuts(n, block_n), max(1, _cuts(k, block_k))
    if not rows or not columns:
        return 0
    ends = (k - (pieces - 1) * block_k, min(block_k, k))  # the last piece of even and odd tiles
    total = k * (m * columns + n * rows)
    last = m - (rows - 1) * block_m
    for parity in (0, 1):  # for the even and the odd rows of tiles
        count = (rows + 1 - parity) // 2
        height = block_m * count - (block_m - last) * ((rows - 1) % 2 == parity)
        begins = parity * columns % 2  # whether the row's first tile is an odd one
        evens = (columns - begins) // 2  # its transitions from even to odd tiles, besides the turn
        shared = evens * ends[0] + (columns - 1 - evens) * ends[1]
        total -= height * shared
        turns = (rows - parity) // 2  # rows of this parity that have a row after them
        end = columns - 1 if parity == 0 else 0
        width = n - (columns - 1) * block_n if end == columns - 1 else block_n
        total -= turns * width * ends[(begins + columns - 1) % 2]
    return total


def _cuts(size: int, block: int) -> int:
    return -(-size // block)


def _even(size: int, block: int) -> int:
    return -(-size // _cuts(size, block)) if size else 1


def span_of(at: int, block: int, size: int) -> Span:
    """Return the range of block number ``at``, if ``size`` rows or columns are cut into blocks.

    Each has ``block`` of them, and the last one the rest.
    """
    return Span(at * block, min((at + 1) * block, size))
