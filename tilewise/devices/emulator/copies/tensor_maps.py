"""Tensor maps in the emulator's own encoding.

The driver's 128 bytes (CUDA driver API, ``cuTensorMapEncodeTiled``) are opaque; this encoding holds
the same data, only for the emulator's bulk copies.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache

from tilewise.places import TensorMap
from tilewise.tensor_map import FILLS, ITEM_SIZES, SWIZZLES, check

BYTES = 128
ALIGNMENT = 64  # alignment of the map itself (PTX ISA 5.5.8)
_MARK = b"tilewis"
_TYPES, _SWIZZLES = tuple(ITEM_SIZES), tuple(SWIZZLES)
# Dimensions less one, the mark; the address; the type, the swizzle, the fill; extents, of which 0
# is 2 to the 32nd, strides, the box and its steps. So that one store replaces a field (FIELDS).
_LAYOUT = struct.Struct("<B7sQ3Bx5I4Q5I5B")
_LAST = 5

FIELDS = {
    "rank": (0, 0, "b64"), "global_address": (8, 0, "b64"), "elemtype": (16, 0, "b8"),
    "swizzle_mode": (17, 0, "b8"), "fill_mode": (18, 0, "b8"), "interleave_layout": (19, 0, "b8"),
    "global_dim": (20, 4, "b32"), "global_stride": (40, 8, "b64"), "box_dim": (72, 4, "b32"),
    "element_stride": (92, 1, "b8"),
}  # fmt: skip
"""The fields that ``tensormap.replace`` writes (PTX ISA 9.7.9.28): the offset of the first, the
bytes from one dimension to the next, and the type of a store.
"""

_PTX_TYPES = (
    "uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float32_ftz",
    "float64", "bfloat16", "tfloat32", "tfloat32_ftz",
)  # fmt: skip

_CONVERTED = ("float32_ftz", "tfloat32", "tfloat32_ftz")
"""The types whose elements the hardware changes in transit, in undocumented ways."""


@dataclass(frozen=True)
class Tiled:
    """The contents of a tensor map, with the contiguous dimension first.

    Attributes
    ----------
    address : int
        The address of the first element.
    dtype : str
        The dtype, one of :data:`tilewise.tensor_map.ITEM_SIZES`.
    extents : tuple of int
        The extents in elements.
    strides : tuple of int
        The strides of all dimensions in bytes; the first is an element's.
    box : tuple of int
        The elements that a copy covers.
    steps : tuple of int
        The step between copied elements.
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
        """The bytes of an element."""
        return self.strides[0]

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of elements of a box in shared memory."""
        return tuple(-(-n // step) for n, step in zip(self.box, self.steps, strict=True))

    @property
    def width(self) -> int:
        """The bytes of a row of the box."""
        return self.box[0] * self.item

    @property
    def size(self) -> int:
        """The bytes of the box."""
        size = self.item
        for n in self.counts:
            size *= n
        return size


def encode(x: TensorMap, address: int) -> bytes:
    """Return the 128 bytes of a tensor map.

    Parameters
    ----------
    x : TensorMap
    address : int
        The address of its first element, in the emulator's memory.

    Raises
    ------
    ValueError
        If the driver would refuse it, or the hardware's behaviour is not known.
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
        rank - 1, _MARK, address, _TYPES.index(x.dtype), _SWIZZLES.index(x.swizzle),
        FILLS.index(x.fill), *(n % 2**32 for n in x.extents), *[0] * lacking,
        *x.strides, *[0] * lacking,
        *x.box, *[1] * lacking, *(x.element_strides or (1,) * rank), *[1] * lacking,
    )  # fmt: skip
    return data.ljust(BYTES, b"\0")


@lru_cache(maxsize=256)
def decode(data: bytes) -> Tiled | None:
    """Return what :func:`encode` encoded; None for other bytes."""
    last, mark, address, dtype, swizzle, fill, *rest = _LAYOUT.unpack_from(data)
    if mark != _MARK:
        return None
    parts, at, rank = [], 0, last + 1
    for whole, used in ((_LAST, rank), (_LAST - 1, rank - 1), (_LAST, rank), (_LAST, rank)):
        parts.append(tuple(rest[at : at + used]))
        at += whole
    extents, strides, box, steps = parts
    return Tiled(
        address, _TYPES[dtype], tuple(n or 2**32 for n in extents),
        (ITEM_SIZES[_TYPES[dtype]], *strides), box, steps, _SWIZZLES[swizzle], FILLS[fill],
    )  # fmt: skip


def field(name: str, value: int) -> int | None:
    """Return the stored value of a constant of ``tensormap.replace``; None if it is unknown.

    The number of dimensions, less one as in PTX, is stored with the mark, so a map that was all
    zeros becomes a valid one.
    """
    if name == "rank":
        return int.from_bytes(bytes([value]) + _MARK, "little") if value < _LAST else None
    if name == "elemtype":
        is_known = value < len(_PTX_TYPES) and _PTX_TYPES[value] not in _CONVERTED
        return _TYPES.index(_PTX_TYPES[value]) if is_known else None
    most = {"swizzle_mode": 3, "fill_mode": 1, "interleave_layout": 0}
    return value if value <= most.get(name, value) else None
