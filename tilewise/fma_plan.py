"""How products of float32 and float64 are computed: by which kernel, in one piece or in several."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from operator import attrgetter

from tilewise import cuts, fma, thin_fma
from tilewise.cuts import Part
from tilewise.fma import Choice
from tilewise.fma_tiles import EVERY
from tilewise.pack import Packing
from tilewise.product import Product
from tilewise.steps import Plan
from tilewise.thin_fma import Division, Thin
from tilewise.tuned import Chip

# Seconds, of an H200, and by how much pieces have to be faster than the whole.
SHORTEST = 20e-6  # that a product takes which may be cut: less, and one more launch takes the gain
BETWEEN = 1.0e-6  # until the GPU is full again, after a piece
MARGIN = 1.02


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


def in_one(product: Product, chip: Chip, below: float = math.inf) -> Way | None:
    """Of the ways to compute it at once the best; None if none has a rank below that."""
    ways = []
    if view := thin_fma.thin(product):
        ways.append(thin(product, view, thin_fma.best(product, view, chip.multiprocessors), chip))
    if not fma.objection(product):
        choice = fma.best(product, chip.multiprocessors, chip.is_hopper, below)
        ways += [] if choice is None else [tiled(product, choice, chip)]
    found = min(ways, key=attrgetter("rank"), default=None)
    return found if found is not None and found.rank < below else None


def thin(product: Product, view: Thin, division: Division, chip: Chip) -> Way:
    """By the kernel for a few rows or columns."""
    name = f"thin, {division.split} warps, {division.parts} parts"
    make = partial(thin_fma.planned, product, view, division, chip.is_hopper)
    return Way(name, division.seconds, division.seconds, make)


def tiled(product: Product, choice: Choice, chip: Chip) -> Way:
    """By tiles; the choice is one of :func:`tilewise.fma.turned`."""
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
    found = whole
    rows = columns = 0  # with which it is best without the last of the others
    for count in _last(product.dtype, product.m):
        if way := _cut(product, chip, count, 0, found):
            found, rows = way, count
    by_rows, found = found, whole
    for count in _last(product.dtype, product.n):
        if way := _cut(product, chip, 0, count, found):
            found, columns = way, count
    found = min(found, by_rows, key=attrgetter("rank"))
    if rows and columns and (way := _cut(product, chip, rows, columns, found)):
        found = way
    return None if found is whole else found


def _last(dtype: str, extent: int) -> Iterator[int]:
    """How many rows or columns are beyond whole tiles, of each size."""
    yield from sorted({extent % edge for edge in _edges(dtype) if edge < extent} - {0})


@cache
def _edges(dtype: str) -> frozenset[int]:
    return frozenset(edge for x in EVERY[dtype] for edge in (x.block_m, x.block_n))


def _cut(product: Product, chip: Chip, rows: int, columns: int, than: Way) -> Way | None:
    """The last ``rows`` and ``columns`` apart; None if that should not be faster than another."""
    first, *others = cuts.cut(product, rows, columns)
    limit = than.rank / MARGIN - BETWEEN * len(others)
    # An element of those few takes no less than one of all the others.
    share = first.product.m * first.product.n / (product.m * product.n)
    pieces: list[tuple[Part, Way]] = []
    seconds = 0.0
    for piece in (first, *others):
        below = (limit - seconds) * (1.0 if pieces else share)
        way = in_one(piece.product, chip, below)
        if way is None:
            return None
        pieces.append((piece, way))
        seconds += way.seconds
    seconds += BETWEEN * len(others)
    rank = seconds * MARGIN
    if rank >= than.rank:
        return None
    lines = (("row", rows), ("column", columns))
    apart = [word if count == 1 else f"{count} {word}s" for word, count in lines if count]
    name = f"{pieces[0][1].name}; the last {' and '.join(apart)} apart: "
    name += "; ".join(way.name for _, way in pieces[1:])
    return Way(name, seconds, rank, partial(_joined, pieces, apart, seconds))


def _joined(pieces: Sequence[tuple[Part, Way]], apart: Sequence[str], seconds: float) -> Plan:
    plans = [(piece, way.plan()) for piece, way in pieces]
    (_, first), *others = plans
    chosen = f"{first.chosen}; the last "
    chosen += "; the last ".join(
        f"{lines} by {plan.chosen}" for lines, (_, plan) in zip(apart, others, strict=True)
    )
    return cuts.joined(plans, chosen, f"in such pieces it should take {seconds * 1e6:.1f} µs")
