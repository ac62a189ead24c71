"""The ways to compute a product of float32 or float64 in one piece, and the time of each."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tilewise.devices.limits import MAX_GRID
from tilewise.gemm import splitk
from tilewise.gemm.chip import Chip
from tilewise.gemm.families.simt import kernel
from tilewise.gemm.families.simt.matrices import PACKED, Access, accesses, traits_of
from tilewise.gemm.families.simt.table import MOST_PARTS, PARTS, Floats, Table, Way
from tilewise.gemm.families.simt.tiles import tiles_for
from tilewise.gemm.product import ALIGNMENT, REAL, Operand, Product
from tilewise.places import ITEM_SIZES

MOST_WORKSPACE = 1 << 28  # bytes of the parts' sums
LEAST_K = 64  # the least k of a part
# k is divided for at most so many blocks of a multiprocessor, as more than fill the GPU several
# times only add sums; the least numbers of parts that are compared; and the elements of a large
# tile of D.
MOST_BLOCKS, LEAST_COUNTS, LARGE_TILE = 8, 4, 128 * 128
# How many times faster a way with copies has to be, since it takes a workspace; and how many times,
# if it copies more than so many bytes of A and B.
MARGIN, LARGE_MARGIN, LARGE = 1.01, 1.04, 1 << 28

_COUNTS = tuple(int(count) for count in PARTS)


class Ways:
    """The ways to compute products with matrices of the same traits.

    Attributes
    ----------
    ways : list of Way
    table : Table
        The times of the ways.
    margins : array
        The factor by which each way has to be faster than others to be chosen.
    """

    def __init__(self, dtype: str, chip: Chip, traits_a: int, traits_b: int) -> None:
        self.ways = every_way(dtype, chip, traits_a, traits_b)
        self.table = Table(dtype, chip, self.ways)
        margins = [[MARGIN if way.copy_a or way.copy_b else 1.0] for way in self.ways]
        self.margins: Floats = np.array(margins)


@lru_cache(maxsize=1024)
def ways_of(dtype: str, chip: Chip, traits_a: int, traits_b: int) -> Ways:
    """Return the ways to compute products with matrices of these traits on a GPU."""
    return Ways(dtype, chip, traits_a, traits_b)


def every_way(dtype: str, chip: Chip, traits_a: int, traits_b: int) -> list[Way]:
    """Return every way to compute products with matrices of these traits.

    Parameters
    ----------
    dtype : str
    chip : Chip
    traits_a, traits_b : int
        The traits of A, and of B transposed.
    """
    found = []
    every = tiles_for(dtype, chip)
    for copy_a, a, a_is_mapped, a_is_wide in accesses(traits_a):
        for copy_b, b, b_is_mapped, b_is_wide in accesses(traits_b):
            is_mapped, is_wide = a_is_mapped and b_is_mapped, a_is_wide and b_is_wide
            for tiles in every:
                # Without bulk copies, packed K-major matrices are read no faster than in place.
                gains = tiles.bulk or not any(
                    copy == PACKED and x.is_k_major for copy, x in ((copy_a, a), (copy_b, b))
                )
                # Bulk copies feed the tensor cores if they can.
                has_both = chip.is_hopper and tiles.by_tensor_cores
                is_beaten = has_both and is_mapped and not tiles.bulk
                takes = tiles.takes(dtype, a.is_k_major, b.is_k_major, is_mapped, is_wide)
                if takes and gains and not is_beaten:
                    read_a, read_b = (_by_bulk_copies(x) if tiles.bulk else x for x in (a, b))
                    found.append(Way(tiles, read_a, read_b, copy_a, copy_b))
    return found


def _by_bulk_copies(x: Access) -> Access:
    """Return the access by bulk copies, which never copy element by element."""
    return Access(x.is_k_major, False, x.splits_sectors)


class Priced(NamedTuple):
    """A product's ways, and the time that each should take.

    Attributes
    ----------
    product : Product
    ways : Ways
    seconds : array
        The seconds of each way, a row each, with each of :data:`PARTS`, a column each.
    ranks : array
        The ranks, of which the planner takes the least; infinity for a way that can't be taken.
    """

    product: Product
    ways: Ways
    seconds: Floats
    ranks: Floats

    def best(self) -> tuple[int, int] | None:
        """Return the row and the column of the least rank; None if no way can be taken."""
        row, column = divmod(int(self.ranks.argmin()), self.ranks.shape[1])
        return (row, column) if self.ranks[row, column] < math.inf else None

    def ranked(self) -> Iterator[tuple[int, int]]:
        """Yield rows and columns, the best first, each division of k once."""
        seen = set()
        for at in np.argsort(self.ranks, axis=None, kind="stable"):
            row, column = divmod(int(at), self.ranks.shape[1])
            key = row, self.parts(row, column)
            if self.ranks[row, column] < math.inf and key not in seen:
                seen.add(key)
                yield row, column

    def parts(self, row: int, column: int) -> int:
        """Return the number of parts that k is divided into, none of which is empty."""
        k = 0 if self.product.alpha == 0 else self.product.k
        block_k = self.ways.ways[row].tiles.block_k
        return max(1, -(-k // max(1, splitk.part_k(k, _COUNTS[column], block_k))))


def priced(product: Product, chip: Chip, operations: float = 0.0) -> Priced | None:
    """Return all ways to compute a product with their times; None if the kernel can't.

    Parameters
    ----------
    product : Product
    chip : Chip
    operations : float, optional
        The number of operations of the product that this one is a piece of.
    """
    dtype, batch, d = product.dtype, product.batch, product.d
    if dtype not in REAL:
        return None
    m, n, k, a, b = product.m, product.n, product.k, product.a, product.b
    item = ITEM_SIZES[dtype]
    b = Operand(b.column_stride, b.row_stride, b.batch_stride, b.offset)
    is_swapped = kernel.is_swapped(product)
    pitch = d.column_stride if is_swapped else d.row_stride
    if is_swapped:
        m, n, a, b = n, m, b, a
    if product.alpha == 0:
        k = 0
    if max(m, n, k) > kernel.LARGEST:
        return None
    of_a = traits_of(a, m, product.k, batch, item)
    of_b = traits_of(b, n, product.k, batch, item)
    if of_a < 0 or of_b < 0:
        return None
    ways = ways_of(dtype, chip, of_a, of_b)
    is_unaligned = bool(d.offset or pitch * item % ALIGNMENT or d.batch_stride * item % ALIGNMENT)
    shares = a.batch_stride == 0, b.batch_stride == 0
    seconds = ways.table.seconds(
        m, n, k, batch, counts=_counts(m, n, k, batch, item, chip), shares=shares,
        is_unaligned=is_unaligned, operations=operations,
    )  # fmt: skip
    ranks = seconds * ways.margins
    if batch * (m + n) * k * item > LARGE:
        copied = ways.table.copied > 0
        of_copies = copied @ np.array([m, n], float) * (batch * k * item)
        ranks[of_copies > LARGE] *= LARGE_MARGIN / MARGIN
    if batch * m * n > MAX_GRID[0]:
        for row, (tiles, *_) in enumerate(ways.ways):
            if -(-m // tiles.block_m) * -(-n // tiles.block_n) * batch > MAX_GRID[0]:
                ranks[row] = math.inf
    return Priced(product, ways, seconds, ranks)


def _counts(m: int, n: int, k: int, batch: int, item: int, chip: Chip) -> int:
    """Return how many of :data:`PARTS` are worth comparing."""
    if k < 2 * LEAST_K:
        return 1
    of_d = batch * m * n
    most = min(MOST_PARTS, k // LEAST_K, MOST_WORKSPACE // (of_d * item))
    fills = MOST_BLOCKS * chip.multiprocessors * LARGE_TILE // of_d
    return max(1, bisect_right(_COUNTS, min(most, max(LEAST_COUNTS, fills))))
