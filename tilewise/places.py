"""Addresses in a launch's arguments that are known only when the launch is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

Dim3 = tuple[int, int, int]


class Place(NamedTuple):
    """An address within one of a launch's arrays, known only when the launch is made.

    Attributes
    ----------
    array : int
        The index of the array, from 0.
    offset : int
        The bytes from the array's first element; at least 0.
    """

    array: int
    offset: int = 0

    def address(self, addresses: Sequence[int]) -> int:
        """Return the address, given that the arrays begin at ``addresses``."""
        return addresses[self.array] + self.offset

    def moved(self, to: Mapping[int, Place]) -> Place:
        """Return the same place for arrays that begin elsewhere; ``to`` has the places by array."""
        found = to.get(self.array)
        return self if found is None else Place(found.array, found.offset + self.offset)


SWIZZLES = (32, 64, 128)  # bytes over which the pieces of a box may be swizzled


ITEM_SIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
"""The bytes of an element, by the dtypes of matrices."""


class TensorMap(NamedTuple):
    """A tensor map by value, for bulk copies of boxes of an array (TMA).

    It has one to five dimensions, in the order of the CUDA driver API's ``cuTensorMapEncodeTiled``
    and of PTX's coordinates, with the contiguous one first. The function ``check`` of
    :mod:`tilewise.tensor_map` has the rules for a map.

    Attributes
    ----------
    place : Place
        The place of the first element, at a multiple of 16 bytes.
    dtype : str
        The dtype, one of :data:`tilewise.tensor_map.ITEM_SIZES`.
    extents : tuple of int
        The elements along each dimension.
    strides : tuple of int
        The bytes from one element to the next along each dimension except the first.
    box : tuple of int
        The elements along each dimension that a copy covers.
    promotion : int
        The least bytes that the L2 cache fetches at once: 0, 64, 128 or 256.
    swizzle : str
        How the box's 16-byte pieces are swizzled in shared memory: ``"none"``, ``"32B"``,
        ``"64B"``, ``"128B"``; or ``"128B_ATOM_32B"``, ``"128B_ATOM_32B_FLIP_8B"`` and
        ``"128B_ATOM_64B"``, which compute capability 10.0 has.
    element_strides : tuple of int
        The step between copied elements along each dimension; empty if all are copied.
    fill : str
        The value that a load gives for elements outside the array: ``"zeros"`` or ``"nan"``.
    """

    place: Place
    dtype: str
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    promotion: int = 128
    swizzle: str = "none"
    element_strides: tuple[int, ...] = ()
    fill: str = "zeros"

    @classmethod
    def of_matrices(
        cls,
        place: Place,
        dtype: str,
        extents: Dim3,
        strides: tuple[int, int],
        box: tuple[int, int],
        promotion: int = 128,
    ) -> TensorMap:
        """Return the map of boxes of single matrices of a batch.

        Boxes whose rows are one of :data:`SWIZZLES` bytes are swizzled over that width.

        Parameters
        ----------
        dtype : str
            The dtype, one of :data:`ITEM_SIZES`.
        extents : (int, int, int)
            The elements along the contiguous dimension and along the other, and the matrices.
        strides : (int, int)
            The bytes from one element to the next along the other dimension, and from matrix to
            matrix.
        box : (int, int)
            The columns, a multiple of 16 bytes, and the rows.
        """
        width = box[0] * ITEM_SIZES.get(dtype, 0)
        swizzle = f"{width}B" if width in SWIZZLES else "none"
        return cls(place, dtype, extents, strides, (*box, 1), promotion, swizzle)

    def moved(self, to: Mapping[int, Place]) -> TensorMap:
        """Return the map with its place moved, as :meth:`Place.moved` does."""
        return self._replace(place=self.place.moved(to))


Encode = Callable[[TensorMap, int], bytes]
"""A function that returns the bytes of a tensor map whose first element is at an address."""


class Packed(NamedTuple):
    """A structure by value, with places of addresses and of tensor maps in it.

    Attributes
    ----------
    data : bytes
        The bytes of the whole structure; those in place of an address or a map do not matter.
    places : tuple of (int, Place)
        The offset in ``data`` of each address's 8 bytes, and its place.
    maps : tuple of (int, TensorMap)
        The offset of each tensor map's 128 bytes, and the map.
    """

    data: bytes
    places: tuple[tuple[int, Place], ...] = ()
    maps: tuple[tuple[int, TensorMap], ...] = ()

    def filled(self, addresses: Sequence[int], encode: Encode | None = None) -> bytes | Packed:
        """Return the structure with the addresses of arrays that begin at ``addresses``.

        Without ``encode``, a structure with tensor maps stays as it is.
        """
        if self.maps and encode is None:
            return self
        data = bytearray(self.data)
        for offset, place in self.places:
            data[offset : offset + 8] = place.address(addresses).to_bytes(8, "little")
        if encode is not None:
            for offset, x in self.maps:
                encoded = encode(x, x.place.address(addresses))
                data[offset : offset + len(encoded)] = encoded
        return bytes(data)

    def moved(self, to: Mapping[int, Place]) -> Packed:
        """Return the structure with its places moved, as :meth:`Place.moved` does."""
        places = tuple((at, place.moved(to)) for at, place in self.places)
        return Packed(self.data, places, tuple((at, x.moved(to)) for at, x in self.maps))
