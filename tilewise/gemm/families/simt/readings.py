"""How the kernels for float32 and float64 read a product: A and B in place, or copied before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewise.gemm import pack
from tilewise.gemm.families.simt.matrices import PACKED, TRANSPOSED, Matrix, matrix_of
from tilewise.gemm.families.simt.tiles import AnyTiles
from tilewise.gemm.pack import Packing
from tilewise.gemm.product import ITEM_SIZES, A, B, Operand, Product
from tilewise.gemm.transpose import Transposition, transposition

Copy = Packing | Transposition


@dataclass(frozen=True)
class Reading:
    """Where the kernel finds a product's matrices.

    Attributes
    ----------
    product : Product
        As the kernel computes it, with the strides of A and B or of their copies.
    a, b : Matrix
        A, and B transposed.
    copies : tuple of (int, Packing or Transposition)
        Which of A and B are copied before, and how.
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

    A 16-byte aligned matrix is read by bulk copies, or by pieces of 16 bytes where it is MN-major.
    An unaligned one is read element by element, or packed before; and a K-major one may be
    transposed before.
    """
    sides = ((A, product.a, product.m), (B, product.b.transposed, product.n))
    of_a, of_b = (list(_in_place_or_copied(product, *side)) for side in sides)
    return [
        Reading(product._replace(a=a, b=b.transposed), matrix_a, matrix_b, (*copies_a, *copies_b))
        for a, matrix_a, copies_a in of_a
        for b, matrix_b, copies_b in of_b
    ]


def reading_of(product: Product, copies: tuple[int, int]) -> Reading:
    """Return the reading of a product with these copies of A and of B."""
    wanted = tuple((which, copy) for which, copy in enumerate(copies) if copy)
    for reading in readings(product):
        made = tuple(
            (which, PACKED if isinstance(copy, Packing) else TRANSPOSED)
            for which, copy in reading.copies
        )
        if made == wanted:
            return reading
    raise AssertionError(f"{product} can't be read with copies {copies}")


def _in_place_or_copied(
    product: Product, which: int, operand: Operand, rows: int
) -> Iterator[tuple[Operand, Matrix, tuple[tuple[int, Copy], ...]]]:
    """Yield a matrix of rows of k elements as it is, and each copy of it."""
    k, batch, dtype = product.k, product.batch, product.dtype
    found = matrix_of(operand, rows, k, batch, dtype)
    if found is None:
        return
    yield operand, found, ()
    made: list[tuple[Copy, Operand]] = []
    packing = None
    if found.is_unaligned:
        packing = _packing(operand, rows, k, batch, dtype, found.is_k_major)
    if packing is not None:
        half = ITEM_SIZES[dtype] // pack.ITEM_SIZE
        pitch = packing.operand.row_stride // half
        row, column = (pitch, 1) if found.is_k_major else (1, pitch)
        made.append((packing, Operand(row, column, packing.operand.batch_stride // half)))
    if found.is_k_major and min(rows, k) > 1:
        turning = transposition(operand, rows, k, batch, dtype)
        if turning is not None:
            made.append((turning, turning.operand))
    for copy, new in made:
        copied = matrix_of(new, rows, k, batch, dtype, is_packed=True)
        assert copied is not None
        yield new, copied, ((which, copy),)


def _packing(
    operand: Operand, rows: int, k: int, batch: int, dtype: str, is_k_major: bool
) -> Packing | None:
    """Return the packing of a matrix as 16-bit elements; None if there are too many."""
    half = ITEM_SIZES[dtype] // pack.ITEM_SIZE
    lines, columns = (rows, half * k) if is_k_major else (k, half * rows)
    if batch * max(lines, columns) > pack.LARGEST or min(rows, k, batch) < 1:
        return None
    step = operand.row_stride if is_k_major else operand.column_stride
    view = Operand(step * half, 1, operand.batch_stride * half, operand.offset)
    return pack.packed(view, lines, columns, batch)
