"""How the kernels for float32 and float64 read A and B: as they lie, or copied before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tilewise.gemm import pack
from tilewise.gemm.families.hopper.matrices import LARGEST_STRIDE
from tilewise.gemm.families.simt.tiles import AnyTiles, TensorTiles
from tilewise.gemm.families.simt.timing import Lying
from tilewise.gemm.pack import Packing
from tilewise.gemm.product import ALIGNMENT, ITEM_SIZES, A, B, Operand, Product
from tilewise.gemm.transpose import Transposition, transposition

Copy = Packing | Transposition


@dataclass(frozen=True)
class Lines:
    """A as rows, or B as columns, as the kernel reads it.

    Attributes
    ----------
    along_k : bool
        Whether it is K-major: the elements of a line are neighbours, not those at one k.
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
        """Whether it takes longer for not being 16-byte aligned."""
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
        by_pieces = has_map(pitch) and count % width == 0
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

    def fits(self, tiles: AnyTiles) -> bool:
        """Whether the kernel with these tiles can read them so, and gains by the copies.

        K-major ones are copied element by element, packed or not, unless by bulk copies.
        """
        copied = {which for which, _ in self.copies}
        along_k = {which for which, x in ((A, self.a), (B, self.b)) if x.along_k}
        if copied & along_k and not tiles.bulk:
            return False
        both = self.a.along_k, self.b.along_k
        return tiles.takes(self.product.dtype, *both, self.is_aligned, self.is_wide)

    @property
    def is_aligned(self) -> bool:
        """Whether bulk copies can read both."""
        return self.a.is_aligned and self.b.is_aligned

    @property
    def is_wide(self) -> bool:
        """Whether both are MN-major and copied by 16 bytes."""
        return self.a.width > 1 and self.b.width > 1


def readings(product: Product) -> list[Reading]:
    """Every way to read a product; none if the kernel can't. The first copies nothing.

    A matrix that is aligned is copied by bulk copies, or by pieces of 16 bytes where it is
    MN-major. Another can be copied element by element, or packed before; and a K-major one
    transposed.
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


# What of a matrix decides by which tiles it is computed best, as bits: whether it is K-major, may
# be read by tensor maps, is MN-major and read by 16 bytes, begins its lines at odd multiples of 16
# bytes, is a single line; and whether it may be copied before.
K_MAJOR, MAPPED, WIDE, HALF, SINGLE, COPYABLE = (1 << i for i in range(6))
LIES = tuple(
    bits
    for bits in range(1 << 6)
    if not bits & WIDE or (bits & MAPPED and not bits & (K_MAJOR | SINGLE))
)
NONE, PACKED, TRANSPOSED = range(3)  # how a matrix is copied before


def lie(operand: Operand, count: int, k: int, batch: int, item: int) -> int:
    """Return how ``count`` rows of k elements lie, by those bits; -1 if the kernel can't read them.

    It is what :func:`lines` says and :func:`readings` offers, at a fraction of their time.
    """
    step = operand.batch_stride * item if batch > 1 else 0
    if (operand.row_stride == 1 or count == 1) and (count > 1 or operand.column_stride != 1):
        found = 0
        pitch = operand.column_stride * item if k > 1 else 0
    elif operand.column_stride == 1 or k == 1 or count == 1:
        found = K_MAJOR
        pitch = operand.row_stride * item if count > 1 else 0
    else:
        return -1
    if not (operand.offset or pitch % ALIGNMENT or step % ALIGNMENT):
        if 0 < pitch < LARGEST_STRIDE and operand.batch_stride * item < LARGEST_STRIDE:
            found |= MAPPED
            if not found & K_MAJOR and count * item % ALIGNMENT == 0:
                found |= WIDE
        if pitch % (2 * ALIGNMENT):
            found |= HALF
    if count == 1:
        found |= SINGLE
    elif k > 1 and batch * max(count, k) * item <= pack.LARGEST and batch * count * k < MOST_COPIED:
        found |= COPYABLE
    return found


MOST_COPIED = 1 << 42  # elements, of which a launch copies a tile a block


def manners(of: int) -> list[tuple[int, Lying, bool, bool]]:
    """Return how a matrix that lies so may be read.

    Each way has how it is copied before, how the kernel finds it then, and whether it may be read
    by tensor maps and by 16 bytes. The first copies nothing.
    """
    is_k_major, is_mapped, is_wide = bool(of & K_MAJOR), bool(of & MAPPED), bool(of & WIDE)
    is_unaligned = not (of & SINGLE or is_mapped) if is_k_major else not is_wide
    found = [(NONE, Lying(is_k_major, is_unaligned, bool(of & HALF)), is_mapped, is_wide)]
    if of & COPYABLE and is_unaligned:
        found.append((PACKED, Lying(is_k_major), True, not is_k_major))
    if of & COPYABLE and is_k_major:
        found.append((TRANSPOSED, Lying(False), True, True))
    return found


def table_rows(
    dtype: str, every: Iterable[AnyTiles], of_a: int, of_b: int
) -> list[tuple[AnyTiles, Lying, Lying, int, int]]:
    """Return the ways to compute a product whose A and B lie so: tiles, and copies.

    Parameters
    ----------
    dtype : str
    every : iterable of Tiles or TensorTiles
    of_a, of_b : int
        :func:`lie` of A and of B transposed.
    """
    found = []
    for copy_a, a, a_is_mapped, a_is_wide in manners(of_a):
        for copy_b, b, b_is_mapped, b_is_wide in manners(of_b):
            is_mapped = a_is_mapped and b_is_mapped
            for tiles in every:
                # Element by element, K-major copies would be no faster than what is copied.
                gains = tiles.bulk or not any(
                    copy == PACKED and x.is_k_major for copy, x in ((copy_a, a), (copy_b, b))
                )
                # Where bulk copies can feed the tensor cores, they do.
                is_beaten = isinstance(tiles, TensorTiles) and not tiles.bulk and is_mapped
                takes = tiles.takes(
                    dtype, a.is_k_major, b.is_k_major, is_mapped, a_is_wide and b_is_wide
                )
                if takes and gains and not is_beaten:
                    seen_a, seen_b = (
                        replace(x, is_unaligned=x.is_unaligned and not tiles.bulk) for x in (a, b)
                    )
                    found.append((tiles, seen_a, seen_b, copy_a, copy_b))
    return found
