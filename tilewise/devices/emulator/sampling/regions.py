"""Which blocks of a grid do the same as one that was run.

What a block does to memory depends on its index by the addresses that it reaches and by the
comparisons that it makes. Where both gain something known from the block's index (a shift), a
block runs the same instructions with the same threads as long as no shift changes the outcome of
a comparison, and its accesses make the same sectors and bank conflicts as long as all are shifted
by whole sectors, or whole rows of banks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import numpy.typing as npt

from tilewise.launch import Dim3

Shift = tuple[int | None, ...]
"""What a value gains from block to block: first a step for each block further in x, y and z; None
where nothing is known of the value in other blocks. Behind these come factors of the curves that
a :class:`Region` keeps, in turn of those over the whole grid, along x, along y and along z."""
Moves = npt.NDArray[np.int64]

ZERO: Shift = (0, 0, 0)
PINNED: Shift = (None, None, None)
GRID = 3
"""In the place of an axis: the whole grid."""
CURVES = 1 << 24
"""Numbers that the curves of a region may have, all together."""


def shift_of(steps: Iterable[int | None]) -> Shift:
    """A shift, with no zeros at its end; its numbers are those of 64-bit registers."""
    found = [None if s is None else (s + (1 << 63)) % (1 << 64) - (1 << 63) for s in steps]
    while len(found) > 3 and found[-1] == 0:
        del found[-1]
    return tuple(found)


def depends(shift: Shift, axis: int) -> bool:
    """Whether what gains so much depends on the block's index along an axis."""
    return any(step != 0 for step in (*shift[axis::4], *shift[GRID::4]))


def axis_of(place: int) -> int:
    """The axis of a number of a shift, or :data:`GRID`."""
    return place % 4


class Region:
    """The blocks that do the same as ``block``, by conditions on how far values have moved there.

    Parameters
    ----------
    block : (int, int, int)
    grid : (int, int, int)

    Attributes
    ----------
    limits : dict of Shift to (int or None, int or None)
        The least and the most that values with this shift may have moved.
    moduli : dict of Shift to int
        What they must have moved by a multiple of.
    pinned : set of int
        Axes along which nothing is known of any other block.
    """

    def __init__(self, block: Dim3, grid: Dim3) -> None:
        self.block, self.grid = block, grid
        self.limits: dict[Shift, tuple[int | None, int | None]] = {}
        self.moduli: dict[Shift, int] = {}
        self.pinned: set[int] = set()
        self._curves: dict[int, Moves] = {}
        self._places: dict[tuple[int, bytes], int] = {}
        self._last = [0, 1, 2, GRID - 4]
        self._room = CURVES

    def size(self, axis: int) -> int:
        """Blocks along an axis, or of the grid."""
        return math.prod(self.grid) if axis == GRID else self.grid[axis]

    def place(self, axis: int) -> int:
        """That of ``block`` along an axis, or in the grid."""
        (x, y, z), (gx, gy, _) = self.block, self.grid
        return x + gx * (y + gy * z) if axis == GRID else self.block[axis]

    def along(self, shift: Shift, axis: int) -> Moves:
        """How far values move, a block of the axis; what curves over the grid add is not in it."""
        moved = (shift[axis] or 0) * (np.arange(self.grid[axis]) - self.block[axis])
        for place in range(axis + 4, len(shift), 4):
            if factor := shift[place]:
                moved += factor * self._curves[place]
        return moved

    def over(self, shift: Shift, axes: Sequence[npt.NDArray[np.intp]] | None = None) -> Moves:
        """How far values move, of shape (z, y, x): a block of the grid, or of parts of its axes."""
        x, y, z = axes or [np.arange(extent) for extent in self.grid]
        lines = [self.along(shift, axis)[part] for axis, part in enumerate((x, y, z))]
        moved: Moves = lines[0] + lines[1][:, None] + lines[2][:, None, None]
        for place in range(GRID, len(shift), 4):
            if factor := shift[place]:
                moved += factor * self._curves[place].reshape(self.grid[::-1])[np.ix_(z, y, x)]
        return moved

    def most(self, shift: Shift) -> int:
        """How far values may move at most, before that wraps around in 64 bits."""
        most = 0
        for place, step in enumerate(shift):
            if step and place < 3:
                most += abs(step) * self.grid[place]
            elif step:
                curve = self._curves[place]
                most += abs(step) * max(int(curve.max()), -int(curve.min()))
        return most

    def curve(self, axis: int, moved: Moves) -> Shift | None:
        """The shift of what moves so far, a block of the axis (or of the grid, x fastest); None
        if there is no more room."""
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

    def _lines(self, moved: Moves) -> Shift | None:
        """The shift of what moves along each axis as from ``block`` on."""
        x, y, z = self.block
        whole = moved.reshape(self.grid[::-1])
        found: list[int | None] = []
        for axis, line in enumerate((whole[z, y], whole[z, :, x], whole[:, y, x])):
            shift = self.curve(axis, np.ascontiguousarray(line))
            if shift is None:
                return None
            found = [(a or 0) + (b or 0) for a, b in zip_longest(found, shift, fillvalue=0)]
        return shift_of(found)

    def pin(self, shift: Shift) -> Shift:
        """Stay along the axes of which nothing is known; what it is along the other axes."""
        if None not in shift:
            return shift
        self.pinned |= {axis for axis in range(3) if shift[axis] is None}
        return shift_of(0 if axis_of(place) in self.pinned else s for place, s in enumerate(shift))

    def limit(self, shift: Shift, least: int | None, most: int | None) -> None:
        """Let values with this shift move from ``least`` to ``most``; None is no limit."""
        shift = self.pin(shift)
        if shift == ZERO:
            return
        low, high = self.limits.get(shift, (None, None))
        if least is not None and (low is None or least > low):
            low = least
        if most is not None and (high is None or most < high):
            high = most
        self.limits[shift] = low, high

    def divide(self, shift: Shift, modulus: int) -> None:
        """Let values with this shift move by multiples of ``modulus``."""
        shift = self.pin(shift)
        if any((step or 0) % modulus for step in shift):
            self.moduli[shift] = math.lcm(modulus, self.moduli.get(shift, 1))

    def find(self) -> Box:
        """The blocks of the grid."""
        conditions = {*self.limits, *self.moduli}
        own = {
            shift: {axis_of(place) for place, step in enumerate(shift) if step}
            for shift in conditions
        }
        axes = []
        for axis, extent in enumerate(self.grid):
            keep = np.ones(extent, np.bool_)
            if axis in self.pinned:
                keep[:] = np.arange(extent) == self.block[axis]
            for shift in conditions:
                if own[shift] == {axis}:
                    keep &= self._holds(shift, self.along(shift, axis))
            axes.append(np.flatnonzero(keep))
        x, y, z = axes
        inside = np.ones((len(z), len(y), len(x)), np.bool_)
        for shift in conditions:
            is_wide = GRID in own[shift] or len(own[shift]) > 1
            if is_wide and not self._holds_at_corners(shift, axes):
                inside &= self._holds(shift, self.over(shift, axes))
        return Box(self, (x, y, z), inside)

    def _holds(self, shift: Shift, moved: Moves) -> npt.NDArray[np.bool_]:
        low, high = self.limits.get(shift, (None, None))
        holds: npt.NDArray[np.bool_] = moved % self.moduli.get(shift, 1) == 0
        if low is not None:
            holds &= moved >= low
        if high is not None:
            holds &= moved <= high
        return holds

    def _holds_at_corners(self, shift: Shift, axes: Sequence[npt.NDArray[np.intp]]) -> bool:
        """Whether the limits hold for all, as they do for the least and the most of the box."""
        if shift in self.moduli or any(shift[GRID::4]):
            return False
        moved = [self.along(shift, axis)[part] for axis, part in enumerate(axes)]
        least, most = sum(int(m.min()) for m in moved), sum(int(m.max()) for m in moved)
        low, high = self.limits[shift]
        return (low is None or least >= low) and (high is None or most <= high)


