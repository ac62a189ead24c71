"""The family of kernels for float32 and float64 by tiles: what it offers for a product."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from tilewise.devices.limits import MAX_GRID
from tilewise.gemm import pack, pieces, splitk, transpose
from tilewise.gemm.chip import Chip
from tilewise.gemm.families.simt import kernel
from tilewise.gemm.families.simt.kernel import Choice
from tilewise.gemm.families.simt.readings import (
    COPYABLE,
    LIES,
    MAPPED,
    NONE,
    PACKED,
    TRANSPOSED,
    WIDE,
    Reading,
    lie,
    readings,
    table_rows,
)
from tilewise.gemm.families.simt.tiles import AnyTiles, tiles_for
from tilewise.gemm.families.simt.timing import MOST_PARTS, PARTS, Floats, Table, part_k, rates
from tilewise.gemm.families.thin import real as thin
from tilewise.gemm.family import Offer
from tilewise.gemm.pack import Packing
from tilewise.gemm.pieces import Piece
from tilewise.gemm.product import ALIGNMENT, ITEM_SIZES, REAL, Operand, Product
from tilewise.gemm.steps import Plan
from tilewise.kernel import Kernel

name = "simt"

MOST_WORKSPACE = 1 << 28  # bytes of the parts' sums
LEAST_K = 64  # of a part
# Blocks that k is divided for: more than fill the GPU several times only add sums.
MOST_BLOCKS, LEAST_COUNTS, LARGE_TILE = 8, 4, 128 * 128
# What copies gain at least, for they take a workspace; and beyond so many bytes of A and B.
MARGIN, LARGE_MARGIN, LARGE = 1.01, 1.04, 1 << 28

# Of products in pieces: seconds that one takes at least, seconds until the GPU is full again after
# a piece, and by how much pieces have to be faster than the whole.
SHORTEST, BETWEEN, PIECES_MARGIN = 20e-6, 1.0e-6, 1.03
ALIGNED = (MAPPED | WIDE | COPYABLE,) * 2  # how A and B lie for the fastest tiles
PEAK = 0.97  # the share of the fastest tiles' speed that whole products have at most
EDGE = 64  # rows or columns: beyond whole ones of so many, few are apart
# Of a last wave that is apart: the share of it that is filled at most, the share of the whole's
# speed at which it is taken to be computed then, and seconds that are saved at least.
MOST_LEFT, APART_SPEED, LEAST_SAVED = 0.5, 0.7, 4e-6
LONG_THIN = 0.03  # of the whole's seconds: beyond it few lines may be faster by tiles

_COUNTS = tuple(int(count) for count in PARTS)
_MANNERS = {PACKED: "packed", TRANSPOSED: "transposed"}


def objection(product: Product, chip: Chip | None) -> str:
    """Return why the family can't compute a product; empty if it can."""
    if chip is None:
        return "this is no GPU of compute capability 8.0 or above"
    return kernel.objection(product)


def best(product: Product, chip: Chip | None) -> Offer | None:
    """Return the offer that should be fastest, in one piece or in several."""
    if chip is None:
        return None
    whole = in_one(product, chip)
    if whole is None or whole.seconds < SHORTEST:
        return whole
    return _in_pieces(product, chip, whole) or whole


def in_one(product: Product, chip: Chip, operations: float = 0.0) -> Offer | None:
    """Return the offer that should be fastest in one piece.

    Parameters
    ----------
    product : Product
    chip : Chip
    operations : float, optional
        Of the product that it is a piece of, which decides the clock.
    """
    priced = _priced(product, chip, operations)
    if priced is None:
        return None
    ways, seconds, ranks = priced
    at = int(ranks.argmin())
    row, column = divmod(at, ranks.shape[1])
    if ranks[row, column] == math.inf:
        return None
    return _offer(product, chip, ways, row, column, float(seconds[row, column]))


def offers(product: Product, chip: Chip | None) -> Iterator[Offer]:
    """Return every offer worth measuring, the one that should be fastest first."""
    if chip is None or objection(product, chip):
        return
    first = best(product, chip)
    if first is not None and "pieces" in first.choice:
        yield first
    priced = _priced(product, chip)
    if priced is None:
        return
    ways, seconds, ranks = priced
    for row, column in _ranked(product, ways, ranks):
        yield _offer(product, chip, ways, row, column, float(seconds[row, column]))


