"""A product's matrices in the form that the Hopper kernel takes: tensor maps or addresses."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from tilewise.gemm.families.hopper.tiling import BLOCK_K
from tilewise.gemm.layouts import layout
from tilewise.gemm.product import Operand
from tilewise.kernel import SOURCES
from tilewise.places import Packed, Place, TensorMap

LOAD = SOURCES / "gemm" / "hopper_load.cuh"
SECTOR_BYTES = 32
LARGEST_STRIDE = 2**40  # bytes, exclusive (CUDA driver API, cuTensorMapEncodeTiled)


class Matrix(NamedTuple):
    """A batch of matrices as TMA sees them: A, D, or B's transpose.

    So k runs along the rows of both inputs. The lines are the rows or the columns, whichever are
    contiguous.

    Attributes
    ----------
    by_rows : bool or None
        Whether rows are contiguous (True), columns (False), or neither (None).
    length, lines : int
        The elements of a line, and the lines of one matrix.
    pitch, apart : int
        The bytes from line to line, and from matrix to matrix; 0 if there is only one.
    batch : int
    offset : int
        Bytes from the last multiple of 16 to the first element.
    item : int
        Bytes of an element.
    """

    by_rows: bool | None
    length: int
    lines: int
    pitch: int
    apart: int
    batch: int
    offset: int
    item: int

    @property
    def is_k_major(self) -> bool:
        """Whether k is the contiguous dimension, if the matrix is A or B's transpose."""
        return bool(self.by_rows)

    def unaligned(self) -> str:
        """Return why not all lines are 16-byte aligned; empty if they are."""
        if self.by_rows is None:
            return "has no contiguous dimension"
        if self.offset:
            return "does not begin at a multiple of 16 bytes"
        # TMA has to step from line to line, and from matrix to matrix.
        for step in (self.pitch, self.apart):
            if step % 16:
                return f"has a stride of {step:,} bytes, no multiple of 16"
            if not 0 <= step < LARGEST_STRIDE:
                return f"has a stride of {step:,} bytes"
        return ""

    def unreadable(self) -> str:
        """Return why the kernel can't read the matrix in any way; empty if it can."""
        if self.by_rows is None:
            return "has no contiguous dimension"
        if self.offset % self.item:
            return f"does not begin at a multiple of {self.item} bytes"
        if self.pitch < 0 or self.apart < 0:
            return "has a negative stride"
        if self.lines > 1 and self.pitch == 0 and self.unaligned():
            return "has one line for all, which does not begin at a multiple of 16 bytes"
        return ""

    @property
    def alignment(self) -> int:
        """The bytes to which all lines are aligned, as far as the strides tell: from 16 to 128.

        The address of the first line is known only to be 16-byte aligned (product.Operand).
        """
        step = self.pitch | self.apart
        return min(max(step & -step, 16), 128) if step else 128

    @property
    def batches(self) -> int:
        """The number of matrices in memory: 1 if the whole batch shares one."""
        return self.batch if self.apart else 1

    def map(self, place: Place, dtype: str, box: tuple[int, int]) -> TensorMap:
        """Return the tensor map of the whole batch, whose first element is at ``place``."""
        # The stride of a single line, or of a single matrix, is never used, but has to be valid.
        pitch = self.item * (-(-self.length // 8) * 8) if self.lines == 1 else self.pitch
        strides = (pitch, self.apart or 8 * self.item)
        # With a promotion to 128 bytes, data that straddle two L2 lines would load both lines
        # whole.
        promotion = 64 if (self.pitch | self.apart) % SECTOR_BYTES else 128
        extents = (self.length, self.lines, self.batches)
        return TensorMap.of_matrices(place, dtype, extents, strides, box, promotion)

    def operand(self, place: Place, dtype: str, box: tuple[int, int], is_unaligned: bool) -> Packed:
        """Return the operand for hopper_load.cuh, which TMA loads by boxes of this extent."""
        if is_unaligned:
            last = (self.batch - 1) * self.apart + (self.lines - 1) * self.pitch
            return layout(LOAD, "UnalignedOperand").pack({
                "begin": place, "bytes": last + self.item * self.length, "pitch": self.pitch,
                "step": self.apart, "lines": self.lines, "length": self.length,
            })  # fmt: skip
        data, at = _mapped(self.batches)
        return Packed(data, (), ((at, self.map(place, dtype, box)),))


@lru_cache(maxsize=64)
def _mapped(batches: int) -> tuple[bytes, int]:
    """Return the bytes of a MappedOperand without its tensor map, and the map's offset there."""
    of_it = layout(LOAD, "MappedOperand")
    (at,) = (field.offset for field in of_it.fields if field.name == "map")
    return of_it.pack({"map": None, "batches": batches}).data, at


def matrix_of(x: Operand, rows: int, columns: int, batch: int, item: int = 2) -> Matrix:
    """Return a batch of matrices of ``rows`` x ``columns`` as TMA sees them.

    If both rows and columns are contiguous, as in a vector, the lines are the rows if there is only
    one row, whose stride is not used then, and the columns otherwise.
    """
    by_rows: bool | None = x.column_stride == 1 or columns == 1
    by_columns = x.row_stride == 1 or rows == 1
    if by_columns:
        by_rows = bool(by_rows) and rows == 1
    elif not by_rows:
        by_rows = None
    if by_rows:
        length, lines, stride = columns, rows, x.row_stride
    else:
        length, lines, stride = rows, columns, x.column_stride
    pitch = item * stride if lines > 1 else 0
    apart = item * x.batch_stride if batch > 1 else 0
    return Matrix(by_rows, length, lines, pitch, apart, batch, x.offset, item)


def box_of(is_k_major: bool, extent: int, parts: int) -> tuple[int, int]:
    """Return a TMA box's extent, contiguous dimension first, as in hopper_load.cuh's each_box."""
    if is_k_major:
        return BLOCK_K, extent // parts
    columns = 32 if extent % 64 else 64
    divided = 1
    while extent // columns * divided % parts:
        divided *= 2
    return columns, BLOCK_K // divided
