"""The boxes of tensor copies: their part within the array, and their places after a swizzle."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.copies.tensor_maps import Tiled
from tilewise.devices.emulator.counting.transactions import SECTOR
from tilewise.devices.emulator.threads.lanes import Index
from tilewise.tensor_map import PIECE, SWIZZLES

_LINE = 128


def swizzled(offset: int, tiled: Tiled) -> Index:
    """Return the place of each 16-byte piece of a box in shared memory after the swizzle.

    Parameters
    ----------
    offset : int
        The offset of the box in shared memory, a multiple of 128.
    tiled : Tiled
    """
    span = SWIZZLES[tiled.swizzle]
    if not span:
        return np.arange(tiled.size // PIECE)
    return _swizzled(offset // _LINE % 8, tiled.size, span)


@lru_cache(maxsize=64)
def _swizzled(line: int, size: int, span: int) -> Index:
    piece = np.arange(size // PIECE, dtype=np.intp)
    return piece ^ ((piece // (_LINE // PIECE) + line) & (span // PIECE - 1))


@dataclass(frozen=True)
class Box:
    """The part of a box that lies in the array.

    Attributes
    ----------
    part : tuple of slice
        The slices of the box in shared memory, the contiguous dimension last and in bytes.
    address : int
        The address of its first byte in global memory.
    pitches : tuple of int
        The bytes there from one to the next along each dimension except the contiguous one.
    """

    part: tuple[slice, ...]
    address: int
    pitches: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(each.stop - each.start for each in self.part)


def addresses(tiled: Tiled, at: list[int]) -> npt.NDArray[np.int64]:
    """Return where each 16-byte piece of the box at ``at`` begins in global memory, row by row.

    The place of a piece that begins outside the array is -1.
    """
    x = at[0] * tiled.item + np.arange(0, tiled.width, PIECE, dtype=np.int64)
    place = tiled.address + x
    inside = (x >= 0) & (x < tiled.extents[0] * tiled.item)
    for first, extent, stride, count, step in zip(
        at[1:], tiled.extents[1:], tiled.strides[1:], tiled.counts[1:], tiled.steps[1:], strict=True
    ):
        index = (first + np.arange(count, dtype=np.int64) * step).reshape(-1, *(1,) * place.ndim)
        place = place + index * stride
        inside = inside & (index >= 0) & (index < extent)
    return np.asarray(np.where(inside, place, -1).reshape(-1), np.int64)


def sectors_moved(part: Box | None, tiled: Tiled, fills: bool, unit: int = SECTOR) -> int:
    """Return the sectors that move between a box in shared memory and its array, as on an H200.

    A row of the box moves in pieces that end at multiples of 128 bytes of shared memory; each piece
    moves the sectors of global memory that it lies in. The filling outside the array counts as
    sectors too, as many as its bytes in a piece need.

    Parameters
    ----------
    part : Box or None
        The part of the box in the array; None for nothing.
    tiled : Tiled
    fills : bool
        Whether the rest is filled, as in a load.
    unit : int
        The bytes that move together in global memory, a multiple of a sector.
    """
    counts = tiled.counts[:0:-1]
    filled = _filled(tiled, counts, 0, tiled.width)
    if part is None:
        return int(filled.sum()) if fills else 0
    *around, along = part.part
    inside = tuple(around)
    ends = _cut(tiled, counts, along.start, along.stop)
    begin = np.full((), part.address - along.start, np.int64)
    for extent, pitch in zip(part.shape[:-1], part.pitches, strict=True):
        begin = begin[..., None] + np.arange(extent, dtype=np.int64) * pitch
    low, high = (begin[..., None] + each[inside] for each in ends)
    units = np.where(high > low, (high - 1) // unit - low // unit + 1, 0)
    moved = int(units.sum()) * (unit // SECTOR)
    if not fills:
        return moved
    before = _filled(tiled, counts, 0, along.start)
    after = _filled(tiled, counts, along.stop, tiled.width)
    filled[inside] = before[inside] + after[inside]
    return moved + int(filled.sum())


def _filled(tiled: Tiled, counts: tuple[int, ...], start: int, stop: int) -> npt.NDArray[np.int64]:
    """Return the number of sectors for bytes of each row of a box, if all of them are filled."""
    low, high = _cut(tiled, counts, start, stop)
    return np.asarray((-(-(high - low) // SECTOR)).sum(axis=-1), np.int64)


def _cut(
    tiled: Tiled, counts: tuple[int, ...], start: int, stop: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Cut the bytes of each row of a box at multiples of 128 bytes of shared memory.

    Returns
    -------
    low, high : ndarray of int64, shape (*counts, n)
        The first byte of each piece in its row, and the one after its last; equal for no piece.
    """
    first = np.arange(math.prod(counts)).reshape(counts)[..., None] * tiled.width
    line = (first + start) // _LINE + np.arange((tiled.width + _LINE - 1) // _LINE + 1)
    low = np.clip(line * _LINE - first, start, stop)
    high = np.clip((line + 1) * _LINE - first, start, stop)
    return low, high


def clipped(tiled: Tiled, at: list[int], to_piece: bool) -> Box | None:
    """Return the part of the box at ``at`` that lies in the array; None if there is none.

    Parameters
    ----------
    to_piece : bool
        Whether a row of the array extends to the end of its last 16 bytes.
    """
    x, end = at[0] * tiled.item, tiled.extents[0] * tiled.item
    if to_piece:
        end = -(-end // PIECE) * PIECE
    part = [slice(max(-x, 0), min(end - x, tiled.width))]
    address = tiled.address + x + part[0].start
    pitches = []
    for first, extent, stride, count, step in zip(
        at[1:], tiled.extents[1:], tiled.strides[1:], tiled.counts[1:], tiled.steps[1:], strict=True
    ):
        inside = slice(-(-max(-first, 0) // step), min(-(-(extent - first) // step), count))
        part.append(inside)
        address += (first + inside.start * step) * stride
        pitches.append(stride * step)
    if any(each.start >= each.stop for each in part):
        return None
    return Box(tuple(part[::-1]), address, tuple(pitches[::-1]))