@dataclass(frozen=True)
class Box:
    """Some blocks of a grid.

    Attributes
    ----------
    region : Region
        Theirs.
    axes : three ndarrays of intp
        Indices along x, y and z.
    inside : ndarray of bool, shape (len(z), len(y), len(x))
        Which of them are meant.
    """

    region: Region
    axes: tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.intp]]
    inside: npt.NDArray[np.bool_]

    def take(self, left: npt.NDArray[np.bool_]) -> Box:
        """Those that are still ``left`` of the grid, shape (z, y, x); takes them from it."""
        x, y, z = self.axes
        at = np.ix_(z, y, x)
        inside = self.inside & left[at]
        left[at] &= ~inside
        return Box(self.region, self.axes, inside)

    @property
    def count(self) -> int:
        return int(np.count_nonzero(self.inside))

    def moved(self, shift: Shift) -> Moves:
        """How far values with a shift move: distinct, sorted."""
        (moves,), _ = self._moves([shift])
        found: Moves = np.unique(moves)
        return found

    def moves(self, shifts: Sequence[Shift]) -> tuple[Moves, Moves]:
        """How far values with each of the shifts move together, and how many blocks move so.

        Returns
        -------
        moves : ndarray of int64, shape (moves, len(shifts))
        counts : ndarray of int64, shape (moves,)
        """
        moves, counts = self._moves(shifts)
        return np.stack(moves, axis=1), counts

    def _moves(self, shifts: Sequence[Shift]) -> tuple[list[Moves], Moves]:
        # Along an axis on which all stay, blocks are counted, not looked at.
        stays = [not any(depends(shift, axis) for shift in shifts) for axis in range(3)]
        away = tuple(2 - axis for axis in range(3) if stays[axis])
        blocks = self.inside.sum(axis=away, keepdims=True, dtype=np.int64)
        axes = [part[:1] if stay else part for part, stay in zip(self.axes, stays, strict=True)]
        some = blocks > 0
        return [self.region.over(shift, axes)[some] for shift in shifts], blocks[some]
