"""Which blocks of a grid do the same as one that was run.

What a block does to memory depends on its index by the addresses that it reaches and by the
comparisons that it makes. Where both are affine in the index, those of a block ``d`` further on
(in x, y and z) are shifted by ``g . d``: it runs the same instructions with the same threads as
long as no shift changes the outcome of a comparison, and its accesses make the same sectors and
bank conflicts as long as all are shifted by whole sectors, or whole rows of banks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tilewise.launch import Dim3

Shift = tuple[int | None, int | None, int | None]
"""What a value gains from one block to the next in x, y and z; None where it is not affine."""

ZERO: Shift = (0, 0, 0)
PINNED: Shift = (None, None, None)


@dataclass
class Region:
    """The blocks that do the same as ``block``, by conditions on their distance from it.

    Attributes
    ----------
    block : (int, int, int)
    limits : dict of Shift to (int or None, int or None)
        The least and the most that ``g . d`` may be.
    moduli : dict of Shift to int
        What ``g . d`` must be a multiple of.
    pinned : set of int
        Axes along which nothing is known of any other block.
    """

    block: Dim3
    limits: dict[Shift, tuple[int | None, int | None]] = field(default_factory=dict)
    moduli: dict[Shift, int] = field(default_factory=dict)
    pinned: set[int] = field(default_factory=set)

    def pin(self, shift: Shift) -> Shift:
        """Stay where ``shift`` is not affine; what it is along the other axes."""
        if None not in shift:
            return shift
        self.pinned |= {axis for axis, step in enumerate(shift) if step is None}
        x, y, z = (step or 0 for step in shift)
        return x, y, z

    def limit(self, shift: Shift, least: int | None, most: int | None) -> None:
        """Let ``shift . d`` be from ``least`` to ``most``; None is no limit."""
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
        """Let ``shift . d`` be a multiple of ``modulus``."""
        shift = self.pin(shift)
        if any((step or 0) % modulus for step in shift):
            self.moduli[shift] = math.lcm(modulus, self.moduli.get(shift, 1))

    def find(self, grid: Dim3) -> Box:
        """The blocks of ``grid``."""
        axes = []
        for axis, (extent, own) in enumerate(zip(grid, self.block, strict=True)):
            if axis in self.pinned:
                axes.append(np.array([own]))
                continue
            keep = np.ones(extent, np.bool_)
            for shift in {*self.limits, *self.moduli}:
                if sum(step != 0 for step in shift) == 1 and shift[axis]:
                    keep &= self._holds(shift, (shift[axis] or 0) * (np.arange(extent) - own))
            axes.append(np.flatnonzero(keep))
        x, y, z = (numbers - own for numbers, own in zip(axes, self.block, strict=True))
        inside = np.ones((len(z), len(y), len(x)), np.bool_)
        for shift in {*self.limits, *self.moduli}:
            if sum(step != 0 for step in shift) > 1:
                gx, gy, gz = (step or 0 for step in shift)
                if not self._holds_at_corners(shift, (gx * x, gy * y, gz * z)):
                    moved = gx * x + (gy * y)[:, None] + (gz * z)[:, None, None]
                    inside &= self._holds(shift, moved)
        return Box(self.block, (axes[0], axes[1], axes[2]), inside)

    def _holds(self, shift: Shift, moved: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        low, high = self.limits.get(shift, (None, None))
        holds: npt.NDArray[np.bool_] = moved % self.moduli.get(shift, 1) == 0
        if low is not None:
            holds &= moved >= low
        if high is not None:
            holds &= moved <= high
        return holds

    def _holds_at_corners(self, shift: Shift, moved: tuple[npt.NDArray[np.int64], ...]) -> bool:
        """Whether the limits hold for all, as they do at the corners of the box."""
        if shift in self.moduli:
            return False
        least, most = sum(int(m.min()) for m in moved), sum(int(m.max()) for m in moved)
        low, high = self.limits[shift]
        return (low is None or least >= low) and (high is None or most <= high)


@dataclass(frozen=True)
class Box:
    """Some blocks of a grid.

    Attributes
    ----------
    block : (int, int, int)
        The one that was run.
    axes : three ndarrays of intp
        Indices along x, y and z.
    inside : ndarray of bool, shape (len(z), len(y), len(x))
        Which of them are meant.
    """

    block: Dim3
    axes: tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.intp]]
    inside: npt.NDArray[np.bool_]

    def take(self, left: npt.NDArray[np.bool_]) -> Box:
        """Those that are still ``left`` of the grid, shape (z, y, x); takes them from it."""
        x, y, z = self.axes
        at = np.ix_(z, y, x)
        inside = self.inside & left[at]
        left[at] &= ~inside
        return Box(self.block, self.axes, inside)

    @property
    def count(self) -> int:
        return int(np.count_nonzero(self.inside))

    def moved(self, shift: Shift) -> npt.NDArray[np.int64]:
        """The distinct values of ``shift . d``, sorted."""
        steps = [
            (step or 0) * (numbers - own)
            for step, numbers, own in zip(shift, self.axes, self.block, strict=True)
        ]
        # Along axes that don't count, one look is enough.
        seen: npt.NDArray[np.bool_] = self.inside
        for axis, step in zip((2, 1, 0), shift, strict=True):
            if not step:
                seen = np.asarray(seen.any(axis=axis, keepdims=True))
        x, y, z = (
            values if step else values[:1] for values, step in zip(steps, shift, strict=True)
        )
        total = x + y[:, None] + z[:, None, None]
        found: npt.NDArray[np.int64] = np.unique(total[seen])
        return found
