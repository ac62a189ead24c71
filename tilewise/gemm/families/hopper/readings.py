"""How the Hopper kernel reads and stores a product's matrices: as they lie, or by way of copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from tilewise.gemm import pack
from tilewise.gemm.families.hopper import kernel as hopper
from tilewise.gemm.families.hopper.tiling import Problem
from tilewise.gemm.pack import Packing
from tilewise.gemm.product import A, B, Product, paired

# Seconds, and bytes a second, of a launch that packs: fitted to measurements on an H200.
PACK_START, PACK_RATE = 1.2e-6, 4.1e12


class Reading(NamedTuple):
    """Where the Hopper kernel finds a product's matrices.

    Attributes
    ----------
    product : Product
        As the kernel computes it: A, B and D as they lie, or as copies of them lie in the
        workspace.
    packings : mapping of int to Packing
        Of those of A and B that are copied before.
    unpacking : Packing or None
        Of D, where that is copied afterwards.
    """

    product: Product
    packings: Mapping[int, Packing]
    unpacking: Packing | None

    @property
    def problem(self) -> Problem:
        """What decides how fast the kernel's tiles are."""
        return hopper.problem(self.product)

    @property
    def seconds(self) -> float:
        """The time that the copies before and after the kernel should take."""
        seconds = pack_seconds(self.packings.values()) if self.packings else 0.0
        if self.unpacking is not None:
            seconds += pack_seconds([self.unpacking])
        return seconds


def readings(product: Product) -> list[Reading]:
    """Return every way to read a product that the Hopper kernel takes; none if it takes none.

    A matrix that is 16-byte aligned is read where it lies. Of another with a contiguous dimension,
    either the kernel realigns the tiles, which takes time for each, or one more pass through memory
    makes an aligned copy.
    """
    if product.dtype not in hopper.HALVES:
        return []
    unpacking = _unpacking(product)
    found = []
    for copied in _subsets([x for x in (A, B) if _may_be_packed(product, x)]):
        packings = {x: _packing(product, x) for x in copied}
        view = product
        if packings:
            a, b = (packings[x].operand if x in packings else None for x in (A, B))
            pairing = product.pairing
            if b is not None and pairing is not None:  # a copy of the array that has both
                b, pairing = paired(b, product.order, product.n, product.dtype)
            view = view._replace(a=a or product.a, b=b or product.b, pairing=pairing)
        if unpacking is not None:
            view = view._replace(d=unpacking.operand)
        if not hopper.objection(view):
            found.append(Reading(view, packings, unpacking))
    return found


def _subsets(items: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for size in range(len(items) + 1):
        yield from combinations(items, size)


def _may_be_packed(product: Product, which: int) -> bool:
    """Return whether an aligned copy of A or B could be faster: where it is not aligned itself."""
    rows, columns = (product.m, product.k) if which == A else (product.k, product.n)
    if which == B and product.pairing is not None:
        if not product.order:
            return False
        columns *= 2
    return (
        bool(hopper.unaligned(product, which))
        and product.batch * rows * columns > 0
        and product.batch * max(rows, columns) <= pack.LARGEST
    )


def _packing(product: Product, which: int) -> Packing:
    if which == A:
        return pack.packed(product.a, product.m, product.k, product.batch)
    if product.pairing is not None and product.pairing.whole is not None:
        return pack.packed(product.pairing.whole, product.k, 2 * product.n, product.batch)
    return pack.packed(product.b, product.k, product.n, product.batch)


def _unpacking(product: Product) -> Packing | None:
    """Return where D goes at first, where neither dimension of it is contiguous; else None."""
    m, n, d = product.m, product.n, product.d
    if (
        (d.column_stride == 1 or d.row_stride == 1 or m == 1 or n == 1)
        or product.out_dtype not in hopper.HALVES
        or product.beta != 0
        or not 0 < product.batch * max(m, n) <= pack.LARGEST
    ):
        return None
    return pack.packed(d, m, n, product.batch)


def pack_seconds(packings: Iterable[Packing]) -> float:
    """Return how long repacking should take: each matrix is read and written once."""
    moved = 2 * sum(packing.bytes for packing in packings)
    return PACK_START + moved / PACK_RATE
