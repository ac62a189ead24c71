"""A and B as the kernels for float32 and float64 read them."""

from __future__ import annotations

from typing import NamedTuple

from tilewise.gemm import pack
from tilewise.gemm.families.hopper.matrices import LARGEST_STRIDE
from tilewise.gemm.product import ALIGNMENT, Operand
from tilewise.places import ITEM_SIZES


class Matrix(NamedTuple):
    """A, or B transposed, as the kernel reads it: rows of k elements.

    Attributes
    ----------
    is_k_major : bool
        Whether k is the contiguous dimension.
    pitch : int
        The elements from one row to the next; for an MN-major matrix from one k to the next.
    width : int
        The elements of one copy.
    rows : int
        The rows that may be read; a packed MN-major matrix may have more than the product.
    is_mapped : bool
        Whether a tensor map can describe it, so that bulk copies can read it.
    """

    is_k_major: bool
    pitch: int
    width: int
    rows: int
    is_mapped: bool

    @property
    def is_unaligned(self) -> bool:
        """Whether it takes longer to read because it is not 16-byte aligned."""
        if self.is_k_major:
            return not self.is_mapped and self.rows > 1
        return self.width == 1


def matrix_of(
    operand: Operand, rows: int, k: int, batch: int, dtype: str, is_packed: bool = False
) -> Matrix | None:
    """Return how the kernel reads rows of k elements; None if it can't.

    Launches are made from it. A price needs less, which :func:`traits_of` returns in a fraction of
    the time.

    Parameters
    ----------
    operand : Operand
        A, or B transposed.
    rows, k, batch : int
    dtype : str
    is_packed : bool
        Whether whole 16-byte pieces may be read beyond an MN-major matrix's last row.
    """
    item = ITEM_SIZES[dtype]
    width = ALIGNMENT // item
    step = operand.batch_stride * item
    # A tensor map has no extent of 0.
    may_be_mapped = (
        k > 0
        and not operand.offset
        and step < LARGEST_STRIDE
        and not (batch > 1 and step % ALIGNMENT)
    )

    def has_map(pitch: int) -> bool:
        nbytes = pitch * item
        return may_be_mapped and not nbytes % ALIGNMENT and 0 < nbytes < LARGEST_STRIDE

    if operand.row_stride == 1 or rows == 1:
        pitch = operand.column_stride if k > 1 else 0
        is_mapped = has_map(pitch)
        if is_packed:
            return Matrix(False, pitch, width, -(-rows // width) * width, is_mapped)
        if rows > 1 or operand.column_stride != 1:
            by_pieces = is_mapped and rows % width == 0
            return Matrix(False, pitch, width if by_pieces else 1, rows, is_mapped)
    if operand.column_stride == 1 or k == 1:
        pitch = operand.row_stride if rows > 1 else 0
        return Matrix(True, pitch, 1, rows, has_map(pitch))
    return None


# The traits of a matrix that decide which tiles compute a product fastest, as bits: whether it is
# K-major, has a tensor map, is MN-major and copied by 16 bytes, has rows that are 16-byte but not
# 32-byte aligned, is a single row, and may be copied first.
K_MAJOR, MAPPED, WIDE, SPLITS_SECTORS, SINGLE, COPYABLE = (1 << i for i in range(6))
TRAITS = tuple(
    bits
    for bits in range(1 << 6)
    if not bits & WIDE or (bits & MAPPED and not bits & (K_MAJOR | SINGLE))
)
"""The possible combinations of the traits' bits."""

MOST_COPIED = 1 << 42  # elements: a block of the launch copies one tile


def traits_of(operand: Operand, rows: int, k: int, batch: int, item: int) -> int:
    """Return the traits of a matrix as bits; -1 if the kernel can't read it.

    Products are priced by the traits. They agree with :func:`matrix_of`, and with the copies that
    :func:`tilewise.gemm.families.simt.readings.readings` offers, and take a fraction of the time.

    Parameters
    ----------
    operand : Operand
        A, or B transposed.
    rows, k, batch : int
    item : int
        The bytes of an element.
    """
    step = operand.batch_stride * item if batch > 1 else 0
    if (operand.row_stride == 1 or rows == 1) and (rows > 1 or operand.column_stride != 1):
        found = 0
        pitch = operand.column_stride * item if k > 1 else 0
    elif operand.column_stride == 1 or k == 1 or rows == 1:
        found = K_MAJOR
        pitch = operand.row_stride * item if rows > 1 else 0
    else:
        return -1
    if not (operand.offset or pitch % ALIGNMENT or step % ALIGNMENT):
        is_near = 0 < pitch < LARGEST_STRIDE and operand.batch_stride * item < LARGEST_STRIDE
        if k > 0 and is_near:
            found |= MAPPED
            if not found & K_MAJOR and rows * item % ALIGNMENT == 0:
                found |= WIDE
        if pitch % (2 * ALIGNMENT):
            found |= SPLITS_SECTORS
    if rows == 1:
        found |= SINGLE
    elif k > 1 and batch * max(rows, k) * item <= pack.LARGEST and batch * rows * k < MOST_COPIED:
        found |= COPYABLE
    return found


class Access(NamedTuple):
    """The way in which the kernel reads a matrix, as far as it decides the time of a k-step.

    Attributes
    ----------
    is_k_major : bool
        Whether k is the contiguous dimension.
    is_unaligned : bool
        Whether it is copied element by element because it is not 16-byte aligned.
    splits_sectors : bool
        Whether its rows are 16-byte but not 32-byte aligned, so that they begin within a sector.
    """

    is_k_major: bool
    is_unaligned: bool = False
    splits_sectors: bool = False


NONE, PACKED, TRANSPOSED = range(3)
"""The copy of a matrix before the kernel reads it: none, packed or transposed."""


def accesses(traits: int) -> list[tuple[int, Access, bool, bool]]:
    """Return the ways to read a matrix with these traits; the first one copies nothing.

    Each way is how the matrix is copied first, how the kernel then reads it, and whether it can do
    so by tensor maps and by 16 bytes.
    """
    is_k_major, is_mapped = bool(traits & K_MAJOR), bool(traits & MAPPED)
    is_wide, is_single = bool(traits & WIDE), bool(traits & SINGLE)
    is_unaligned = not (is_single or is_mapped) if is_k_major else not is_wide
    in_place = Access(is_k_major, is_unaligned, bool(traits & SPLITS_SECTORS))
    found = [(NONE, in_place, is_mapped, is_wide)]
    if traits & COPYABLE and is_unaligned:
        found.append((PACKED, Access(is_k_major), True, not is_k_major))
    if traits & COPYABLE and is_k_major:
        found.append((TRANSPOSED, Access(False), True, True))
    return found
