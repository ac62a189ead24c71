"""Predict the seconds of products by ``mma.sync``, as one NumPy expression over many ways."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilewise.devices.limits import MAX_GRID, RESERVED_SHARED
from tilewise.gemm import splitk
from tilewise.gemm.chip import H200, Chip
from tilewise.gemm.families.mma.kernel import (
    COPIED,
    PACKED,
    REALIGNED,
    WIDTHS,
    Matrix,
    Way,
    blocks_of,
    can_pack,
    depth,
    matrix_of,
    shared_of,
    spills,
    stores_pieces,
    stores_words,
    suits,
    swapped,
)
from tilewise.gemm.families.mma.tiles import ITEM, TILES, Tiles
from tilewise.gemm.product import ACCUMULATORS, Operand, Product
from tilewise.places import ITEM_SIZES
from tilewise.precision import HALVES

Floats = npt.NDArray[np.float64]

_STEPS = (range(1, 16), range(16, 32, 2), range(32, 64, 4), range(64, 129, 8))
PARTS = np.array([count for steps in _STEPS for count in steps], float)
LEAST_K, MOST_WORKSPACE = 128, 1 << 28  # of a part; bytes of the parts' sums
MARGIN = 1.02  # how many times faster a way has to be that takes a workspace


class Costs(NamedTuple):
    """The constants of the model, fitted on an H200 by ``benchmarks/fit_mma.py``.

    Attributes
    ----------
    start : float
        The seconds of a launch.
    prologue : float
        The seconds until a multiprocessor's first blocks have their first tiles.
    epilogue : float
        The seconds that a multiprocessor takes to store an element of D.
    unaligned : float
        How many times as long that takes if D's rows are not 16-byte aligned.
    elements : float
        How many times as long that takes if D is stored by single elements.
    hidden : float
        Of the time that these stores take longer, other blocks of the multiprocessor hide at most
        this share of the time by which a block's multiply-adds outlast its stores.
    copy : float
        The clocks of a multiprocessor for each copy by which copies of a few elements outnumber
        those of 16 bytes.
    realigned : float
        The clocks that it takes to realign 16 bytes in shared memory.
    memory : float
        The share of the GPU's memory rate at which A and B are read and D is written.
    pack : float
        The seconds of the launch that repacks.
    packed : float
        The share of the memory rate at which it reads and writes.
    """

    start: float
    prologue: float
    epilogue: float
    unaligned: float
    elements: float
    hidden: float
    copy: float
    realigned: float
    memory: float
    pack: float
    packed: float


COSTS = Costs(
    start=2.32e-6,
    prologue=0.219e-6,
    epilogue=87.3e-12,
    unaligned=2.0,
    elements=2.9,
    hidden=0.15,
    copy=0.132,
    realigned=0.963,
    memory=1.01,
    pack=1.68e-6,
    packed=1.2,
)
SHARES: dict[str, tuple[float, float]] = {
    "128x256x32": (0.923, 0.868),
    "256x128x32": (0.956, 0.88),
    "128x128x32": (0.522, 0.822),
    "128x64x32": (0.42, 0.619),
    "64x128x32": (0.438, 0.612),
    "64x64x64": (0.359, 0.481),
    "32x64x64": (0.328, 0.306),
    "64x32x64": (0.297, 0.314),
    "16x128x64": (0.203, 0.219),
    "128x32x64": (0.335, 0.409),
    "16x32x64": (0.163, 0.2),
    "64x64x128": (0.44, 0.5),
    "64x128x64": (0.56, 0.612),
    "128x64x64": (0.56, 0.619),
}
"""The shares of an H200's multiply-adds that one block of a multiprocessor reaches, and that as
many blocks as it holds at once reach. The largest is what its tensor cores themselves reach, and
where a share is less, the block waits for its tiles: the smaller they are, the more bytes of L2 a
multiply-add takes. The two times overlap in part, as the root of the sum of their squares. On
another GPU the tensor cores have their own rate, and a multiprocessor takes as many clocks as an
H200's for its tiles. Those of :data:`~tilewise.gemm.families.mma.tiles.DEEP` were chosen on times
of products of few rows on an H100, which say little of the second share: it is taken from shallow
tiles of about the same size."""


_READ = tuple(
    Matrix(is_k_major, 0, WIDTHS[0], is_unaligned=is_unaligned)
    for is_k_major in (True, False)
    for is_unaligned in (True, False)
)


def _read_as(x: Matrix) -> Matrix:
    """Return the matrix in _READ that takes as much shared memory as ``x``."""
    return _READ[2 * (not x.is_k_major) + (not x.is_unaligned)]


class Table:
    """The table from which times on a GPU follow, a row for each of :data:`TILES` that fits there.

    Parameters
    ----------
    chip : Chip
    costs : Costs, optional
    shares : mapping of str to (float, float), optional

    Attributes
    ----------
    costs : Costs
    tiles : list of Tiles
    packs : float
        Bytes a second that are read and written where a matrix is repacked.
    """

    def __init__(
        self,
        chip: Chip,
        costs: Costs = COSTS,
        shares: dict[str, tuple[float, float]] = SHARES,
    ) -> None:
        self._chip, self.costs = chip, costs
        room = chip.shared
        self.tiles: list[Tiles] = [x for x in TILES if x.shared + RESERVED_SHARED <= room]

        def column(values: list[float]) -> Floats:
            return np.array(values, float)[:, np.newaxis]

        self._m = column([x.block_m for x in self.tiles])
        self._n = column([x.block_n for x in self.tiles])
        self._k = column([x.block_k for x in self.tiles])
        adds = self._m * self._n * self._k
        # What a k-step takes beside its multiply-adds, as an H200 has it: for the most part, its
        # tiles come from L2. It takes as many clocks elsewhere.
        most = max(max(each) for each in shares.values())
        least = adds / (chip.multiply_adds(HALVES[0]) * most)
        of_h200 = H200.multiply_adds(HALVES[0]) * chip.clock / H200.clock
        self._alone, self._each = (
            np.hypot(least, adds / of_h200 * np.sqrt(np.maximum(share**-2 - most**-2, 0.0)))
            for share in (column([shares[str(x)][i] for x in self.tiles]) for i in (0, 1))
        )
        self._residents = {
            (a, b): column([self._residents_of(x, a, b) for x in self.tiles])
            for a in _READ for b in _READ
        }  # fmt: skip
        self._by_clock = self._k / chip.clock
        # Stores are bound by memory.
        of_each = H200.memory / H200.multiprocessors
        self._store = costs.epilogue * of_each * chip.multiprocessors / chip.memory
        self.packs = costs.packed * chip.memory

    def _residents_of(self, tiles: Tiles, a: Matrix, b: Matrix) -> int:
        """Return the blocks that a multiprocessor holds at once; 0 if none fits."""
        each = shared_of(tiles, a, b) + RESERVED_SHARED
        return min(self._chip.shared // each, tiles.residents)

    def seconds(
        self, p: Product, parts: Floats, readings: Sequence[tuple[Matrix, Matrix]]
    ) -> Floats:
        """Return the seconds of the kernel alone: by reading, by tiles, by the number of parts.

        Parameters
        ----------
        p : Product
            The product as the kernel computes it.
        parts : array
            The numbers of parts that k is divided into.
        readings : sequence of (Matrix, Matrix)
            The ways in which it reads A and B.
        """
        costs, chip = self.costs, self._chip
        residents = np.array([self._residents[_read_as(a), _read_as(b)] for a, b in readings])
        more = np.array([self._more(a, b) for a, b in readings])
        k = depth(p)
        tiles = np.ceil(p.m / self._m) * np.ceil(p.n / self._n) * p.batch
        waiting = np.ceil(tiles * parts / chip.multiprocessors)
        generations = np.ceil(waiting / np.maximum(residents, 1.0))
        before = (generations - 1.0) * residents
        each, alone = self._each + more, self._alone + more
        step = before * each + np.maximum(alone, (waiting - before) * each)
        k_steps = np.ceil(k / (parts * self._k))
        found = step * k_steps + costs.prologue * generations
        # Partial sums are aligned.
        aligned = self._m * self._n * self._store
        store = aligned * np.where(parts > 1, 1.0, self._store_factor(p))
        # The last blocks of a multiprocessor store at the same time.
        outlasts = np.maximum(each * k_steps - store, 0.0)
        hidden = np.minimum(store - aligned, costs.hidden * outlasts)
        found += waiting * store - np.where(residents > 1, before * hidden, 0.0)
        of_a = p.m * k * (p.batch if p.a.batch_stride else 1)
        of_b = p.n * k * (p.batch if p.b.batch_stride else 1)
        bytes_moved = ITEM * (of_a + of_b) + p.batch * p.m * p.n * ITEM_SIZES[p.out_dtype]
        memory = bytes_moved / (costs.memory * chip.memory)
        seconds: Floats = costs.start + np.sqrt(found * found + memory * memory)
        return np.where(residents > 0, seconds, math.inf)

    def _more(self, a: Matrix, b: Matrix) -> Floats:
        """Return the seconds that a k-step takes more than if A and B were 16-byte aligned."""
        copies = self._m * (1 / a.width - 1 / WIDTHS[0]) + self._n * (1 / b.width - 1 / WIDTHS[0])
        pieces = (self._m * a.is_unaligned + self._n * b.is_unaligned) / WIDTHS[0]
        more: Floats = self._by_clock * (self.costs.copy * copies + self.costs.realigned * pieces)
        return more

    def _store_factor(self, p: Product) -> float:
        if stores_pieces(p):
            return 1.0
        return self.costs.unaligned if stores_words(p) else self.costs.elements


@lru_cache(maxsize=64)
def table_of(chip: Chip) -> Table:
    """Return the table of a GPU."""
    return Table(chip)


class Reading(NamedTuple):
    """A way to read A or B.

    Attributes
    ----------
    how : str
        :data:`~tilewise.gemm.families.mma.kernel.COPIED`, ``REALIGNED`` or ``PACKED``.
    matrix : Matrix
        The matrix that the kernel reads: the repacked copy, if ``how`` is ``PACKED``.
    seconds : float
        The seconds of repacking it, without those of the launch.
    """

    how: str
    matrix: Matrix
    seconds: float = 0.0


class Priced(NamedTuple):
    """A product's ways, and the time that each should take.

    Attributes
    ----------
    tiles : list of Tiles
    readings : list of (Reading, Reading)
        The ways to read A and B of the product, swapped if the kernel computes it so.
    parts : array
        The numbers of parts that k may be divided into.
    seconds : array
        The seconds by the reading, the tiles and the parts.
    ranks : array
        The ranks of the ways: the planner takes the least, and infinity marks a way that can't be
        taken.
    """

    tiles: list[Tiles]
    readings: list[tuple[Reading, Reading]]
    parts: Floats
    seconds: Floats
    ranks: Floats

    def way(self, at: int) -> tuple[Way, float, float]:
        """Return the way at an index of the flattened arrays, its seconds and its rank."""
        reading, row, column = (int(x) for x in np.unravel_index(at, self.ranks.shape))
        a, b = self.readings[reading]
        way = Way(self.tiles[row], int(self.parts[column]), a.how, b.how)
        return way, float(self.seconds.flat[at]), float(self.ranks.flat[at])

    def best(self) -> int:
        """Return the index of the least rank."""
        return int(self.ranks.argmin())

    def ranked(self) -> Iterator[int]:
        """Yield the indices of those that can be taken, the least rank first."""
        for at in np.argsort(self.ranks, axis=None, kind="stable"):
            if self.ranks.flat[at] < math.inf:
                yield int(at)


def priced(product: Product, chip: Chip, table: Table | None = None) -> Priced:
    """Return the ways to compute a product with their times.

    Parameters
    ----------
    product : Product
        A product that the kernel can compute.
    chip : Chip
    table : Table, optional
        The table; by default that of the chip.
    """
    table = table or table_of(chip)
    p = swapped(product)
    parts = PARTS[: _counts(p)]
    if p.parts > 1:
        parts = np.array([1.0, p.parts])
    elif p.parts:
        parts = PARTS[:1]
    lanes = np.array([splitk.most_lanes(int(count)) for count in parts], float)
    added = splitk.every(p.m, p.n, p.batch, ACCUMULATORS[p.dtype], parts, lanes, chip.memory)
    if p.parts > 1:
        parts, added = parts[1:], added[1:]
    of_parts = np.where(parts > 1, MARGIN, 1.0)
    pairs = itertools.product(
        _readings(p.a, p.m, p, table), _readings(p.b.transposed, p.n, p, table)
    )
    readings = [(a, b) for a, b in pairs if not spills(a.matrix, b.matrix, chip.capability)]
    fits = np.array([
        [[blocks_of(x, p) <= MAX_GRID[0] and suits(x, a.matrix, b.matrix)] for x in table.tiles]
        for a, b in readings
    ])  # fmt: skip
    packing = np.array([
        a.seconds + b.seconds + table.costs.pack * (PACKED in (a.how, b.how))
        for a, b in readings
    ])[:, np.newaxis, np.newaxis]  # fmt: skip
    seconds = table.seconds(p, parts, [(a.matrix, b.matrix) for a, b in readings])
    seconds += added + packing
    factor = np.where(packing > 0, MARGIN, 1.0) * of_parts
    return Priced(table.tiles, readings, parts, seconds, np.where(fits, seconds * factor, math.inf))


def _counts(p: Product) -> int:
    """Return how many of :data:`PARTS` are worth comparing."""
    k = depth(p)
    most = min(k // LEAST_K, MOST_WORKSPACE // max(1, splitk.workspace(p, 1)))
    return max(1, bisect_right(PARTS, most))


def _readings(x: Operand, lines: int, p: Product, table: Table) -> list[Reading]:
    """Return the ways to read A, or B transposed, of which there is at least one."""
    found = []
    k = depth(p)
    matrix, packs = matrix_of(x, lines, k, p.batch), can_pack(lines, k, p.batch)
    realigns = matrix is not None and matrix.width < WIDTHS[0] and matrix.can_realign
    if matrix is not None and matrix.width > 1:
        found.append(Reading(COPIED, matrix))
    if matrix is not None and realigns:
        found.append(Reading(REALIGNED, matrix.realigned))
    if packs and (matrix is None or matrix.width < WIDTHS[0]):
        size = 2 * ITEM * lines * k * (p.batch if x.batch_stride else 1)
        found.append(Reading(PACKED, Matrix(True, 0, WIDTHS[0]), size / table.packs))
    return found
