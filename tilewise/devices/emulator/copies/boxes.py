"""Boxes of tensor copies: which part of them lies in the array, and where swizzles put it."""

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
    """Where swizzling puts each 16-byte piece of a box, in its place in shared memory.

    Parameters
    ----------
    offset : int
        Of the box in shared memory; a multiple of 128.
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
        Of the box in shared memory, its contiguous dimension last and in bytes.
    address : int
        Of its first byte in global memory.
    pitches : tuple of int
        Bytes there from one to the next along each dimension but the contiguous one.
    """

    part: tuple[slice, ...]
    address: int
    pitches: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(each.stop - each.start for each in self.part)


def addresses(tiled: Tiled, at: list[int]) -> npt.NDArray[np.int64]:
    """Where each 16-byte piece of the box at ``at`` begins in global memory, row by row.

    -1 for one that begins outside the array.
    """
    x = at[0] * tiled.item + np.arange(0, tiled.width, PIECE)
    place = tiled.address + x
    inside = (x >= 0) & (x < tiled.extents[0] * tiled.item)
    for first, extent, stride, count, step in zip(
        at[1:], tiled.extents[1:], tiled.strides[1:], tiled.counts[1:], tiled.steps[1:], strict=True
    ):
        index = (first + np.arange(count) * step).reshape(-1, *(1,) * place.ndim)
        place = place + index * stride
        inside = inside & (index >= 0) & (index < extent)
    return np.asarray(np.where(inside, place, -1).reshape(-1), np.int64)


def sectors_moved(part: Box | None, tiled: Tiled, fills: bool, unit: int = SECTOR) -> int:
    """Sectors that move between a box in shared memory and its array (as an H200 counts them).

    A row of the box moves in pieces, which end where 128 bytes of shared memory do; each piece
    moves the sectors of global memory that it lies in. What is filled outside the array comes as
    sectors too, as many as its bytes in a piece need.

    Parameters
    ----------
    part : Box or None
        What of the box lies in the array; None for nothing.
    tiled : Tiled
    fills : bool
        Whether the rest is filled: it is of a load.
    unit : int
        Bytes that move together in global memory, a multiple of a sector.
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
        begin = begin[..., None] + np.arange(extent) * pitch
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
    """How many sectors those bytes of each row of a box come as, if all of them are filled."""
    low, high = _cut(tiled, counts, start, stop)
    return np.asarray((-(-(high - low) // SECTOR)).sum(axis=-1), np.int64)


def _cut(
    tiled: Tiled, counts: tuple[int, ...], start: int, stop: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Cut bytes of each row of a box where 128 bytes of shared memory end.

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
    """The part of the box at ``at`` that lies in the array; None where there is none.

    Parameters
    ----------
    to_piece : bool
        Whether a row of the array goes on to the end of its last 16 bytes.
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
