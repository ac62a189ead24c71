"""The ways in which the Hopper kernel reads and stores matrices: in place, or through copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from tilewise.gemm import pack
from tilewise.gemm.families.hopper import kernel as hopper
from tilewise.gemm.families.hopper.tiling import Problem
from tilewise.gemm.pack import Packing
from tilewise.gemm.product import A, B, Product, paired

PACK_START = 0.8e-6
"""The fixed cost of a launch that packs a matrix, in seconds. This is an estimate: with it the
plans for unaligned products were fast on an H100, and the launch itself was not measured.
"""
PACK_RATE = 4.1e12
"""The rate of a launch that packs, in bytes read and written a second; fitted on an H200."""
# A kernel reads what the launch before it wrote as slowly as rows that are 32-byte aligned, though
# copies are 128-byte aligned.
AS_ALIGNED = 32


class Reading(NamedTuple):
    """The places of a product's matrices for the Hopper kernel.

    Attributes
    ----------
    product : Product
        The product as the kernel computes it: with A, B and D in place, or with their copies in the
        workspace.
    problem : Problem
        The properties of the product that decide how fast the kernel's tiles are.
    seconds : float
        The seconds that the copies before and after the kernel should take.
    packings : mapping of int to Packing
        The packings of those of A and B that are copied first.
    unpacking : Packing or None
        The packing of D, if it is copied to its place afterwards.
    """

    product: Product
    problem: Problem
    seconds: float = 0.0
    packings: Mapping[int, Packing] = {}  # a read-only mapping could not be pickled
    unpacking: Packing | None = None


def readings(product: Product) -> list[Reading]:
    """Return every way in which the Hopper kernel can read a product; none if it can't take it.

    A matrix that is 16-byte aligned is read in place. For another one with a contiguous dimension,
    either the kernel realigns the tiles, which takes time for each tile, or one more pass through
    memory makes an aligned copy.
    """
    if product.dtype not in hopper.HALVES:
        return []
    unpacking = _unpacking(product)
    may_be_packed = [x for x in (A, B) if _may_be_packed(product, x)]
    if unpacking is None and not may_be_packed:  # most products are aligned
        return [] if hopper.objection(product) else [Reading(product, hopper.problem(product))]
    found = []
    for copied in _subsets(may_be_packed):
        packings = {x: _packing(product, x) for x in copied}
        view = product
        if packings:
            a, b = (packings[x].operand if x in packings else None for x in (A, B))
            pairing = product.pairing
            if b is not None and pairing is not None:  # a copy of the array that holds both
                b, pairing = paired(b, product.order, product.n, product.dtype)
            view = view._replace(a=a or product.a, b=b or product.b, pairing=pairing)
        if unpacking is not None:
            view = view._replace(d=unpacking.operand)
        if hopper.objection(view):
            continue
        problem, seconds = hopper.problem(view), 0.0
        if A in packings:
            problem = problem._replace(a_alignment=AS_ALIGNED)
        if B in packings:
            problem = problem._replace(b_alignment=AS_ALIGNED)
        for copies in (packings.values(), [] if unpacking is None else [unpacking]):
            seconds += pack_seconds(copies) if copies else 0.0
        found.append(Reading(view, problem, seconds, packings, unpacking))
    return found


def _subsets(items: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for size in range(len(items) + 1):
        yield from combinations(items, size)


def _may_be_packed(product: Product, which: int) -> bool:
    """Return whether an aligned copy of A or B could be faster: it is not aligned itself."""
    if not hopper.unaligned(product, which):
        return False
    rows, columns = (product.m, product.k) if which == A else (product.k, product.n)
    if which == B and product.pairing is not None:
        if not product.order:
            return False
        columns *= 2
    return product.batch * rows * columns > 0 and product.batch * max(rows, columns) <= pack.LARGEST


def _packing(product: Product, which: int) -> Packing:
    if which == A:
        return pack.packed(product.a, product.m, product.k, product.batch)
    if product.pairing is not None and product.pairing.whole is not None:
        return pack.packed(product.pairing.whole, product.k, 2 * product.n, product.batch)
    return pack.packed(product.b, product.k, product.n, product.batch)


def _unpacking(product: Product) -> Packing | None:
    """Return a copy to store D to first, if neither of its dimensions is contiguous; else None."""
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
    """Return the seconds that repacking should take: each matrix is read and written once."""
    moved = 2 * sum(packing.bytes for packing in packings)
    return PACK_START + moved / PACK_RATE