def choices(product: Product, chip: Chip) -> Iterator[Choice]:
    """Return every way to compute a product in one piece, as the kernel is given it."""
    priced = _priced(product, chip)
    if priced is None:
        return
    ways, seconds, ranks = priced
    seen = kernel.swapped(product)
    read: dict[tuple[int, int], Reading] = {}
    for row, column in _ranked(product, ways, ranks):
        copies, tiles = ways.copies[row], ways.tiles[row]
        reading = read.get(copies) or reading_of(seen, copies)
        read[copies] = reading
        parts = _parts(product, tiles, column)
        yield Choice(float(seconds[row, column]), reading, tiles, parts)


def offer(product: Product, chip: Chip | None, choice: Mapping[str, Any]) -> Offer | None:
    """Return the offer with these choices; None where the product can't be computed so."""
    if "pieces" in choice:
        found = best(product, chip)
        return found if found is not None and found.choice == choice else None
    return next((each for each in offers(product, chip) if each.choice == choice), None)


def kernels(chip: Chip | None, dtype: str) -> Iterable[Kernel]:
    """Return every kernel that :func:`best` can ask for with these inputs on this GPU."""
    if chip is None or dtype not in REAL:
        return ()
    overlap = chip.is_hopper
    found: dict[Kernel, None] = {}
    for of_a in LIES:
        for of_b in LIES:
            for tiles, a, b, *_ in table_rows(dtype, tiles_for(dtype, overlap), of_a, of_b):
                found[kernel.of_lies(dtype, tiles, a, b, overlap)] = None
    extra = [
        pack.kernel(overlap),
        transpose.kernel(dtype, overlap),
        *splitk.kernels(dtype, overlap),
    ]
    return (*found, *extra)


class _Ways:
    """The ways to compute products whose matrices lie alike, and their times."""

    def __init__(self, dtype: str, chip: Chip, of_a: int, of_b: int):
        rows = table_rows(dtype, tiles_for(dtype, chip.is_hopper), of_a, of_b)
        self.tiles: list[AnyTiles] = [tiles for tiles, *_ in rows]
        self.copies = [(copy_a, copy_b) for *_, copy_a, copy_b in rows]
        self.table = Table(dtype, chip, [row[:3] for row in rows], self.copies)
        margins = [[MARGIN if any(copies) else 1.0] for copies in self.copies]
        self.margins: Floats = np.array(margins)


@lru_cache(maxsize=1024)
def _ways(dtype: str, chip: Chip, of_a: int, of_b: int) -> _Ways:
    return _Ways(dtype, chip, of_a, of_b)


