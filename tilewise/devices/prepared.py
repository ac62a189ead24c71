"""A launch as the driver takes it: made once, and again with other addresses."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from tilewise.compiler import Compiled
from tilewise.devices.arguments import TENSOR_MAP_BYTES, bind_later
from tilewise.devices.cuda import Context
from tilewise.devices.placement import Values
from tilewise.launch import ITEM_SIZES, SWIZZLES, Launch, Packed, TensorMap

# Where a tensor map has the address. CUtensorMap is opaque: this is tried before it is relied on.
_ADDRESS_BYTES = 8
_TRIED_ADDRESSES = (0x2_0000_0000, 0x5A5A_A5A5_5A50)

_TYPES = {
    "float16": "FLOAT16", "bfloat16": "BFLOAT16", "float32": "FLOAT32", "float64": "FLOAT64",
}  # fmt: skip
_PROMOTIONS = {0: "NONE", 64: "L2_64B", 128: "L2_128B", 256: "L2_256B"}


class Ready:
    """A launch that lacks nothing but the stream.

    Parameters
    ----------
    context : Context
    function : CUfunction
    launch : Launch
        Without its arguments.
    values : Values
    """

    def __init__(self, context: Context, function: Any, launch: Launch, values: Values) -> None:
        self._context = context
        self._values = values  # keeps them alive
        self._function = function
        driver = context.driver
        self._configuration = configuration = driver.CUlaunchConfig()
        configuration.gridDimX, configuration.gridDimY, configuration.gridDimZ = launch.grid
        configuration.blockDimX, configuration.blockDimY, configuration.blockDimZ = launch.block
        configuration.sharedMemBytes = launch.shared
        if launch.overlap:
            attribute = driver.CUlaunchAttribute()
            kinds = driver.CUlaunchAttributeID
            attribute.id = kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            configuration.attrs, configuration.numAttrs = [attribute], 1

    def enqueue(self, stream: Any) -> None:
        """Launch on a stream, by the driver's handle; the context being current.

        Raises
        ------
        LaunchError
            If the driver refuses.
        """
        # Not by cuda.core.launch, which takes no structures.
        self._configuration.hStream = stream
        (status,) = self._context.driver.cuLaunchKernelEx(
            self._configuration, self._function, self._values.address, 0
        )
        if status:
            raise self._context.error(status, "cuLaunchKernelEx")


class Prepared:
    """A launch of one kernel that has been checked, to be made with addresses that come later.

    Parameters
    ----------
    context : Context
        The current one.
    compiled : Compiled
    function : CUfunction
        Of ``compiled``.
    launch : Launch

    Raises
    ------
    TypeError, ValueError
        If the arguments don't fit the parameters, or the driver takes no such tensor map.
    """

    def __init__(self, context: Context, compiled: Compiled, function: Any, launch: Launch) -> None:
        bound = bind_later(compiled.name, compiled.parameters, launch.args)
        data = [bytearray(packed.data) for packed in bound]
        anew = []
        for i, offset, x in _maps(launch.args):
            template = _template(context, x)
            if template is None:
                anew.append((i, offset, x))
            else:
                data[i][offset : offset + TENSOR_MAP_BYTES] = template
        values = Values([bytes(value) for value in data])
        self._words = values.words
        self._slots = tuple(
            (values.first[i] + offset // 8, place.array, place.offset)
            for i, packed in enumerate(bound)
            for offset, place in packed.places
        )
        self._context = context
        self._encoded_anew = tuple((values.first[i] + offset // 8, x) for i, offset, x in anew)
        self._ready = Ready(context, function, launch, values)
        # The driver copies the values before it returns; until then they are one call's own.
        self._lock = threading.Lock()

    def enqueue(self, stream: int, addresses: Sequence[int]) -> None:
        """Launch with arrays that begin at ``addresses``; the context being current.

        Raises
        ------
        LaunchError
            If the driver refuses.
        ValueError
            If it takes no tensor map at such an address.
        """
        with self._lock:
            for word, array, offset in self._slots:
                self._words[word] = addresses[array] + offset
            for word, x in self._encoded_anew:
                encoded = encode(self._context, x, x.place.address(addresses))
                ctypes.memmove(ctypes.addressof(self._words) + 8 * word, encoded, len(encoded))
            self._ready.enqueue(stream)


def encode(context: Context, x: TensorMap, address: int) -> bytes:
    """The 128 bytes of a tensor map (CUDA driver API, ``cuTensorMapEncodeTiled``).

    Raises
    ------
    ValueError
        If there is none such, or the driver refuses it.
    """
    driver = context.driver
    width = x.box[0] * ITEM_SIZES.get(x.dtype, 0)
    if x.dtype not in _TYPES or x.promotion not in _PROMOTIONS:
        raise ValueError(
            f"there is no tensor map {x}: it takes one of {', '.join(_TYPES)}, and a promotion of "
            f"{', '.join(map(str, _PROMOTIONS))} bytes"
        )
    swizzle = f"{width}B" if width in SWIZZLES else "NONE"
    status, encoded = driver.cuTensorMapEncodeTiled(
        getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_TYPES[x.dtype]}"),
        3,
        address,
        [driver.cuuint64_t(extent) for extent in x.extents],
        [driver.cuuint64_t(stride) for stride in x.strides],
        [driver.cuuint32_t(side) for side in (*x.box, 1)],
        [driver.cuuint32_t(1)] * 3,
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzle}"),
        getattr(
            driver.CUtensorMapL2promotion,
            f"CU_TENSOR_MAP_L2_PROMOTION_{_PROMOTIONS[x.promotion]}",
        ),
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if status != driver.CUresult.CUDA_SUCCESS:
        raise ValueError(f"the driver takes no tensor map {x} at {address:#x}: {status.name}")
    return ctypes.string_at(int(encoded.getPtr()), TENSOR_MAP_BYTES)


def _maps(args: Sequence[Any]) -> Iterator[tuple[int, int, TensorMap]]:
    """Each tensor map: the argument that it is or is in, and its offset there."""
    for i, argument in enumerate(args):
        if isinstance(argument, TensorMap):
            yield i, 0, argument
        elif isinstance(argument, Packed):
            for offset, x in argument.maps:
                yield i, offset, x


def _template(context: Context, x: TensorMap) -> bytes | None:
    """The map with an address to be written over; None where that does not give another's."""
    maps = [encode(context, x, address) for address in _TRIED_ADDRESSES]
    is_found = all(
        int.from_bytes(found[:_ADDRESS_BYTES], "little") == address
        for found, address in zip(maps, _TRIED_ADDRESSES, strict=True)
    )
    first, second = (found[_ADDRESS_BYTES:] for found in maps)
    return maps[0] if is_found and first == second else None
