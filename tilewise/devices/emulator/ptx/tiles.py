"""Say which elements of a small matrix each lane of a warp holds (PTX ISA 9.7.14.5).

Lane l is number t = l % 4 of group g = l / 4. A register holds neighbouring elements along k, or of
a sum along a row. PTX leaves open what a fragment of ``wmma`` holds; since compute capability 8.0
ptxas makes each of these of ``mma``'s fragments, so that the layouts here are those of both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

Index = npt.NDArray[np.intp]
WARP = 32
_LANE = np.arange(WARP)
_GROUP, _NUMBER = _LANE // 4, _LANE % 4


@dataclass(frozen=True, eq=False)
class Tile:
    """A matrix that a warp holds.

    Attributes
    ----------
    rows, columns : int
    packed : int
        Neighbouring elements that a register holds, or that a lane holds of a sum.
    row, column : ndarray of intp, shape (32, elements)
        The place of each element that a lane holds, in the order of its registers.
    is_by_row : bool
        Whether elements that are packed lie in one row, and not in one column.
    """

    rows: int
    columns: int
    packed: int
    row: Index
    column: Index
    is_by_row: bool
    _at: Index = field(init=False)

    def __post_init__(self) -> None:
        at = np.empty(self.rows * self.columns, np.intp)
        at[(self.row * self.columns + self.column).reshape(-1)] = np.arange(self.row.size)
        object.__setattr__(self, "_at", at)

    @property
    def count(self) -> int:
        """The number of elements that a lane holds."""
        return int(self.row.shape[1])

    def matrix(self, held: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return matrices of (warps, rows, columns), from lanes' elements: (warps * 32, count)."""
        whole = held.reshape(-1, WARP * self.count)
        return whole[:, self._at].reshape(-1, self.rows, self.columns)

    def held(self, matrix: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the lanes' elements of matrices: the inverse of :meth:`matrix`."""
        return np.ascontiguousarray(matrix[:, self.row, self.column]).reshape(-1, self.count)

    @property
    def turned(self) -> Tile:
        """The transposed matrix, held by the same lanes."""
        return Tile(self.columns, self.rows, self.packed, self.column, self.row, not self.is_by_row)


def _tile(
    rows: int, columns: int, packed: int, places: list[tuple[Index, Index]], is_by_row: bool
) -> Tile:
    row, column = (np.stack([place[i] for place in places], axis=1) for i in (0, 1))
    return Tile(rows, columns, packed, row.astype(np.intp), column.astype(np.intp), is_by_row)


@cache
def left(m: int, k: int, packed: int) -> Tile:
    """A, of m x k: k goes along a row; registers of upper and lower eight rows take turns."""
    places = [
        (top + half + _GROUP, first + packed * _NUMBER + i)
        for top in range(0, m, 16)
        for first in range(0, k, 4 * packed)
        for half in range(0, min(m, 16), 8)
        for i in range(packed)
    ]
    return _tile(m, k, packed, places, True)


@cache
def right(k: int, n: int, packed: int) -> Tile:
    """Return the tile of B, of k x n: k runs along a column."""
    places = [
        (first + packed * _NUMBER + i, across + _GROUP)
        for across in range(0, n, 8)
        for first in range(0, k, 4 * packed)
        for i in range(packed)
    ]
    return _tile(k, n, packed, places, False)


@cache
def total(m: int, n: int) -> Tile:
    """Return the tile of C and D, of m x n: pairs lie along a row."""
    places = [
        (top + half + _GROUP, across + 2 * _NUMBER + i)
        for top in range(0, m, 16)
        for across in range(0, n, 8)
        for half in range(0, min(m, 16), 8)
        for i in range(2)
    ]
    return _tile(m, n, 2, places, True)
