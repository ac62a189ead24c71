"""Say which elements of a matrix each lane holds, as the instructions define it.

The layouts are read from the tables and functions with which the instructions compute, so that the
layouts shown and those computed with can't differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.ptx.tiles import Index, Tile

Values = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Held:
    """A matrix that lanes hold together.

    Attributes
    ----------
    name : str
        ``"A"``, ``"B"``, ``"D"``; or ``"rows"`` for those that ``ldmatrix`` and ``stmatrix`` move,
        a row a lane's address.
    type : str
        The elements' type, as PTX writes it.
    rows, columns : int
    row, column : ndarray of intp, shape (lanes, elements)
        The place of each element that a lane holds, in the order of its registers.
    packed : int
        Elements in a register.
    depth : int
        Elements of the matrix that one here stands for, side by side along k: more than one where
        an element has less than a byte.
    """

    name: str
    type: str
    rows: int
    columns: int
    row: Index
    column: Index
    packed: int
    depth: int = 1

    @classmethod
    def of_tile(cls, name: str, type_: str, tile: Tile, packed: int, depth: int = 1) -> Held:
        """Return the elements that the lanes of a warp hold, from a table."""
        return cls(name, type_, tile.rows, tile.columns, tile.row, tile.column, packed, depth)

    @classmethod
    def found(
        cls, name: str, type_: str, matrix: Callable[[Values], Values], registers: int, lanes: int,
        halves: bool,
    ) -> Held:  # fmt: skip
        """Return the elements that lanes hold, from a function of their registers.

        Parameters
        ----------
        matrix : callable
            Takes registers, of shape (registers, lanes), and gives one matrix, of shape
            (1, rows, columns); of uint16 where a register holds two elements.
        registers, lanes : int
        halves : bool
            Whether a register holds two elements.
        """
        packed = 2 if halves else 1
        kind = np.uint16 if halves else np.uint32
        numbers = np.arange(registers * lanes * packed, dtype=kind)
        (there,) = matrix(numbers.view(np.uint32).reshape(registers, lanes))
        rows, columns = there.shape
        at = np.empty(there.size, np.intp)
        at[there.reshape(-1)] = np.arange(there.size)
        held = at.reshape(registers, lanes, packed).swapaxes(0, 1).reshape(lanes, -1)
        return cls(name, type_, rows, columns, held // columns, held % columns, packed)

    def of_bytes(self, size: int) -> Held:
        """Return the same registers, of elements of ``size`` bytes and not of 2."""
        if size == 2:
            return self
        if size == 4:
            row, column = self.row[:, ::2], self.column[:, ::2] // 2
            return Held(self.name, self.type, self.rows, self.columns // 2, row, column, 1)
        row = self.row.repeat(2, axis=1)
        column = self.column.repeat(2, axis=1) * 2 + np.arange(row.shape[1]) % 2
        return Held(self.name, self.type, self.rows, self.columns * 2, row, column, 4)
