"""Compute products of float32 and float64 in pieces: the last rows or columns of D apart."""

from __future__ import annotations

import math
from functools import cache, partial

from tilewise.gemm import pieces
from tilewise.gemm.chip import Chip
from tilewise.gemm.families.simt import kernel
from tilewise.gemm.families.simt.matrices import COPYABLE, MAPPED, WIDE
from tilewise.gemm.families.simt.offers import NAME, in_one
from tilewise.gemm.families.simt.tiles import AnyTiles, tiles_for
from tilewise.gemm.families.simt.ways import ways_of
from tilewise.gemm.families.thin.family import ThinReal
from tilewise.gemm.families.thin.real import MOST
from tilewise.gemm.family import Offer
from tilewise.gemm.pieces import Piece
from tilewise.gemm.product import Product
from tilewise.gemm.steps import Plan
from tilewise.places import ITEM_SIZES
from tilewise.shown import expected_time

# The least seconds of a product that is worth cutting, the seconds until the GPU is full again
# after a piece, and how many times faster pieces have to be than the whole.
SHORTEST, BETWEEN, PIECES_MARGIN = 20e-6, 1.0e-6, 1.03
FASTEST = (MAPPED | WIDE | COPYABLE,) * 2  # the traits of A and B for the fastest tiles
PEAK = 0.97  # the most of the fastest tiles' speed that whole products reach
EDGE = 64  # the few rows or columns beyond a multiple of it are computed apart
# For a last wave that is computed apart: the most of it that may be filled, the share of the
# fastest tiles' speed that it is assumed to reach, and the least seconds that it has to save.
MOST_LEFT, APART_SPEED, LEAST_SAVED = 0.5, 0.7, 4e-6
LONG_THIN = 0.03  # share of the whole's seconds: a piece that takes longer may be faster by tiles

_THIN = ThinReal()


def in_pieces(product: Product, chip: Chip, whole: Offer) -> Offer | None:
    """Return the best offer in pieces; None if no offer should be faster than the whole.

    Tiles that D fills only in part cost as much as full ones, and so do multiprocessors that wait
    for the last wave to end. Without the last rows or columns there is less of both, and a kernel
    that suits those few lines takes less time for them than is saved. The whole's tiles decide how
    many lines to cut, and only the first cut that may gain is priced.
    """
    if whole.seconds < SHORTEST:
        return None
    tiles = _tiles(str(whole.choice["tiles"]), product.dtype, chip)
    edges = (tiles.block_m, tiles.block_n)
    if kernel.is_swapped(product):
        edges = edges[::-1]
    cuts = [_few_lines(product), *_waves(product, chip, whole, edges, tiles.residents)]
    for rows, columns in cuts:
        if _least(product, chip, rows, columns) * PIECES_MARGIN * whole.margin < whole.rank:
            return _cut(product, chip, rows, columns, whole)
    return None


@cache
def _tiles(words: str, dtype: str, chip: Chip) -> AnyTiles:
    return next(x for x in tiles_for(dtype, chip) if str(x) == words)


def _few_lines(product: Product) -> tuple[int, int]:
    """Return the rows and the columns beyond whole tiles, if the thin kernel takes them."""
    rows, columns = product.m % EDGE, product.n % EDGE
    return (
        rows if rows <= MOST and rows < product.m else 0,
        columns if columns <= MOST and columns < product.n else 0,
    )


def _waves(
    product: Product, chip: Chip, whole: Offer, edges: tuple[int, int], residents: int
) -> list[tuple[int, int]]:
    """Return the rows or the columns beyond whole waves of blocks, whichever promise more.

    Return none if many blocks are left over, or if they would not take much less time apart.
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


def _least(product: Product, chip: Chip, rows: int, columns: int) -> float:
    """Return a lower bound on the seconds of a product whose last rows and columns are apart."""
    if not (rows or columns):
        return math.inf
    m, n, k, batch = product.m, product.n, product.k, product.batch
    item = ITEM_SIZES[product.dtype]
    table = ways_of(product.dtype, chip, *FASTEST).table
    seconds = (m - rows) * (n - columns) * k * batch / (table.peak * PEAK)
    for lines, others in ((rows, n), (columns, m - rows)):
        if lines:
            by_memory = others * k * batch * item / chip.memory
            seconds += (
                table.costs.start
                + BETWEEN
                + max(by_memory, lines * others * k * batch / (table.peak * APART_SPEED))
            )
    return seconds


def _cut(product: Product, chip: Chip, rows: int, columns: int, whole: Offer) -> Offer | None:
    """Return the offer with the last rows and columns apart; None if it is no faster."""
    operations = 2.0 * product.batch * product.m * product.n * product.k
    left = whole.seconds / PIECES_MARGIN
    chosen: list[tuple[Piece, Offer]] = []
    for piece in pieces.cut(product, rows, columns):
        left -= BETWEEN if chosen else 0.0
        found = _THIN.best(piece.product, chip) if chosen else None
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
    why = (
        f"in pieces it should take {expected_time(seconds)}, in one {expected_time(whole.seconds)}"
    )
    choice = {
        "pieces": [rows, columns],
        "of": [{"family": found.family, **found.choice} for _, found in chosen],
    }
    make = partial(_plan, chosen, apart, why)
    divides_k = any(found.divides_k for _, found in chosen)
    return Offer(
        NAME, seconds, make, choice, words, whole.margin * PIECES_MARGIN, divides_k
    )  # fmt: skip


def _plan(chosen: list[tuple[Piece, Offer]], apart: list[str], why: str) -> Plan:
    (first, of_first), *others = ((piece, found.make()) for piece, found in chosen)
    words = [of_first.chosen]
    words += [
        f"the last {lines} by {plan.chosen}" for lines, (_, plan) in zip(apart, others, strict=True)
    ]
    return pieces.joined([(first, of_first), *others], "; ".join(words), why)
