"""How the float32 and float64 kernels read a product: A and B in place, or copied first."""

from __future__ import annotations

from typing import NamedTuple

from tilewise.gemm import pack
from tilewise.gemm.families.simt.matrices import NONE, PACKED, TRANSPOSED, Matrix, matrix_of
from tilewise.gemm.families.simt.tiles import AnyTiles
from tilewise.gemm.pack import Packing
from tilewise.gemm.product import A, B, Operand, Product
from tilewise.gemm.transpose import Transposition, transposition
from tilewise.places import ITEM_SIZES

Copy = Packing | Transposition


class Reading(NamedTuple):
    """The places of a product's matrices for the kernel.

    Attributes
    ----------
    product : Product
        The product as the kernel computes it, with the strides of A and B or of their copies.
    a, b : Matrix
        A, and B transposed.
    copies : tuple of (int, Packing or Transposition)
        The copies of A and B that are made first: which matrix, and how.
    """

    product: Product
    a: Matrix
    b: Matrix
    copies: tuple[tuple[int, Copy], ...] = ()

    def fits(self, tiles: AnyTiles) -> bool:
        """Return whether the kernel with these tiles can read both, and gains by the copies.

        Without bulk copies, a K-major matrix is copied element by element, packed or not.
        """
        copied = {which for which, _ in self.copies}
        k_major = {which for which, x in ((A, self.a), (B, self.b)) if x.is_k_major}
        if copied & k_major and not tiles.bulk:
            return False
        both = self.a.is_k_major, self.b.is_k_major
        return tiles.takes(self.product.dtype, *both, self.is_mapped, self.is_wide)

    @property
    def is_mapped(self) -> bool:
        """Whether bulk copies can read both."""
        return self.a.is_mapped and self.b.is_mapped

    @property
    def is_wide(self) -> bool:
        """Whether both are MN-major and copied by 16 bytes."""
        return self.a.width > 1 and self.b.width > 1


def readings(product: Product) -> list[Reading]:
    """Return every way to read a product; none if the kernel can't. The first copies nothing.

    A 16-byte aligned matrix is read by bulk copies, or by pieces of 16 bytes if it is MN-major. An
    unaligned one is read element by element, or packed first. A K-major one may also be transposed
    first.
    """
    every = (NONE, PACKED, TRANSPOSED)
    of_a, of_b = ([_side(product, which, copy) for copy in every] for which in (A, B))
    return [_reading(product, a, b) for a in of_a if a for b in of_b if b]


def reading_of(product: Product, copies: tuple[int, int]) -> Reading:
    """Return the reading of a product with these copies of A and of B."""
    a, b = _side(product, A, copies[0]), _side(product, B, copies[1])
    assert a is not None, (product, copies)
    assert b is not None, (product, copies)
    return _reading(product, a, b)


class _Side(NamedTuple):
    """A, or B transposed: its place, how the kernel reads it, and the copies that it takes."""

    operand: Operand
    matrix: Matrix
    copies: tuple[tuple[int, Copy], ...]


def _reading(product: Product, a: _Side, b: _Side) -> Reading:
    copies = (*a.copies, *b.copies)
    if copies:
        product = product._replace(a=a.operand, b=b.operand.transposed)
    return Reading(product, a.matrix, b.matrix, copies)


def _side(product: Product, which: int, copy: int) -> _Side | None:
    """Return a matrix of rows of k elements as it is, or copied; None if it can't be copied so."""
    k, batch, dtype = product.k, product.batch, product.dtype
    if which == A:
        operand, rows = product.a, product.m
    else:
        operand, rows = product.b.transposed, product.n
    found = matrix_of(operand, rows, k, batch, dtype)
    if found is None or copy == NONE:
        return None if found is None else _Side(operand, found, ())
    made: Copy | None = None
    if copy == PACKED and found.is_unaligned:
        made = _packing(operand, rows, k, batch, dtype, found.is_k_major)
    elif copy == TRANSPOSED and found.is_k_major and min(rows, k) > 1:
        made = transposition(operand, rows, k, batch, dtype)
    if made is None:
        return None
    new = made.operand
    if isinstance(made, Packing):
        half = ITEM_SIZES[dtype] // pack.ITEM_SIZE
        pitch = new.row_stride // half
        row, column = (pitch, 1) if found.is_k_major else (1, pitch)
        new = Operand(row, column, new.batch_stride // half)
    copied = matrix_of(new, rows, k, batch, dtype, is_packed=True)
    assert copied is not None
    return _Side(new, copied, ((which, made),))


def _packing(
    operand: Operand, rows: int, k: int, batch: int, dtype: str, is_k_major: bool
) -> Packing | None:
    """Return the packing of a matrix as 16-bit elements; None if they are too many."""
    half = ITEM_SIZES[dtype] // pack.ITEM_SIZE
    lines, columns = (rows, half * k) if is_k_major else (k, half * rows)
    if batch * max(lines, columns) > pack.LARGEST or min(rows, k, batch) < 1:
        return None
    step = operand.row_stride if is_k_major else operand.column_stride
    view = Operand(step * half, 1, operand.batch_stride * half, operand.offset)
    return pack.packed(view, lines, columns, batch)
