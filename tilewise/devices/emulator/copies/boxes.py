"""Boxes of tensor copies: which part of them lies in the array, and where swizzles put it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tilewise.devices.emulator.copies.tensor_maps import Tiled
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
