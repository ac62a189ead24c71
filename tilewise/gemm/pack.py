"""Repack 16-bit matrices that bulk copies can't read into a workspace, by one launch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from tilewise.devices.limits import MAX_GRID
from tilewise.gemm.layouts import layout
from tilewise.gemm.product import Operand
from tilewise.gemm.steps import Step
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch
from tilewise.places import Place

SOURCE = SOURCES / "gemm" / "pack.cu"
ITEM_SIZE = 2  # bytes
ALIGNED = 8  # elements: 16 bytes, to which the rows that bulk copies read are aligned
PITCH = 64  # elements: rows begin at multiples of 128 bytes, an L2 cache line
WIDTH, THREADS, PIECES = 8, 256, 2  # as in pack.cu
LARGEST = 2**31 - 2**16  # the kernel counts rows and columns by int, up to a block past the end


class Packing(NamedTuple):
    """A copy of a matrix, or of a batch of them, in a layout that bulk copies can read.

    Attributes
    ----------
    operand : Operand
        The copy, which has the same matrices in other strides.
    source : Operand
        The matrix that is copied, transposed if the rows of the copy are its columns.
    rows, columns, batch : int
        The extents of ``source`` as it is copied: matrices that follow one another directly count
        as one, and so do matrices that share their memory.
    bytes : int
        The bytes of the copy; a multiple of 128.
    """

    operand: Operand
    source: Operand
    rows: int
    columns: int
    batch: int
    bytes: int


def packed(operand: Operand, rows: int, columns: int, batch: int) -> Packing:
    """Return the layout of a copy of ``batch`` matrices of ``rows`` x ``columns`` 16-bit elements.

    A dimension that is contiguous stays contiguous. If neither is, the one of the smaller stride
    becomes contiguous.

    Raises
    ------
    ValueError
        If an extent is below 1, or more than the kernel can count.
    """
    if min(rows, columns, batch) < 1 or max(batch * rows, batch * columns) > LARGEST:
        raise ValueError(
            f"{batch:,} matrices of {rows:,} x {columns:,} can't be repacked: "
            f"the extents are at least 1, and all their rows and columns at most {LARGEST:,}"
        )
    shares = operand.batch_stride == 0
    row_stride, column_stride = operand.row_stride, operand.column_stride
    is_turned = _preference(row_stride, rows) < _preference(column_stride, columns)
    if is_turned:
        rows, columns, row_stride, column_stride = columns, rows, column_stride, row_stride
    pitch = -(-columns // PITCH) * PITCH
    batch_stride = 0 if shares else rows * pitch
    new = (1, pitch) if is_turned else (pitch, 1)
    if shares:
        batch = 1
    elif operand.batch_stride == rows * row_stride:
        rows, batch = batch * rows, 1
    return Packing(
        Operand(*new, batch_stride),
        Operand(row_stride, column_stride, operand.batch_stride, operand.offset),
        rows,
        columns,
        batch,
        ITEM_SIZE * batch * rows * pitch,
    )


def step(copies: Sequence[tuple[Packing, Place, Place]], overlap: bool = False) -> Step:
    """Return the launch that makes one or two copies.

    Parameters
    ----------
    copies : sequence of (Packing, Place, Place)
        The packings, each with the place of its source's first element and of its copy's first
        element, which is at a multiple of 16 bytes.
    overlap : bool
        Whether the launch may begin before the kernel ahead of it in the stream has ended (it reads
        and writes nothing until then); that takes compute capability 9.0 or above.

    Raises
    ------
    ValueError
        If there are no copies or more than two, or they are too large for one launch.
    """
    if not 1 <= len(copies) <= 2:
        raise ValueError(f"{len(copies)} copies; one launch makes one or two")
    fields = [_copy(*copy) for copy in copies]
    blocks = sum(each["blocks"] for each in fields)
    if blocks > MAX_GRID[0]:
        raise ValueError(f"{blocks:,} blocks are more than one launch can have")
    given = layout(SOURCE, "Copies").pack({"copy": fields})
    launch = Launch((blocks, 1, 1), (THREADS, 1, 1), (given,), overlap=overlap)
    return Step(kernel(overlap), launch)


def _preference(stride: int, extent: int) -> tuple[bool, bool, int]:
    """Return a sort key that is smallest for the dimension that should be contiguous."""
    return extent == 1, stride != 1, stride


def _copy(packing: Packing, source_at: Place, destination: Place) -> dict[str, Any]:
    """Return the fields of pack.cu's Copy."""
    source, rows = packing.source, packing.batch * packing.rows
    pieces = -(-packing.columns // WIDTH)
    # The lanes of a warp copy pieces of one row, unless that would leave more than a fifth of its
    # threads idle. Warps share a row only if there are too few rows for all warps of a block.
    lane_bits = 5
    while lane_bits and (-pieces % (1 << lane_bits)) * 4 > pieces:
        lane_bits -= 1
    while (THREADS >> lane_bits) // 2 * PIECES >= rows and 1 << lane_bits < min(THREADS, pieces):
        lane_bits += 1
    across = -(-pieces // (1 << lane_bits))
    down = -(-rows // (PIECES * (THREADS >> lane_bits)))
    return {
        "source": source_at, "destination": destination, "row_stride": source.row_stride,
        "column_stride": source.column_stride, "batch_stride": source.batch_stride,
        "pitch": packing.bytes // (ITEM_SIZE * rows), "rows": packing.rows,
        "columns": packing.columns, "batch": packing.batch, "blocks": across * down,
        "lane_bits": lane_bits,
    }  # fmt: skip


@cache
def kernel(overlap: bool) -> Kernel:
    """Return the kernel of :func:`step`."""
    return Kernel(SOURCE, "pack", {"OVERLAP": int(overlap)})
