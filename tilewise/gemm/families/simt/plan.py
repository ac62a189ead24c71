"""How products of float32 and float64 are computed: by which kernel, in one piece or in several."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from tilewise.gemm import pieces as cuts
from tilewise.gemm.chip import Chip
from tilewise.gemm.families.simt import kernel as fma
from tilewise.gemm.families.simt.kernel import Choice
from tilewise.gemm.families.simt.tiles import EVERY
from tilewise.gemm.families.thin import real as thin_fma
from tilewise.gemm.families.thin.real import Division, Thin
from tilewise.gemm.pack import Packing
from tilewise.gemm.pieces import Piece
from tilewise.gemm.product import Product
from tilewise.gemm.steps import Plan

# Seconds, of an H200, and by how much pieces have to be faster than the whole.
SHORTEST = 20e-6  # that a product takes which may be cut: less, and one more launch takes the gain
BETWEEN = 1.0e-6  # until the GPU is full again, after a piece
MARGIN = 1.02
# Rows of the smallest tiles; and elements of those whose last wave may cost more than it should.
SMALL, LARGE = 16, 64 * 128


@dataclass(frozen=True)
class Way:
    """A way to compute a product.

    Attributes
    ----------
    name : str
        For records.
    seconds : float
        That it should take.
    rank : float
        The same, times what it has to be better by: the best has the least.
    plan : callable
        Makes the plan.
    """

    name: str
    seconds: float
    rank: float
    plan: Callable[[], Plan]


def best(product: Product, chip: Chip) -> Way | None:
    """The way that should be fastest; None if no kernel takes the product."""
    whole = in_one(product, chip)
    return whole and (cut(product, chip, whole) or whole)


def in_one(
    product: Product, chip: Chip, below: float = math.inf, of: Product | None = None
) -> Way | None:
    """Of the ways to compute it at once the best; None if none has a rank below that.

    Where it is a piece ``of`` another product, it has that one's clock.
    """
    ways = []
    if view := thin_fma.thin(product):
        ways.append(thin(product, view, thin_fma.best(product, view, chip.multiprocessors), chip))
    if of is not None or not fma.objection(product):  # what can be read can be in pieces
        choice = fma.best(product, chip.multiprocessors, chip.is_hopper, below, of)
        ways += [] if choice is None else [tiled(product, choice, chip)]
    found = min(ways, key=attrgetter("rank"), default=None)
    return found if found is not None and found.rank < below else None


def thin(product: Product, view: Thin, division: Division, chip: Chip) -> Way:
    """By the kernel for a few rows or columns."""
    name = f"thin, {division.split} warps, {division.parts} parts"
    make = partial(thin_fma.planned, product, view, division, chip.is_hopper)
    return Way(name, division.seconds, division.seconds, make)


def tiled(product: Product, choice: Choice, chip: Chip) -> Way:
    """By tiles; the choice is one of :func:`tilewise.gemm.families.simt.kernel.turned`."""
    is_turned = fma.turned(product) is not product
    name = str(choice.tiles)
    for which, copy in choice.reading.copies:
        manner = "packed" if isinstance(copy, Packing) else "transposed"
        name += f", {'BA'[which] if is_turned else 'AB'[which]} {manner}"
    make = partial(fma.planned, choice, chip.multiprocessors, chip.is_hopper, is_turned)
    return Way(f"{name}, {choice.parts} parts", choice.seconds, choice.rank, make)


def cut(product: Product, chip: Chip, whole: Way) -> Way | None:
    """The best way in pieces; None if none should be faster than the whole.

    Tiles that D fills only in part cost as much as others, and so do multiprocessors that wait for
    the last of them. Without the last rows or columns there are neither, or fewer; and those few,
    by a kernel that suits them, take less than what is saved.
    """
    if whole.seconds < SHORTEST:
        return None
    # Alone neither has to be better by the margin: both together may be.
    limit = whole.rank * MARGIN
    by_rows, rows = _best_cut(product, chip, whole, limit, [(x, 0) for x in _last(product, chip)])
    columns_too = [(0, x) for x in _last(product.transposed, chip)]
    by_columns, columns = _best_cut(product, chip, whole, limit, columns_too)
    both = [(rows[0], columns[1])] if by_rows and by_columns else []
    by_both, _ = _best_cut(product, chip, whole, limit, both)
    found = [way for way in (by_rows, by_columns, by_both) if way and way.rank < whole.rank]
    return min(found, key=attrgetter("rank"), default=None)


def _best_cut(
    product: Product, chip: Chip, whole: Way, below: float, lines: Iterable[tuple[int, int]]
) -> tuple[Way | None, tuple[int, int]]:
    """Of those numbers of rows and columns that are cut off the best, and the way then."""
    found, best_lines = None, (0, 0)
    for each in lines:
        if way := _cut(product, chip, *each, whole, found.rank if found else below):
            found, best_lines = way, each
    return found, best_lines


def _last(product: Product, chip: Chip) -> list[int]:
    """How many rows are beyond whole tiles, and beyond whole waves of them, of each large size."""
    found = {product.m % SMALL}
    for tiles in EVERY[product.dtype]:
        if tiles.block_m * tiles.block_n < LARGE:
            continue
        of_row = -(-product.n // tiles.block_n) * product.batch
        of_wave = chip.multiprocessors * tiles.residents
        waves = tiles.blocks(product) // of_wave
        found |= {product.m % edge for edge in (tiles.block_m, tiles.block_n)}
        found.add(product.m - waves * of_wave // of_row * tiles.block_m)
    return sorted(count for count in found if 0 < count < product.m)


def _cut(
    product: Product, chip: Chip, rows: int, columns: int, whole: Way, below: float
) -> Way | None:
    """The last ``rows`` and ``columns`` apart; None if its rank would not be below that."""
    first, *others = cuts.cut(product, rows, columns)
    worth = whole.rank / whole.seconds  # what its copies have to gain
    left = below / (worth * MARGIN) - BETWEEN * len(others)
    # An element of those few takes no less than one of all the others.
    share = first.product.m * first.product.n / (product.m * product.n)
    pieces: list[tuple[Piece, Way]] = []
    for piece in (first, *others):
        limit = left if pieces else left * share
        way = in_one(piece.product, chip, limit * worth, product)
        if way is None or way.seconds >= limit:
            return None
        pieces.append((piece, way))
        left -= way.seconds
    seconds = BETWEEN * len(others) + sum(way.seconds for _, way in pieces)
    lines = (("row", rows), ("column", columns))
    apart = [word if count == 1 else f"{count} {word}s" for word, count in lines if count]
    name = f"{pieces[0][1].name}; the last {' and '.join(apart)} apart: "
    name += "; ".join(way.name for _, way in pieces[1:])
    why = f"in pieces it should take {seconds * 1e6:.1f} µs, in one {whole.seconds * 1e6:.1f}"
    return Way(name, seconds, seconds * worth * MARGIN, partial(_joined, pieces, apart, why))


def _joined(pieces: Sequence[tuple[Piece, Way]], apart: Sequence[str], why: str) -> Plan:
    (first, of_first), *others = ((piece, way.plan()) for piece, way in pieces)
    words = [of_first.chosen]
    words += [
        f"the last {lines} by {plan.chosen}" for lines, (_, plan) in zip(apart, others, strict=True)
    ]
    return cuts.joined([(first, of_first), *others], "; ".join(words), why)
