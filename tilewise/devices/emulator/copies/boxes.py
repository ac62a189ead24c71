"""Boxes of tensor copies: which part of them lies in the matrix, and where swizzles put it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tilewise.devices.emulator.copies.tensor_maps import PIECE, Tiled
from tilewise.devices.emulator.threads.lanes import Index
from tilewise.places import SWIZZLES

_LINE = 128


def swizzled(offset: int, size: int, width: int) -> Index:
    """Where swizzling puts each 16-byte piece of a box, in its place in shared memory.

    Parameters
    ----------
    offset : int
        Of the box in shared memory; a multiple of 128.
    size : int
        Bytes of the box.
    width : int
        Bytes of a row: if 32, 64 or 128, those over which it is swizzled.
    """
    if width not in SWIZZLES:
        return np.arange(size // PIECE)
    return _swizzled(offset // _LINE % 8, size, width)


@lru_cache(maxsize=64)
def _swizzled(line: int, size: int, width: int) -> Index:
    piece = np.arange(size // PIECE, dtype=np.intp)
    return piece ^ ((piece // (_LINE // PIECE) + line) & (width // PIECE - 1))


@dataclass(frozen=True)
class Box:
    """The part of a box that lies in the matrix: bytes of its rows, and rows."""

    left: int
    right: int
    top: int
    bottom: int
    address: int  # of the first of these bytes

    @property
    def shape(self) -> tuple[int, int]:
        return self.bottom - self.top, self.right - self.left


def clipped(tiled: Tiled, at: list[int], to_piece: bool) -> Box | None:
    """The part of the box at ``at`` that lies in the matrix; None where there is none.

    Parameters
    ----------
    to_piece : bool
        Whether a row of the matrix goes on to the end of its last 16 bytes.
    """
    x, (_, y, z) = at[0] * tiled.item, at
    end = tiled.extents[0] * tiled.item
    if to_piece:
        end = -(-end // PIECE) * PIECE
    left, right = max(-x, 0), min(end - x, tiled.width)
    top, bottom = max(-y, 0), min(tiled.extents[1] - y, tiled.rows)
    if left >= right or top >= bottom or not 0 <= z < tiled.extents[2]:
        return None
    pitch, step = tiled.strides
    address = tiled.address + z * step + (y + top) * pitch + x + left
    return Box(left, right, top, bottom, address)
