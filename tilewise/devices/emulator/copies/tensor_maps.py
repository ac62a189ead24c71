"""Tensor maps in the emulator's own encoding.

The driver's 128 bytes (CUDA driver API, ``cuTensorMapEncodeTiled``) are opaque; these hold the
same, for the emulator's bulk copies alone.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache

from tilewise.places import TensorMap
from tilewise.tensor_map import FILLS, ITEM_SIZES, SWIZZLES, check

BYTES = 128
ALIGNMENT = 64  # of the map itself (PTX ISA 5.5.8)
_MARK = b"tilewise"
_TYPES, _SWIZZLES = tuple(ITEM_SIZES), tuple(SWIZZLES)
# The mark; the type, the swizzle, the fill, the dimensions; the address; extents less one, strides,
# the box and its steps.
_LAYOUT = struct.Struct("<8s4BxxxxQ5I4Q5H5B")
_LAST = 5

_CONVERTED = ("float32_ftz", "tfloat32", "tfloat32_ftz")
"""Types whose elements the hardware changes on their way, in ways that are not documented."""


@dataclass(frozen=True)
class Tiled:
    """What a tensor map says. All of it has the contiguous dimension first.

    Attributes
    ----------
    address : int
        Of the first element.
    dtype : str
        One of :data:`tilewise.tensor_map.ITEM_SIZES`.
    extents : tuple of int
        Elements.
    strides : tuple of int
        Bytes, of all dimensions: the first is an element's.
    box : tuple of int
        Elements that a copy goes through.
    steps : tuple of int
        Of how many of them one is copied.
    swizzle : str
    fill : str
    """

    address: int
    dtype: str
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: str
    fill: str

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return self.strides[0]

    @property
    def counts(self) -> tuple[int, ...]:
        """Elements that a box has in shared memory."""
        return tuple(-(-n // step) for n, step in zip(self.box, self.steps, strict=True))

    @property
    def width(self) -> int:
        """Bytes of a row of the box."""
        return self.box[0] * self.item

    @property
    def size(self) -> int:
        """Bytes of the box."""
        size = self.item
        for n in self.counts:
            size *= n
        return size


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
        If the driver would refuse it, or the emulator does not know what the hardware does.
    """
    check(x, address)
    if x.dtype in _CONVERTED:
        raise ValueError(
            f"the emulator has no tensor maps of {x.dtype}: how the hardware converts its elements "
            "is not documented; use float32"
        )
    most = SWIZZLES[x.swizzle]
    if "ATOM" in x.swizzle:
        raise ValueError(
            f"the emulator has no swizzle {x.swizzle!r}, which needs compute capability 10.0"
        )
    width = x.box[0] * ITEM_SIZES[x.dtype]
    if most and width != most:
        raise ValueError(
            f"the emulator has no swizzle {x.swizzle!r} of boxes whose contiguous side is {width} "
            f"bytes: where they lie in shared memory is not documented; use {most} bytes, or "
            "another swizzle"
        )
    rank = len(x.extents)
    lacking = _LAST - rank
    data = _LAYOUT.pack(
        _MARK, _TYPES.index(x.dtype), _SWIZZLES.index(x.swizzle), FILLS.index(x.fill), rank,
        address, *(n - 1 for n in x.extents), *[0] * lacking, *x.strides, *[0] * lacking,
        *x.box, *[1] * lacking, *(x.element_strides or (1,) * rank), *[1] * lacking,
    )  # fmt: skip
    return data.ljust(BYTES, b"\0")


@lru_cache(maxsize=256)
def decode(data: bytes) -> Tiled | None:
    """What :func:`encode` made; None of other bytes."""
    mark, dtype, swizzle, fill, rank, address, *rest = _LAYOUT.unpack_from(data)
    if mark != _MARK:
        return None
    parts, at = [], 0
    for whole, used in ((_LAST, rank), (_LAST - 1, rank - 1), (_LAST, rank), (_LAST, rank)):
        parts.append(tuple(rest[at : at + used]))
        at += whole
    extents, strides, box, steps = parts
    return Tiled(
        address, _TYPES[dtype], tuple(n + 1 for n in extents),
        (ITEM_SIZES[_TYPES[dtype]], *strides), box, steps, _SWIZZLES[swizzle], FILLS[fill],
    )  # fmt: skip
