"""Track affine dependence on ``blockIdx``: how a register's value changes between blocks.

While one block runs, every register has such a dependence beside its value: the coefficients with
which ``blockIdx.x``, ``.y`` and ``.z`` enter it, as far as they follow from the instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

Affine = tuple[int | None, ...]
"""How a value depends on ``blockIdx``: its coefficients of x, y and z, which are how far it moves
from a block to the next along that axis; None where its value in other blocks is not known. Behind
these come the coefficients of the curves that a :class:`~.regions.Region` keeps (values that are no
multiple of the index, as of a quotient): in turn curves over the whole grid, along x, y and z."""
Dependence = Affine | str
"""The dependence of a register on ``blockIdx``, or :data:`LOADED` if its value came from memory."""
LOADED = "loaded"
ZERO: Affine = (0, 0, 0)
"""The dependence of a value that is the same in every block."""
UNKNOWN: Affine = (None, None, None)
GRID = 3
"""The number that stands for the whole grid in the place of an axis."""
RANGES = {
    "u8": (0, 2**8 - 1), "u16": (0, 2**16 - 1), "u32": (0, 2**32 - 1), "u64": (0, 2**61 - 1),
    "s8": (-(2**7), 2**7 - 1), "s16": (-(2**15), 2**15 - 1), "s32": (-(2**31), 2**31 - 1),
    "s64": (-(2**61), 2**61 - 1),
}  # fmt: skip
"""The integers whose dependence is followed. Those of 64 bits are so few that the difference of two
fits in 64 bits, and how far such a difference moves too."""


def affine_of(coefficients: Iterable[int | None]) -> Affine:
    """Return the dependence with these coefficients, wrapped around in 64 bits."""
    found = [None if c is None else (c + (1 << 63)) % (1 << 64) - (1 << 63) for c in coefficients]
    while len(found) > 3 and found[-1] == 0:
        del found[-1]
    return tuple(found)


def depends(affine: Affine, axis: int) -> bool:
    """Return whether a value with this dependence changes along an axis."""
    return any(step != 0 for step in (*affine[axis::4], *affine[GRID::4]))


def axis_of(place: int) -> int:
    """Return the axis of the coefficient at a place, or :data:`GRID`."""
    return place % 4


def without(affine: Affine, axes: set[int], step: int | None = None) -> Affine:
    """The same along the other axes; along these not known, or with the coefficient ``step``."""
    if GRID in axes and step is None:
        return UNKNOWN
    return affine_of(
        own if axis_of(place) not in axes else step if place < 3 else 0
        for place, own in enumerate(affine)
    )


def both(one: Dependence, other: Dependence) -> Dependence:
    """Return the dependence of a register: ``one`` in some lanes, ``other`` in the rest."""
    if isinstance(one, str) or isinstance(other, str):
        return LOADED
    pairs = enumerate(zip_longest(one, other, fillvalue=0))
    unlike = {axis_of(place) for place, (a, b) in pairs if a != b}
    return without(one, unlike) if GRID not in unlike else combined([one, other])


def combined(dependences: Sequence[Dependence]) -> Dependence:
    """Return the dependence of a result that is some function, not known, of values with these."""
    affines = [dependence for dependence in dependences if not isinstance(dependence, str)]
    if len(affines) < len(dependences):
        return LOADED
    x, y, z = (None if any(depends(s, axis) for s in affines) else 0 for axis in range(3))
    return x, y, z


def scaled(dependence: Dependence, factor: int) -> Dependence:
    """Return the dependence of a multiple."""
    if isinstance(dependence, str):
        return dependence
    return affine_of(None if step is None else step * factor for step in dependence)


def added(one: Dependence, other: Dependence, sign: int = 1) -> Dependence:
    """Return the dependence of a sum, or with the sign -1 of a difference."""
    if isinstance(one, str) or isinstance(other, str):
        return LOADED
    return difference(one, other, -sign)


def difference(one: Affine, other: Affine, sign: int = 1) -> Affine:
    """Return the dependence of a difference, or with the sign -1 of a sum."""
    return affine_of(
        None if a is None or b is None else a - sign * b
        for a, b in zip_longest(one, other, fillvalue=0)
    )


def undivided(affine: Affine, divisor: int) -> set[int]:
    """Return the axes along which a coefficient is not known, or no multiple of ``divisor``."""
    return {axis_of(place) for place, step in enumerate(affine) if step is None or step % divisor}


def divided(affine: Affine, divisor: int) -> Affine:
    """Return the dependence of a quotient; unknown if a coefficient is no multiple."""
    return without(
        affine_of(0 if step is None else step // divisor for step in affine),
        undivided(affine, divisor),
    )


def remaining(affine: Affine, divisor: int) -> Affine:
    """Return the dependence of a remainder."""
    return without((0, 0, 0), undivided(affine, divisor))


def picked(one: Dependence, other: Dependence, is_one: npt.NDArray[np.bool_]) -> Dependence:
    """Return the dependence of a register of which each lane takes ``one`` or ``other``."""
    return one if is_one.all() else other if not is_one.any() else both(one, other)


def extremes(values: Any) -> tuple[int, int]:
    """Return the least and the greatest of the lanes' values."""
    return (int(values.min()), int(values.max())) if values.ndim else (int(values), int(values))


def fits(affine: Affine, values: Any, type_: str) -> bool:
    """Return whether the values are the same in all blocks, or all within :data:`RANGES`."""
    (low, high), (least, most) = extremes(values), RANGES[type_]
    return affine == ZERO or (least <= low and high <= most)


def clipped(values: Any, type_: str) -> Any:
    """Return the values as int64; those beyond :data:`RANGES` become the next integer beyond."""
    least, most = RANGES[type_]
    beyond = values < least, values > most
    found = np.where(beyond[0], np.int64(least - 1), values.astype(np.int64))
    return np.where(beyond[1], np.int64(most + 1), found)
