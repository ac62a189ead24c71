"""The offers of the float32 and float64 kernels for a product in one piece."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from tilewise.gemm.chip import Chip
from tilewise.gemm.families.simt import kernel
from tilewise.gemm.families.simt.kernel import Choice
from tilewise.gemm.families.simt.matrices import NONE, PACKED, TRANSPOSED
from tilewise.gemm.families.simt.readings import reading_of
from tilewise.gemm.families.simt.table import Way
from tilewise.gemm.families.simt.ways import Priced, priced
from tilewise.gemm.family import Offer
from tilewise.gemm.product import Product
from tilewise.gemm.steps import Plan

NAME = "simt"  # the family's name
_COPIED = {PACKED: "packed", TRANSPOSED: "transposed"}


def in_one(product: Product, chip: Chip, operations: float = 0.0) -> Offer | None:
    """Return the offer that should be fastest in one piece; None if there is none.

    Parameters
    ----------
    product : Product
    chip : Chip
    operations : float, optional
        The number of operations of the product that this one is a piece of, which decides the
        clock.
    """
    found = priced(product, chip, operations)
    place = None if found is None else found.best()
    return None if found is None or place is None else _offer(found, *place, chip)


def in_order(product: Product, chip: Chip) -> Offer | None:
    """Return the fastest offer whose threads sum along all of k; None if there is none."""
    found = priced(product, chip)
    if found is not None:
        for row, column in found.ranked():
            tiles = found.ways.ways[row].tiles
            if found.parts(row, column) == 1 and tiles.slices == 1 and not tiles.by_tensor_cores:
                return _offer(found, row, column, chip)
    return None


def all_in_one(product: Product, chip: Chip) -> Iterator[Offer]:
    """Yield every offer in one piece, the one that should be fastest first."""
    found = priced(product, chip)
    if found is not None:
        for place in found.ranked():
            yield _offer(found, *place, chip)


def choices(product: Product, chip: Chip) -> Iterator[Choice]:
    """Yield every way to compute a product in one piece, in the form that the kernel takes."""
    found = priced(product, chip)
    if found is not None:
        for row, column in found.ranked():
            way, seconds = found.ways.ways[row], float(found.seconds[row, column])
            yield _choice(product, way, found.parts(row, column), seconds)


def _offer(found: Priced, row: int, column: int, chip: Chip) -> Offer:
    way, seconds = found.ways.ways[row], float(found.seconds[row, column])
    parts = found.parts(row, column)
    names = "BA" if kernel.is_swapped(found.product) else "AB"
    words = str(way.tiles)
    choice: dict[str, Any] = {"tiles": words, "parts": parts}
    for which, copy in zip(names, (way.copy_a, way.copy_b), strict=True):
        if copy != NONE:
            choice[which] = _COPIED[copy]
            words += f", {which} {_COPIED[copy]}"
    if parts > 1:
        words += f", {parts} parts"
    make = partial(_plan, found.product, chip, way, parts, seconds)
    margin = float(found.ranks[row, column]) / seconds
    return Offer(
        NAME, seconds, make, choice, words, margin, divides_k=parts > 1 or way.tiles.slices > 1
    )


def _plan(product: Product, chip: Chip, way: Way, parts: int, seconds: float) -> Plan:
    choice = _choice(product, way, parts, seconds)
    is_swapped = kernel.is_swapped(product)
    return kernel.plan(choice, chip, is_swapped)


def _choice(product: Product, way: Way, parts: int, seconds: float) -> Choice:
    reading = reading_of(kernel.swapped(product), (way.copy_a, way.copy_b))
    return Choice(seconds, reading, way.tiles, parts)