def _priced(
    product: Product, chip: Chip, operations: float = 0.0
) -> tuple[_Ways, Floats, Floats] | None:
    """Return all ways to compute a product, and the seconds and the rank of each."""
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
    of_a, of_b = lie(a, m, product.k, batch, item), lie(b, n, product.k, batch, item)
    if of_a < 0 or of_b < 0:
        return None
    ways = _ways(dtype, chip, of_a, of_b)
    is_unaligned = bool(d.offset or pitch * item % ALIGNMENT or d.batch_stride * item % ALIGNMENT)
    shares = a.batch_stride == 0, b.batch_stride == 0
    seconds = ways.table.seconds(
        m, n, k, batch, counts=_count(m, n, k, batch, item, chip), shares=shares,
        is_unaligned=is_unaligned, operations=operations,
    )  # fmt: skip
    ranks = seconds * ways.margins
    if batch * (m + n) * k * item > LARGE:
        copied = ways.table.copied > 0
        of_copies = copied @ np.array([m, n], float) * (batch * k * item)
        ranks[of_copies > LARGE] *= LARGE_MARGIN / MARGIN
    if batch * m * n > MAX_GRID[0]:
        for row, tiles in enumerate(ways.tiles):
            if -(-m // tiles.block_m) * -(-n // tiles.block_n) * batch > MAX_GRID[0]:
                ranks[row] = math.inf
    return ways, seconds, ranks


def _count(m: int, n: int, k: int, batch: int, item: int, chip: Chip) -> int:
    """Return how many of :data:`PARTS` are worth a look."""
    if k < 2 * LEAST_K:
        return 1
    of_d = batch * m * n
    most = min(MOST_PARTS, k // LEAST_K, MOST_WORKSPACE // (of_d * item))
    fills = MOST_BLOCKS * chip.multiprocessors * LARGE_TILE // of_d
    return max(1, bisect_right(_COUNTS, min(most, max(LEAST_COUNTS, fills))))


def _parts(product: Product, tiles: AnyTiles, column: int) -> int:
    """Return into how many parts k is divided, none of which is empty."""
    k = 0 if product.alpha == 0 else product.k
    return max(1, -(-k // max(1, part_k(k, _COUNTS[column], tiles.block_k))))


def _ranked(product: Product, ways: _Ways, ranks: Floats) -> Iterator[tuple[int, int]]:
    """Return the rows and columns of the table, best first, but those that divide k alike."""
    seen = set()
    for at in np.argsort(ranks, axis=None, kind="stable"):
        row, column = divmod(int(at), ranks.shape[1])
        key = row, _parts(product, ways.tiles[row], column)
        if ranks[row, column] < math.inf and key not in seen:
            seen.add(key)
            yield row, column


def _offer(
    product: Product, chip: Chip, ways: _Ways, row: int, column: int, seconds: float
) -> Offer:
    tiles, copies = ways.tiles[row], ways.copies[row]
    parts = _parts(product, tiles, column)
    names = "BA" if kernel.is_swapped(product) else "AB"
    words = str(tiles)
    choice: dict[str, Any] = {"tiles": words, "parts": parts}
    for which, manner in zip(names, copies, strict=True):
        if manner != NONE:
            choice[which] = _MANNERS[manner]
            words += f", {which} {_MANNERS[manner]}"
    if parts > 1:
        words += f", {parts} parts"
    make = partial(_made, product, chip, tiles, copies, parts, seconds)
    return Offer(name, seconds, make, choice, words, float(ways.margins[row, 0]))


def _made(
    product: Product, chip: Chip, tiles: AnyTiles, copies: tuple[int, int], parts: int,
    seconds: float,
) -> Plan:  # fmt: skip
    reading = reading_of(kernel.swapped(product), copies)
    choice = Choice(seconds, reading, tiles, parts)
    is_swapped = kernel.is_swapped(product)
    return kernel.planned(choice, chip.multiprocessors, chip.is_hopper, is_swapped)


def reading_of(product: Product, copies: tuple[int, int]) -> Reading:
    """Return the reading of a product with those copies of A and of B."""
    wanted = tuple((which, manner) for which, manner in enumerate(copies) if manner != NONE)
    for reading in readings(product):
        made = tuple(
            (which, PACKED if isinstance(copy, Packing) else TRANSPOSED)
            for which, copy in reading.copies
        )
        if made == wanted:
            return reading
    raise AssertionError(f"{product} can't be read with copies {copies}")


def _in_pieces(product: Product, chip: Chip, whole: Offer) -> Offer | None:
    """Return the best offer in pieces; None if none should be faster than the whole.

    Tiles that D fills only in part cost as much as others, and so do multiprocessors that wait for
    the last of them. Without the last rows or columns there are neither, or fewer; and those few,
    by a kernel that suits them, take less than what is saved. How many to cut is reckoned from the
    whole's tiles, and only the first cut that may gain is priced.
    """
    tiles = _tiles(str(whole.choice["tiles"]), product.dtype)
    edges = (tiles.block_m, tiles.block_n)
    if kernel.is_swapped(product):
        edges = edges[::-1]
    cuts = [_few_lines(product), *_waves(product, chip, whole, edges, tiles.residents)]
    for rows, columns in cuts:
        if _least(product, chip, rows, columns) * PIECES_MARGIN * whole.margin < whole.rank:
            return _cut(product, chip, rows, columns, whole)
    return None


@cache
def _tiles(words: str, dtype: str) -> AnyTiles:
    return next(x for hopper in (True, False) for x in tiles_for(dtype, hopper) if str(x) == words)


def _least(product: Product, chip: Chip, rows: int, columns: int) -> float:
    """Return seconds below which no product takes without its last rows and columns, and they."""
    if not (rows or columns):
        return math.inf
    m, n, k, batch = product.m, product.n, product.k, product.batch
    item = ITEM_SIZES[product.dtype]
    table = _ways(product.dtype, chip, *ALIGNED).table
    seconds = (m - rows) * (n - columns) * k * batch / (table.peak * PEAK)
    for lines, others in ((rows, n), (columns, m - rows)):
        if lines:
            by_memory = others * k * batch * item / rates(chip).memory
            seconds += (
                table.costs.start
                + BETWEEN
                + max(by_memory, lines * others * k * batch / (table.peak * APART_SPEED))
            )
    return seconds


def _few_lines(product: Product) -> tuple[int, int]:
    """Return the rows and the columns beyond whole tiles, where they are the thin kernel's."""
    rows, columns = product.m % EDGE, product.n % EDGE
    return (
        rows if rows <= thin.MOST and rows < product.m else 0,
        columns if columns <= thin.MOST and columns < product.n else 0,
    )


def _waves(
    product: Product, chip: Chip, whole: Offer, edges: tuple[int, int], residents: int
) -> list[tuple[int, int]]:
    """Return the rows or the columns beyond whole waves of the whole's blocks, where that promises
    most: few blocks are left over, and what they compute would take much less apart.
    """
    m, n, batch = product.m, product.n, product.batch
    down, across = -(-m // edges[0]), -(-n // edges[1])
    of_wave = chip.multiprocessors * residents
    waves, rest = divmod(down * across * batch, of_wave)
    if whole.choice["parts"] > 1 or not waves or not 0 < rest < of_wave * MOST_LEFT:
        return []
    found = [
        (m - waves * of_wave // (across * batch) * edges[0], 0),
        (0, n - waves * of_wave // (down * batch) * edges[1]),
    ]
    fewest = min((r * n + c * m, r, c) for r, c in found if r + c > 0)
    share = fewest[0] / (m * n)
    saved = 1.0 / (waves + 1) - share / APART_SPEED
    if saved * whole.seconds < LEAST_SAVED:
        return []
    return [fewest[1:]] if fewest[1] < m and fewest[2] < n else []


def _cut(product: Product, chip: Chip, rows: int, columns: int, whole: Offer) -> Offer | None:
    """Return the offer with the last ``rows`` and ``columns`` apart; None if that is no faster."""
    operations = 2.0 * product.batch * product.m * product.n * product.k
    left = whole.seconds / PIECES_MARGIN
    chosen: list[tuple[Piece, Offer]] = []
    for piece in pieces.cut(product, rows, columns):
        left -= BETWEEN if chosen else 0.0
        found = thin.best(piece.product, chip) if chosen else None
        if found is None or found.seconds > LONG_THIN * whole.seconds:
            by_tiles = in_one(piece.product, chip, operations)
            found = min(filter(None, (by_tiles, found)), key=lambda x: x.rank, default=None)
        if found is None or found.seconds >= left:
            return None
        left -= found.seconds
        chosen.append((piece, found))
    seconds = sum(found.seconds for _, found in chosen) + BETWEEN * (len(chosen) - 1)
    apart = [
        f"{word}" if count == 1 else f"{count} {word}s"
        for word, count in (("row", rows), ("column", columns))
        if count
    ]
    words = f"{chosen[0][1].words}; the last {' and '.join(apart)} apart: "
    words += "; ".join(f"{found.family} {found.words}" for _, found in chosen[1:])
    why = f"in pieces it should take {seconds * 1e6:.1f} µs, in one {whole.seconds * 1e6:.1f}"
    choice = {
        "pieces": [rows, columns],
        "of": [{"family": found.family, **found.choice} for _, found in chosen],
    }
    make = partial(_joined, chosen, apart, why)
    return Offer(name, seconds, make, choice, words, whole.margin * PIECES_MARGIN)


def _joined(chosen: list[tuple[Piece, Offer]], apart: list[str], why: str) -> Plan:
    (first, of_first), *others = ((piece, found.make()) for piece, found in chosen)
    words = [of_first.chosen]
    words += [
        f"the last {lines} by {plan.chosen}" for lines, (_, plan) in zip(apart, others, strict=True)
    ]
    return pieces.joined([(first, of_first), *others], "; ".join(words), why)
