"""Find the blocks of a grid that do the same as one that was run.

What a block does to memory depends on its index by the addresses that it reaches and by the
comparisons that it makes. Where both depend on the index in a known way
(:mod:`~tilewise.devices.emulator.sampling.affine`), another block runs the same instructions with
the same threads as long as no comparison has another outcome there; and its accesses touch as many
sectors and have the same bank conflicts as long as all addresses move by whole sectors, or by whole
rows of banks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.counting.transactions import SECTOR
from tilewise.devices.emulator.sampling.affine import (
    GRID,
    ZERO,
    Affine,
    affine_of,
    axis_of,
    depends,
)
from tilewise.places import Dim3

Moves = npt.NDArray[np.int64]

CURVES = 1 << 24
"""The most points that all curves of a region have together."""


class Region:
    """The blocks that do the same as ``block``, by conditions on how far values move to them.

    Parameters
    ----------
    block : (int, int, int)
    grid : (int, int, int)

    Attributes
    ----------
    limits : dict of Affine to (int or None, int or None)
        How far values with this dependence may have moved: at least, and at most.
    moduli : dict of Affine to int
        A number by a multiple of which they must have moved.
    pinned : set of int
        Axes along which no other block is known to do the same.
    """

    def __init__(self, block: Dim3, grid: Dim3) -> None:
        self.block, self.grid = block, grid
        self.limits: dict[Affine, tuple[int | None, int | None]] = {}
        self.moduli: dict[Affine, int] = {}
        self.pinned: set[int] = set()
        self._curves: dict[int, Moves] = {}
        self._places: dict[tuple[int, bytes], int] = {}
        self._last = [0, 1, 2, GRID - 4]
        self._room = CURVES

    def size(self, axis: int) -> int:
        """Return the number of blocks along an axis, or of the grid."""
        return math.prod(self.grid) if axis == GRID else self.grid[axis]

    def place(self, axis: int) -> int:
        """Return the index of ``block`` along an axis, or its linear number in the grid."""
        (x, y, z), (gx, gy, _) = self.block, self.grid
        return x + gx * (y + gy * z) if axis == GRID else self.block[axis]

    def along(self, affine: Affine, axis: int) -> Moves:
        """Return how far values move to each block of an axis, without the curves over the grid."""
        moved = (affine[axis] or 0) * (np.arange(self.grid[axis]) - self.block[axis])
        for place in range(axis + 4, len(affine), 4):
            if factor := affine[place]:
                moved += factor * self._curves[place]
        return moved

    def over(self, affine: Affine, axes: Sequence[npt.NDArray[np.intp]] | None = None) -> Moves:
        """Return how far values move to each block of the grid or a part; shape (z, y, x)."""
        x, y, z = axes or [np.arange(extent) for extent in self.grid]
        lines = [self.along(affine, axis)[part] for axis, part in enumerate((x, y, z))]
        moved: Moves = lines[0] + lines[1][:, None] + lines[2][:, None, None]
        for place in range(GRID, len(affine), 4):
            if factor := affine[place]:
                moved += factor * self._curves[place].reshape(self.grid[::-1])[np.ix_(z, y, x)]
        return moved

    def most(self, affine: Affine) -> int:
        """Return a bound on how far values move, before 64 bits wrap it around."""
        most = 0
        for place, step in enumerate(affine):
            if step and place < 3:
                most += abs(step) * self.grid[place]
            elif step:
                curve = self._curves[place]
                most += abs(step) * max(int(curve.max()), -int(curve.min()))
        return most

    def curve(self, axis: int, moved: Moves) -> Affine | None:
        """The dependence of a value that moves so far to each block of an axis (or of the grid, x
        fastest); None if no more curves may be kept."""
        if axis == GRID:
            parts = self._lines(moved)
            if parts is None or (self.over(parts).reshape(-1) == moved).all():
                return parts
        else:
            step = int(moved[1] - moved[0]) if len(moved) > 1 else 0
            if (moved == step * (np.arange(len(moved)) - self.block[axis])).all():
                return tuple(step if place == axis else 0 for place in range(3))
        key = axis, moved.tobytes()
        if key not in self._places:
            self._room -= len(moved)
            if self._room < 0:
                return None
            self._last[axis] += 4
            self._places[key] = self._last[axis]
            self._curves[self._last[axis]] = moved
        place = self._places[key]
        return (*[0] * place, 1)

    def _lines(self, moved: Moves) -> Affine | None:
        """Return the dependence of a value that moves along each axis as it does from ``block``."""
        x, y, z = self.block
        whole = moved.reshape(self.grid[::-1])
        found: list[int | None] = []
        for axis, line in enumerate((whole[z, y], whole[z, :, x], whole[:, y, x])):
            affine = self.curve(axis, np.ascontiguousarray(line))
            if affine is None:
                return None
            found = [(a or 0) + (b or 0) for a, b in zip_longest(found, affine, fillvalue=0)]
        return affine_of(found)

    def pin(self, affine: Affine) -> Affine:
        """Keep to ``block`` along the axes whose coefficients are not known; returns the rest."""
        if None not in affine:
            return affine
        self.pinned |= {axis for axis in range(3) if affine[axis] is None}
        return affine_of(
            0 if axis_of(place) in self.pinned else s for place, s in enumerate(affine)
        )

    def limit(self, affine: Affine, least: int | None, most: int | None) -> None:
        """Keep to the blocks to which values with this dependence move by ``least`` to ``most``."""
        affine = self.pin(affine)
        if affine == ZERO:
            return
        low, high = self.limits.get(affine, (None, None))
        if least is not None and (low is None or least > low):
            low = least
        if most is not None and (high is None or most < high):
            high = most
        self.limits[affine] = low, high

    def divide(self, affine: Affine, modulus: int) -> None:
        """Keep to the blocks to which these values move by multiples of ``modulus``."""
        affine = self.pin(affine)
        if any((step or 0) % modulus for step in affine):
            self.moduli[affine] = math.lcm(modulus, self.moduli.get(affine, 1))

    def find(self) -> Box:
        """Return the blocks of the grid."""
        conditions = {*self.limits, *self.moduli}
        own = {
            affine: {axis_of(place) for place, step in enumerate(affine) if step}
            for affine in conditions
        }
        axes = []
        for axis, extent in enumerate(self.grid):
            keep = np.ones(extent, np.bool_)
            if axis in self.pinned:
                keep[:] = np.arange(extent) == self.block[axis]
            for affine in conditions:
                if own[affine] == {axis}:
                    keep &= self._holds(affine, self.along(affine, axis))
            axes.append(np.flatnonzero(keep))
        x, y, z = axes
        inside = np.ones((len(z), len(y), len(x)), np.bool_)
        for affine in conditions:
            is_wide = GRID in own[affine] or len(own[affine]) > 1
            if is_wide and not self._holds_at_corners(affine, axes):
                inside &= self._holds(affine, self.over(affine, axes))
        return Box(self, (x, y, z), inside)

    def _holds(self, affine: Affine, moved: Moves) -> npt.NDArray[np.bool_]:
        low, high = self.limits.get(affine, (None, None))
        holds: npt.NDArray[np.bool_] = moved % self.moduli.get(affine, 1) == 0
        if low is not None:
            holds &= moved >= low
        if high is not None:
            holds &= moved <= high
        return holds

    def _holds_at_corners(self, affine: Affine, axes: Sequence[npt.NDArray[np.intp]]) -> bool:
        """Return whether the limits hold in the whole box, because they do at its corners."""
        if affine in self.moduli or any(affine[GRID::4]):
            return False
        moved = [self.along(affine, axis)[part] for axis, part in enumerate(axes)]
        least, most = sum(int(m.min()) for m in moved), sum(int(m.max()) for m in moved)
        low, high = self.limits[affine]
        return (low is None or least >= low) and (high is None or most <= high)


@dataclass(frozen=True)
class Box:
    """Some blocks of a grid.

    Attributes
    ----------
    region : Region
        The region of the blocks.
    axes : three ndarrays of intp
        Indices along x, y and z.
    inside : ndarray of bool, shape (len(z), len(y), len(x))
        Which blocks of these indices belong to the box.
    """

    region: Region
    axes: tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.intp]]
    inside: npt.NDArray[np.bool_]

    def take(self, left: npt.NDArray[np.bool_]) -> Box:
        """Remove this box's blocks from ``left``, shape (z, y, x), and return those removed."""
        x, y, z = self.axes
        at = np.ix_(z, y, x)
        inside = self.inside & left[at]
        left[at] &= ~inside
        return Box(self.region, self.axes, inside)

    @property
    def count(self) -> int:
        return int(np.count_nonzero(self.inside))

    def sectors_moved(self, affine: Affine, start: int) -> list[Moves]:
        """Return by how many sectors an access moves that begins at byte ``start`` of one.

        Returns
        -------
        list of ndarray of int64
            Every sum of one of each is a move; where blocks move alike along the axes, that is
            a line each.
        """
        lines = [self.region.along(affine, axis)[part] for axis, part in enumerate(self.axes)]
        is_lines = not any(affine[GRID::4]) and bool(self.inside.all())
        if is_lines and not any((line % SECTOR).any() for line in lines):
            return [line // SECTOR for line in lines]
        (moves,), _ = self._moves([affine])
        return [(moves + start) // SECTOR]

    def moves(self, affines: Sequence[Affine]) -> tuple[Moves, Moves]:
        """Return how far values with these dependences move together, and to how many blocks.

        Returns
        -------
        moves : ndarray of int64, shape (moves, len(affines))
        counts : ndarray of int64, shape (moves,)
        """
        moves, counts = self._moves(affines)
        return np.stack(moves, axis=1), counts

    def _moves(self, affines: Sequence[Affine]) -> tuple[list[Moves], Moves]:
        # Along an axis on which no value moves, blocks are only counted.
        stays = [not any(depends(affine, axis) for affine in affines) for axis in range(3)]
        away = tuple(2 - axis for axis in range(3) if stays[axis])
        blocks = self.inside.sum(axis=away, keepdims=True, dtype=np.int64)
        axes = [part[:1] if stay else part for part, stay in zip(self.axes, stays, strict=True)]
        some = blocks > 0
        return [self.region.over(affine, axes)[some] for affine in affines], blocks[some]
