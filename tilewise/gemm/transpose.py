"""Transpose float32 and float64 matrices into a workspace, by one launch."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from tilewise.devices.limits import MAX_GRID
from tilewise.gemm.layouts import layout
from tilewise.gemm.product import REAL, Operand
from tilewise.gemm.steps import Step
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch
from tilewise.places import ITEM_SIZES, Place

SOURCE = SOURCES / "gemm" / "transpose.cu"
ROW = 128  # bytes: the copy's rows begin at multiples of an L2 cache line
EDGE, THREADS = 64, 256  # as in transpose.cu
LARGEST = 2**31 - 2**16  # the kernel counts rows and columns by unsigned int, past the end too


class Transposition(NamedTuple):
    """A transposed copy of a matrix, or of a batch of them.

    Attributes
    ----------
    operand : Operand
        The copy, as an operand of the source's shape, with contiguous columns.
    source : Operand
        The matrix that is copied; its rows are contiguous.
    rows, columns, batch : int
        The extents of ``source`` as it is copied: a matrix that the whole batch shares counts once.
    dtype : str
        ``"float32"`` or ``"float64"``.
    """

    operand: Operand
    source: Operand
    rows: int
    columns: int
    batch: int
    dtype: str

    @property
    def bytes(self) -> int:
        """The bytes of the copy; a multiple of 128."""
        pitch = self.operand.column_stride
        return self.batch * self.columns * pitch * ITEM_SIZES[self.dtype]

    @property
    def blocks(self) -> int:
        """The number of blocks of the launch that makes the copy."""
        return -(-self.rows // EDGE) * -(-self.columns // EDGE) * self.batch


def transposition(
    operand: Operand, rows: int, columns: int, batch: int, dtype: str
) -> Transposition | None:
    """Return the transposed copy of ``batch`` matrices of rows x columns; None if none or too many.

    Parameters
    ----------
    operand : Operand
        The matrices, whose rows are contiguous.
    rows, columns, batch : int
    dtype : str
    """
    if min(rows, columns, batch) < 1 or max(rows, columns) > LARGEST:
        return None
    width = ROW // ITEM_SIZES[dtype]
    pitch = -(-rows // width) * width
    batch_stride = columns * pitch if operand.batch_stride else 0
    copies = batch if operand.batch_stride else 1
    copy = Operand(1, pitch, batch_stride)
    made = Transposition(copy, operand, rows, columns, copies, dtype)
    return made if made.blocks <= MAX_GRID[0] else None


def step(made: Transposition, source: Place, copy: Place, overlap: bool = False) -> Step:
    """Return the launch that makes the copy.

    Parameters
    ----------
    made : Transposition
    source, copy : Place
        The places of the first elements; that of the copy is at a multiple of 16 bytes.
    overlap : bool
        Whether the launch may begin before the kernel ahead of it in the stream has ended (it reads
        and writes nothing until then); that takes compute capability 9.0 or above.
    """
    given = layout(SOURCE, "Transposition", real=REAL[made.dtype]).pack({
        "source": source, "copy": copy,
        "row_stride": made.source.row_stride, "batch_stride": made.source.batch_stride,
        "rows": made.rows, "columns": made.columns, "batch": made.batch,
        "pitch": made.operand.column_stride,
    })  # fmt: skip
    launch = Launch((made.blocks, 1, 1), (THREADS, 1, 1), (given,), overlap=overlap)
    return Step(kernel(made.dtype, overlap), launch)


@cache
def kernel(dtype: str, overlap: bool) -> Kernel:
    """Return the kernel; ``overlap`` is that of :func:`step`."""
    return Kernel(SOURCE, "transpose", {"real": REAL[dtype], "OVERLAP": int(overlap)})
