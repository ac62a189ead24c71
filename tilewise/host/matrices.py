"""Matrices in the host's memory, and the pieces of them that travel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilewise.gemm.blocking import Span
from tilewise.gemm.product import ALIGNMENT

Array = npt.NDArray[Any]


def pitch_of(width: int) -> int:
    """Return the pitch of a piece's lines on the GPU, in bytes, so that all lines are aligned."""
    return -(-width // ALIGNMENT) * ALIGNMENT


class MatrixLayout(NamedTuple):
    """The orientation of a matrix, the same on the host and on the GPU, and its elements' size.

    Attributes
    ----------
    by_rows : bool
        Whether it is row-major. The contiguous lines are its rows then, and otherwise its columns.
    item : int
        The bytes of an element.
    """

    by_rows: bool
    item: int

    def lines(self, rows: int, columns: int) -> int:
        """Return the number of contiguous lines of a piece."""
        return rows if self.by_rows else columns

    def pitch(self, rows: int, columns: int) -> int:
        """Return the bytes from line to line of a piece that lies on the GPU by itself."""
        return pitch_of((columns if self.by_rows else rows) * self.item)

    def size(self, rows: int, columns: int) -> int:
        """Return the bytes of a piece that lies on the GPU by itself."""
        return self.lines(rows, columns) * self.pitch(rows, columns)

    def ahead(self, row: int, column: int, pitch: int) -> int:
        """Return the bytes from the first element to the one at a row and a column."""
        line, place = (row, column) if self.by_rows else (column, row)
        return line * pitch + place * self.item


@dataclass(frozen=True)
class HostMatrix:
    """A batch of matrices in the host's memory.

    Attributes
    ----------
    array : array, (batch, rows, columns)
        The elements, with any strides; the stride of the batch is 0 if all are one matrix.
    is_pinned : bool
        Whether the GPU can copy from and to it by itself.
    """

    array: Array
    is_pinned: bool = False

    @cached_property
    def layout(self) -> MatrixLayout:
        """The orientation of the matrices."""
        _, rows, columns = self.array.shape
        _, row, column = self.array.strides
        item = self.array.itemsize
        if columns <= 1 or rows <= 1:
            return MatrixLayout(columns > 1 or (rows <= 1 and columns == 1), item)
        return MatrixLayout(abs(column) <= abs(row), item)

    @property
    def is_one_matrix(self) -> bool:
        """Whether the whole batch is one and the same matrix."""
        return len(self.array) > 1 and self.array.strides[0] == 0

    def goes_directly(self, by_rows: bool) -> bool:
        """Return whether the driver copies its lines, which are rows or columns, in place."""
        if not self.is_pinned:
            return False
        lines = self.array if by_rows else self.array.swapaxes(1, 2)
        _, line, element = lines.strides
        _, count, width = lines.shape
        size = width * lines.itemsize
        if width > 1 and element != lines.itemsize:
            return False
        return bool(count <= 1 or line >= size)

    def piece(self, batch: Span, rows: Span, columns: Span, by_rows: bool) -> Array:
        """Return a view of some rows and columns: (batch, lines, elements of a line)."""
        found = self.array[slice(*batch), slice(*rows), slice(*columns)]
        return found if by_rows else found.swapaxes(1, 2)

    def is_same_as(self, other: HostMatrix) -> bool:
        """Return whether both are the same elements at the same addresses."""
        x, y = self.array, other.array
        return (
            x.size > 0
            and x.shape == y.shape
            and x.strides == y.strides
            and x.ctypes.data == y.ctypes.data
        )

    @property
    def transposed(self) -> HostMatrix:
        """The same memory with rows and columns exchanged."""
        return HostMatrix(self.array.swapaxes(1, 2), self.is_pinned)


class Part(NamedTuple):
    """The part of a piece that travels in one copy.

    Attributes
    ----------
    host : array, (matrices, lines, elements)
        The view of the host's array.
    ahead : int
        The bytes from the beginning of the piece on the GPU to the beginning of this part.
    """

    host: Array
    ahead: int


def parts_of(piece: Array, pitch: int, stride: int, most: int) -> Iterator[Part]:
    """Cut a piece into parts of at most ``most`` bytes, or of single elements if those are larger.

    Parameters
    ----------
    piece : array, (matrices, lines, elements)
    pitch, stride : int
        The bytes on the GPU from line to line, and from matrix to matrix.
    most : int
        The most bytes of a part, whose lines have the pitch :func:`pitch_of` of their width.
    """
    matrices, lines, width = piece.shape
    of_line = pitch_of(width * piece.itemsize)
    if stride == lines * pitch and lines * of_line <= most:
        for first, last in _evenly(matrices, most // (lines * of_line)):
            yield Part(piece[first:last], first * stride)
        return
    grain = ALIGNMENT // piece.itemsize
    for matrix in range(matrices):
        for line, end in _evenly(lines, max(1, most // of_line)):
            for place, stop in _evenly(
                width, width if of_line <= most else most // ALIGNMENT * grain, grain
            ):
                host = piece[matrix : matrix + 1, line:end, place:stop]
                yield Part(host, matrix * stride + line * pitch + place * piece.itemsize)


def _evenly(size: int, most: int, grain: int = 1) -> Iterator[tuple[int, int]]:
    """Yield the ranges of as few even parts of at most ``most`` as possible, at multiples."""
    parts = -(-size // most)
    each = -(-size // (parts * grain)) * grain
    for start in range(0, size, each):
        yield start, min(start + each, size)


def packed(space: npt.NDArray[np.uint8], like: Array) -> Array:
    """Return an array in ``space`` with a part's shape, and lines at :func:`pitch_of` its width."""
    _, lines, width = like.shape
    pitch = pitch_of(width * like.itemsize)
    return np.ndarray(
        like.shape, like.dtype, space.data, 0, (lines * pitch, pitch, like.itemsize)
    )  # fmt: skip
