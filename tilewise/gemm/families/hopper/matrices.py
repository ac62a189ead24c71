"""A product's matrices as the Hopper kernel takes them: by tensor maps, or by address."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tilewise.gemm.families.hopper.tiling import BLOCK_K
from tilewise.gemm.layouts import layout
from tilewise.gemm.product import Operand
from tilewise.kernel import SOURCES
from tilewise.launch import Packed, Place, TensorMap

LOAD = SOURCES / "gemm" / "hopper_load.cuh"
SECTOR_BYTES = 32
LARGEST_STRIDE = 2**40  # bytes, exclusive (CUDA driver API, cuTensorMapEncodeTiled)


@dataclass(frozen=True)
class Matrix:
    """A batch of matrices as TMA sees them: A, D, or B's transpose.

    So k runs along the rows of both inputs.

    Attributes
    ----------
    x : Operand
    rows, columns, batch : int
    item : int
        Bytes of an element.
    """

    x: Operand
    rows: int
    columns: int
    batch: int
    item: int = 2

    @cached_property
    def by_rows(self) -> bool | None:
        """Whether rows are contiguous (True), columns (False), or neither (None).

        Where both are, as in a vector, it is rows if there is one row, whose stride is then not
        used, and columns otherwise.
        """
        by_rows = self.x.column_stride == 1 or self.columns == 1
        by_columns = self.x.row_stride == 1 or self.rows == 1
        if by_rows and by_columns:
            return self.rows == 1
        return by_rows if by_rows or by_columns else None

    @property
    def is_k_major(self) -> bool:
        """Whether k is contiguous, in A or in B's transpose."""
        return bool(self.by_rows)

    @cached_property
    def lines(self) -> tuple[int, int, int]:
        """The contiguous lines (rows or columns): their length, their number, and their stride."""
        if self.by_rows:
            return self.columns, self.rows, self.x.row_stride
        return self.rows, self.columns, self.x.column_stride

    def unaligned(self) -> str:
        """Return why not all lines are 16-byte aligned; empty if they are."""
        if self.by_rows is None:
            return "has no contiguous dimension"
        if self.x.offset:
            return "does not begin at a multiple of 16 bytes"
        return self._apart()

    def unreadable(self) -> str:
        """Return why the kernel can't read the matrix in any way; empty if it can."""
        if self.by_rows is None:
            return "has no contiguous dimension"
        if self.x.offset % self.item:
            return f"does not begin at a multiple of {self.item} bytes"
        _, count, stride = self.lines
        if (count > 1 and stride < 0) or (self.batch > 1 and self.x.batch_stride < 0):
            return "has a negative stride"
        if self.unaligned() and count > 1 and stride == 0:
            return "has one line for all, which does not begin at a multiple of 16 bytes"
        return ""

    def _apart(self) -> str:
        """Return why TMA can't step from line to line; empty if it can."""
        _, count, stride = self.lines
        for step in (stride if count > 1 else 0, self.x.batch_stride if self.batch > 1 else 0):
            if self.item * step % 16:
                return f"has a stride of {self.item * step} bytes, no multiple of 16"
            if not 0 <= self.item * step < LARGEST_STRIDE:
                return f"has a stride of {self.item * step} bytes"
        return ""

    @property
    def alignment(self) -> int:
        """The bytes to which all lines are aligned, as far as strides tell: from 16 to 128.

        Of the first line's address it is known only that it is 16-byte aligned (product.Operand).
        """
        _, count, stride = self.lines
        step = self.item * stride if count > 1 else 0
        step |= self.item * self.x.batch_stride if self.batch > 1 else 0
        return min(max(step & -step, 16), 128) if step else 128

    def map(self, place: Place, dtype: str, box: tuple[int, int]) -> TensorMap:
        """Return the tensor map of the whole batch, whose first element is at ``place``."""
        inner, count, stride = self.lines
        batches = self.batch if self.x.batch_stride else 1
        # The stride of a single line, or of a single matrix, is never used, but has to be valid.
        pitch = -(-inner // 8) * 8 if count == 1 else stride
        step = self.x.batch_stride if batches > 1 else 8
        # 128 bytes that straddle two L2 lines would bring both of them whole.
        promotion = 128 if self.alignment >= SECTOR_BYTES else 64
        extents, strides = (inner, count, batches), (self.item * pitch, self.item * step)
        return TensorMap(place, dtype, extents, strides, box, promotion)

    def operand(self, place: Place, dtype: str, box: tuple[int, int], is_unaligned: bool) -> Packed:
        """Return the operand as hopper_load.cuh has it, loaded by TMA boxes of that extent."""
        inner, count, stride = self.lines
        if is_unaligned:
            pitch = self.item * stride if count > 1 else 0
            step = self.item * self.x.batch_stride if self.batch > 1 else 0
            end = (self.batch - 1) * step + (count - 1) * pitch + self.item * inner
            return layout(LOAD, "UnalignedOperand").pack({
                "begin": place, "bytes": end, "pitch": pitch, "step": step, "lines": count,
                "length": inner,
            })  # fmt: skip
        return layout(LOAD, "MappedOperand").pack({
            "map": self.map(place, dtype, box),
            "batches": self.batch if self.x.batch_stride else 1,
        })  # fmt: skip


def box_of(is_k_major: bool, extent: int, parts: int) -> tuple[int, int]:
    """Return the extent of a TMA box, contiguous first, as each_box of hopper_load.cuh has it."""
    if is_k_major:
        return BLOCK_K, extent // parts
    columns = 32 if extent % 64 else 64
    divided = 1
    while extent // columns * divided % parts:
        divided *= 2
    return columns, BLOCK_K // divided
