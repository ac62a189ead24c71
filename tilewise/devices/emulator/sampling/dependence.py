"""What a register gains from block to block: a shift, or that what it has came from memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.sampling.regions import (
    GRID,
    PINNED,
    ZERO,
    Shift,
    axis_of,
    depends,
    shift_of,
)

Gain = Shift | str
"""What a register gains from block to block, or :data:`LOADED`."""
LOADED = "loaded"
RANGES = {
    "u8": (0, 2**8 - 1), "u16": (0, 2**16 - 1), "u32": (0, 2**32 - 1), "u64": (0, 2**61 - 1),
    "s8": (-(2**7), 2**7 - 1), "s16": (-(2**15), 2**15 - 1), "s32": (-(2**31), 2**31 - 1),
    "s64": (-(2**61), 2**61 - 1),
}  # fmt: skip
"""Of the integers that are followed: 64 bits of them leave room for the differences of two, and
for how far such a difference moves."""


def without(gain: Shift, axes: set[int], step: int | None = None) -> Shift:
    """The same along the other axes; along these nothing is known, or 0 is gained."""
    if GRID in axes and step is None:
        return PINNED
    return shift_of(
        own if axis_of(place) not in axes else step if place < 3 else 0
        for place, own in enumerate(gain)
    )


def both(one: Gain, other: Gain) -> Gain:
    """The gain of a register that has one in some lanes and the other in others."""
    if isinstance(one, str) or isinstance(other, str):
        return LOADED
    pairs = enumerate(zip_longest(one, other, fillvalue=0))
    unlike = {axis_of(place) for place, (a, b) in pairs if a != b}
    return without(one, unlike) if GRID not in unlike else combined([one, other])


def combined(gains: Sequence[Gain]) -> Gain:
    """That of a result of which nothing more is known than what it is made of."""
    shifts = [gain for gain in gains if not isinstance(gain, str)]
    if len(shifts) < len(gains):
        return LOADED
    x, y, z = (None if any(depends(s, axis) for s in shifts) else 0 for axis in range(3))
    return x, y, z


def scaled(gain: Gain, factor: int) -> Gain:
    if isinstance(gain, str):
        return gain
    return shift_of(None if step is None else step * factor for step in gain)


def added(one: Gain, other: Gain, sign: int = 1) -> Gain:
    if isinstance(one, str) or isinstance(other, str):
        return LOADED
    return difference(one, other, -sign)


def difference(one: Shift, other: Shift, sign: int = 1) -> Shift:
    """What a difference gains, or with -1 a sum."""
    return shift_of(
        None if a is None or b is None else a - sign * b
        for a, b in zip_longest(one, other, fillvalue=0)
    )


def undivided(gain: Shift, divisor: int) -> set[int]:
    """The axes along which not all that is gained is a multiple."""
    return {axis_of(place) for place, step in enumerate(gain) if step is None or step % divisor}


def divided(gain: Shift, divisor: int) -> Shift:
    """What a quotient gains; not known where the gain is no multiple."""
    return without(
        shift_of(0 if step is None else step // divisor for step in gain),
        undivided(gain, divisor),
    )


def remaining(gain: Shift, divisor: int) -> Shift:
    """What a remainder gains."""
    return without((0, 0, 0), undivided(gain, divisor))


def picked(one: Gain, other: Gain, is_one: npt.NDArray[np.bool_]) -> Gain:
    """What lanes have that take one or the other."""
    return one if is_one.all() else other if not is_one.any() else both(one, other)


def extremes(values: Any) -> tuple[int, int]:
    """The least and the most of what the lanes have."""
    return (int(values.min()), int(values.max())) if values.ndim else (int(values), int(values))


def fits(gain: Shift, values: Any, type_: str) -> bool:
    """Whether all that moves are integers that are followed."""
    (low, high), (least, most) = extremes(values), RANGES[type_]
    return gain == ZERO or (least <= low and high <= most)


def clipped(values: Any, type_: str) -> Any:
    """As int64; what is beyond the integers that are followed, as the next one beyond."""
    least, most = RANGES[type_]
    beyond = values < least, values > most
    found = np.where(beyond[0], np.int64(least - 1), values.astype(np.int64))
    return np.where(beyond[1], np.int64(most + 1), found)
