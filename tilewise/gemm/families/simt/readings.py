"""How the kernels for float32 and float64 read A and B: as they lie, or copied before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from tilewise.gemm import pack
from tilewise.gemm.families.hopper.kernel import LARGEST_STRIDE
from tilewise.gemm.families.simt.tiles import AnyTiles
from tilewise.gemm.families.simt.timing import kind
from tilewise.gemm.pack import Packing
from tilewise.gemm.product import ALIGNMENT, ITEM_SIZES, A, B, Operand, Product
from tilewise.gemm.transpose import Transposition, transposition

# Seconds and bytes a second, of an H200.
PACK_START, TRANSPOSE_START, COPY_RATE = 1.5e-6, 2.5e-6, 3.8e12
LARGE = 1 << 28  # bytes of copies
MARGIN, LARGE_MARGIN = 1.01, 1.04  # what copies gain at least, and those beyond LARGE

Copy = Packing | Transposition


@dataclass(frozen=True)
class Lines:
    """A as rows, or B as columns, as the kernel reads it.

    Attributes
    ----------
    along_k : bool
        Whether the elements of a line are neighbours, or those of the lines at one k.
    pitch : int
        Elements from line to line, or from one k to the next.
    width : int
        Elements that are copied at once.
    count : int
        That may be read.
    is_aligned : bool
        Whether bulk copies can read them.
    """

    along_k: bool
    pitch: int
    width: int
    count: int
    is_aligned: bool

    @property
    def is_narrow(self) -> bool:
        """Whether wider copies would do as well, of a copy that is aligned."""
        return not self.along_k and self.width == 1

    @property
    def is_off(self) -> bool:
        """Whether it takes longer for being off 16 bytes."""
        return self.is_narrow or (self.along_k and not self.is_aligned and self.count > 1)


def lines(
    operand: Operand, count: int, k: int, batch: int, dtype: str, is_packed: bool = False
) -> Lines | None:
    """How the kernel reads ``count`` rows of k elements; None if it can't.

    Parameters
    ----------
    operand : Operand
        A, or B transposed.
    count, k, batch : int
    dtype : str
    is_packed : bool
        Whether whole pieces may be read behind its last row.
    """
    item = ITEM_SIZES[dtype]
    width = ALIGNMENT // item

    def is_aligned(pitch: int) -> bool:
        steps = (pitch, operand.batch_stride if batch > 1 else 0)
        return not operand.offset and not any(x * item % ALIGNMENT for x in steps)

    def has_map(pitch: int) -> bool:
        steps = (pitch, operand.batch_stride)
        return is_aligned(pitch) and pitch > 0 and max(steps) * item < LARGEST_STRIDE

    if operand.row_stride == 1 or count == 1:
        pitch = operand.column_stride if k > 1 else 0
        if is_packed:
            return Lines(False, pitch, width, -(-count // width) * width, has_map(pitch))
        by_pieces = is_aligned(pitch) and count % width == 0
        across = Lines(False, pitch, width if by_pieces else 1, count, has_map(pitch))
        if count > 1 or operand.column_stride != 1:
            return across
    if operand.column_stride == 1 or k == 1:
        pitch = operand.row_stride if count > 1 else 0
        return Lines(True, pitch, 1, count, has_map(pitch))
    return None


@dataclass(frozen=True)
class Reading:
    """Where the kernel finds a product's matrices.

    Attributes
    ----------
    product : Product
        A and B as they lie, or as their copies do.
    a, b : Lines
    copies : tuple of (int, Packing or Transposition)
        Of those that are copied before: A or B, and how.
    """

    product: Product
    a: Lines
    b: Lines
    copies: tuple[tuple[int, Copy], ...] = ()

    def kind(self, tiles: AnyTiles) -> str:
        """Which phases are to be expected of these tiles. Bulk copies are never off 16 bytes."""
        off = (False, False) if tiles.bulk else (self.a.is_off, self.b.is_off)
        return kind(self.a.along_k, self.b.along_k, *off)

    def fits(self, tiles: AnyTiles) -> bool:
        """Whether the kernel with these tiles can read them so, and gains by the copies.

        Lines along k are copied element by element, packed or not, unless by bulk copies.
        """
        copied = {which for which, _ in self.copies}
        along_k = {which for which, x in ((A, self.a), (B, self.b)) if x.along_k}
        if copied & along_k and not tiles.bulk:
            return False
        return tiles.takes(self.product.dtype, self.a.along_k, self.b.along_k, self.is_aligned)

    @property
    def is_aligned(self) -> bool:
        """Whether bulk copies can read both."""
        return self.a.is_aligned and self.b.is_aligned

    @cached_property
    def bytes(self) -> int:
        """That the copies take."""
        return sum(copy.bytes for _, copy in self.copies)

    @cached_property
    def seconds(self) -> float:
        """That the copies should take: packings in one launch, each transposition in its own."""
        packed = sum(isinstance(copy, Packing) for _, copy in self.copies)
        started = bool(packed) * PACK_START + (len(self.copies) - packed) * TRANSPOSE_START
        return started + 2 * self.bytes / COPY_RATE

    @cached_property
    def margin(self) -> float:
        """By how much the seconds with the copies have to be less than those without."""
        if not self.bytes:
            return 1.0
        return LARGE_MARGIN if self.bytes > LARGE else MARGIN


def readings(product: Product) -> list[Reading]:
    """Every way to read a product; none if the kernel can't. The first copies nothing.

    A matrix that is aligned is copied by bulk copies, or by pieces of 16 bytes where its lines lie
    across k. Another can be copied element by element, or packed before; and one whose lines lie
    along k transposed.
    """
    sides = ((A, product.a, product.m), (B, product.b.transposed, product.n))
    of_a, of_b = (list(_ways(product, *side)) for side in sides)
    return [
        Reading(replace(product, a=a, b=b.transposed), lines_a, lines_b, (*copies_a, *copies_b))
        for a, lines_a, copies_a in of_a
        for b, lines_b, copies_b in of_b
    ]


def _ways(
    product: Product, which: int, operand: Operand, count: int
) -> Iterator[tuple[Operand, Lines, tuple[tuple[int, Copy], ...]]]:
    """Of ``operand``, of ``count`` rows and k columns: as it lies, and each copy of it."""
    k, batch, dtype = product.k, product.batch, product.dtype
    found = lines(operand, count, k, batch, dtype)
    if found is None:
        return
    yield operand, found, ()
    made: list[tuple[Copy, Operand]] = []
    packing = _packing(operand, count, k, batch, dtype, found.along_k) if found.is_off else None
    if packing is not None:
        half = ITEM_SIZES[dtype] // pack.ITEM_SIZE
        pitch = packing.operand.row_stride // half
        row, column = (pitch, 1) if found.along_k else (1, pitch)
        made.append((packing, Operand(row, column, packing.operand.batch_stride // half)))
    if found.along_k and min(count, k) > 1:
        turning = transposition(operand, count, k, batch, dtype)
        if turning is not None:
            made.append((turning, turning.operand))
    for copy, new in made:
        padded = lines(new, count, k, batch, dtype, is_packed=True)
        assert padded is not None
        yield new, padded, ((which, copy),)


def _packing(
    operand: Operand, count: int, k: int, batch: int, dtype: str, along_k: bool
) -> Packing | None:
    """Of lines, as halves of their elements; None if they are too many."""
    half = ITEM_SIZES[dtype] // pack.ITEM_SIZE
    rows, columns = (count, half * k) if along_k else (k, half * count)
    if batch * max(rows, columns) > pack.LARGEST or min(count, k, batch) < 1:
        return None
    step = operand.row_stride if along_k else operand.column_stride
    view = Operand(step * half, 1, operand.batch_stride * half, operand.offset)
    return pack.packed(view, rows, columns, batch)
