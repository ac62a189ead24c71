"""Tensor maps in the emulator's own encoding.

The driver's 128 bytes (CUDA driver API, ``cuTensorMapEncodeTiled``) are opaque; these hold the
same, for the emulator's bulk copies alone.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache

from tilewise.places import ITEM_SIZES, Dim3, TensorMap

BYTES = 128
ALIGNMENT = 64  # of the map itself (PTX ISA 5.5.8)
PIECE = 16  # bytes: what a bulk copy moves at once, and a swizzle keeps together
_MARK = b"tilewise.tensor"
# The mark; address, extents and strides; element, width and rows of the box, all of them bytes
# but the extents and the rows.
_LAYOUT = struct.Struct("<16s6Q3I")
_PROMOTIONS = (0, 64, 128, 256)
_LARGEST_EXTENT, _LARGEST_STRIDE, _MOST = 2**32, 2**40, 256


@dataclass(frozen=True)
class Tiled:
    """What a tensor map says.

    Attributes
    ----------
    address : int
        Of the first element.
    item : int
        Bytes of an element.
    extents : (int, int, int)
        Elements along the contiguous dimension, along the other, and matrices.
    strides : (int, int)
        Bytes, as :class:`tilewise.launch.TensorMap` has them.
    width : int
        Bytes of a row of the box; where it is one of :data:`tilewise.places.SWIZZLES`, those over
        which it is swizzled.
    rows : int
        Of the box.
    """

    address: int
    item: int
    extents: Dim3
    strides: tuple[int, int]
    width: int
    rows: int


def encode(x: TensorMap, address: int) -> bytes:
    """The 128 bytes of a tensor map.

    Parameters
    ----------
    x : TensorMap
    address : int
        Of its first element, in the emulator's memory.

    Raises
    ------
    ValueError
        If the driver would refuse it.
    """
    item = ITEM_SIZES.get(x.dtype, 0)
    width, rows = x.box[0] * item, x.box[1]
    for is_right, words in (
        (item, f"a dtype of {', '.join(ITEM_SIZES)}"),
        (
            width % PIECE == 0 and 1 <= x.box[0] <= _MOST,
            f"a box of 1 to {_MOST} columns, a multiple of {PIECE} bytes",
        ),
        (1 <= rows <= _MOST, f"a box of 1 to {_MOST} rows"),
        (x.promotion in _PROMOTIONS, f"a promotion of {', '.join(map(str, _PROMOTIONS))} bytes"),
        (all(1 <= n <= _LARGEST_EXTENT for n in x.extents), "extents of 1 to 2**32"),
        (
            all(s % PIECE == 0 and 0 <= s < _LARGEST_STRIDE for s in x.strides),
            f"strides that are multiples of {PIECE} bytes, below 2**40",
        ),
        (address % PIECE == 0, f"an address that is a multiple of {PIECE}"),
    ):
        if not is_right:
            raise ValueError(f"there is no tensor map {x} at {address:#x}: it takes {words}")
    data = _LAYOUT.pack(_MARK, address, *x.extents, *x.strides, item, width, rows)
    return data.ljust(BYTES, b"\0")


@lru_cache(maxsize=256)
def decode(data: bytes) -> Tiled | None:
    """What :func:`encode` made; None of other bytes."""
    mark, address, x, y, z, pitch, step, item, width, rows = _LAYOUT.unpack_from(data)
    if mark.rstrip(b"\0") != _MARK:
        return None
    return Tiled(address, item, (x, y, z), (pitch, step), width, rows)
