"""Make tensor maps with the driver, and copies of them with other addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from tilewise.devices.arguments import TENSOR_MAP_BYTES
from tilewise.places import TensorMap
from tilewise.tensor_map import check, fits

TEMPLATES = 4096  # maps that are remembered

ADDRESS_BYTES = 8
"""The number of first bytes in which a map has its address. CUtensorMap is opaque, so this is
tested before it is relied on.
"""
_TRIED_ADDRESSES = (0x2_0000_0000, 0x5A5A_A5A5_5A50)


@dataclass(slots=True)
class _Kind:
    """The facts that maps share if they differ only by their places, extents and strides.

    Attributes
    ----------
    dtype : CUtensorMapDataType
    tail : tuple
        The driver's arguments after the strides.
    is_patched : bool or None
        Whether writing over the address of one map gives another's map; None until that is tested.
    """

    dtype: Any
    tail: tuple[Any, ...]
    is_patched: bool | None = None


class TensorMaps:
    """Make tensor maps (CUDA driver API, ``cuTensorMapEncodeTiled``).

    Parameters
    ----------
    driver : module
        The module ``cuda.bindings.driver``.
    """

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._long, self._encode_tiled = driver.cuuint64_t, driver.cuTensorMapEncodeTiled
        self._kinds: dict[Hashable, _Kind] = {}
        self._templates: dict[Hashable, bytes] = {}

    def encode(self, x: TensorMap, address: int) -> bytes:
        """Return the 128 bytes of a map whose first element is at an address.

        Raises
        ------
        ValueError
            If there is none such, or the driver refuses it.
        """
        return self._encode(self._kind(x), x, address)

    def template(self, x: TensorMap) -> bytes | None:
        """Return the map whose address is to be written over, or None if that gives no valid map.

        Raises
        ------
        ValueError
            As :meth:`encode`.
        """
        key = x[1:]  # everything but the place: a weight has the same map in many products
        found = self._templates.get(key)
        if found is not None:
            return found
        kind = self._kind(x)
        if kind.is_patched is None:
            kind.is_patched = self._can_be_patched(kind, x)
        if not kind.is_patched:
            return None
        found = self._encode(kind, x, _TRIED_ADDRESSES[0])
        if len(self._templates) >= TEMPLATES:
            self._templates.clear()
        self._templates[key] = found
        return found

    def _can_be_patched(self, kind: _Kind, x: TensorMap) -> bool:
        maps = [self._encode(kind, x, address) for address in _TRIED_ADDRESSES]
        first, second = (found[ADDRESS_BYTES:] for found in maps)
        return first == second and all(
            int.from_bytes(found[:ADDRESS_BYTES], "little") == address
            for found, address in zip(maps, _TRIED_ADDRESSES, strict=True)
        )

    def _encode(self, kind: _Kind, x: TensorMap, address: int) -> bytes:
        if not fits(x, address):
            check(x, address)  # it says what is wrong
        long = self._long
        status, encoded = self._encode_tiled(
            kind.dtype,
            len(x.extents),
            address,
            [long(extent) for extent in x.extents],
            [long(stride) for stride in x.strides or (16,)],  # not read where there are none
            *kind.tail,
        )
        if status:
            status = self._driver.CUresult(status)
            raise ValueError(f"the driver takes no tensor map {x} at {address:#x}: {status.name}")
        return ctypes.string_at(int(encoded.getPtr()), TENSOR_MAP_BYTES)

    def _kind(self, x: TensorMap) -> _Kind:
        key = (x.dtype, *x[4:])  # all but the place, the extents and the strides
        found = self._kinds.get(key)
        if found is None:
            found = self._kinds[key] = self._new_kind(x)
        return found

    def _new_kind(self, x: TensorMap) -> _Kind:
        check(x)
        driver = self._driver
        promotion = f"L2_{x.promotion}B" if x.promotion else "NONE"
        fill = "NAN_REQUEST_ZERO_FMA" if x.fill == "nan" else "NONE"
        swizzle = x.swizzle.upper()
        return _Kind(
            getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{x.dtype.upper()}"),
            (
                [driver.cuuint32_t(side) for side in x.box],
                [driver.cuuint32_t(step) for step in x.element_strides or (1,) * len(x.box)],
                driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
                getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzle}"),
                getattr(driver.CUtensorMapL2promotion, f"CU_TENSOR_MAP_L2_PROMOTION_{promotion}"),
                getattr(driver.CUtensorMapFloatOOBfill, f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{fill}"),
            ),
        )
