"""Prepare a launch for the driver once, and make it again with other addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

from tilewise.compiler import Compiled
from tilewise.devices.arguments import TENSOR_MAP_BYTES
from tilewise.devices.cuda import Context
from tilewise.devices.late_arguments import bind_words
from tilewise.devices.placement import Values
from tilewise.launch import Launch


class Ready:
    """A launch that lacks nothing but the stream.

    Parameters
    ----------
    context : Context
    function : CUfunction
    launch : Launch
        The launch without its arguments.
    values : Values

    Attributes
    ----------
    values : Values
    """

    def __init__(self, context: Context, function: Any, launch: Launch, values: Values) -> None:
        self._context = context
        self.values = values  # they must live as long as this
        self._address = values.address
        self._function = function
        self._launch = context.driver.cuLaunchKernelEx
        self._stream: Any = None  # the one of the configuration
        driver = context.driver
        self._configuration = configuration = driver.CUlaunchConfig()
        configuration.gridDimX, configuration.gridDimY, configuration.gridDimZ = launch.grid
        configuration.blockDimX, configuration.blockDimY, configuration.blockDimZ = launch.block
        configuration.sharedMemBytes = launch.shared
        attributes = []
        if launch.overlap:
            attributes.append(_overlapping(driver))
        if launch.cooperative:
            attributes.append(_cooperative(driver))
        if attributes:
            configuration.attrs, configuration.numAttrs = attributes, len(attributes)

    def enqueue(self, stream: Any) -> None:
        """Launch on a stream, by the driver's handle; the context being current.

        Raises
        ------
        LaunchError
            If the driver refuses.
        """
        # Not by cuda.core.launch, which takes no structures.
        if stream != self._stream:
            self._configuration.hStream = self._stream = stream
        (status,) = self._launch(self._configuration, self._function, self._address, 0)
        if status:
            raise self._context.error(status, "cuLaunchKernelEx")


@cache
def _overlapping(driver: Any) -> Any:
    """Return the attribute of launches that may begin before the one ahead has ended.

    A configuration copies it.
    """
    attribute = driver.CUlaunchAttribute()
    kinds = driver.CUlaunchAttributeID
    attribute.id = kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    return attribute


@cache
def _cooperative(driver: Any) -> Any:
    """Return the attribute of launches whose blocks are all resident at once.

    A configuration copies it.
    """
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    attribute.value.cooperative = 1
    return attribute


class Prepared:
    """A launch of one kernel that has been checked, and gets its addresses later.

    Parameters
    ----------
    context : Context
        The current context.
    compiled : Compiled
    function : CUfunction
        The driver's function of ``compiled``.
    launch : Launch

    Raises
    ------
    TypeError, ValueError
        If the arguments don't fit the parameters, or the driver takes no such tensor map.
    """

    def __init__(self, context: Context, compiled: Compiled, function: Any, launch: Launch) -> None:
        bound = bind_words(compiled.name, compiled.parameters, launch.args)
        data, encoded_anew = bound.data, []
        for word, x in bound.maps:
            template = context.tensor_maps.template(x)
            if template is None:
                encoded_anew.append((word, x))
            else:
                data = data[: 8 * word] + template + data[8 * word + TENSOR_MAP_BYTES :]
        self._context, self._data, self._first = context, data, bound.first
        self._function, self._launch = function, launch
        ready = self._another()
        self._slots = [(word, place.array, place.offset) for word, place in bound.places]
        self._encoded_anew = encoded_anew
        # The driver copies the values before it returns; until then they are one call's own.
        # Taking one from a list and putting it back is atomic, and takes less time than a lock.
        self._free = [ready]

    def _another(self) -> Ready:
        values = Values.of_words(self._data, self._first)
        return Ready(self._context, self._function, self._launch, values)

    def enqueue(self, stream: int, addresses: Sequence[int]) -> None:
        """Launch with arrays that begin at ``addresses``; the context being current.

        Raises
        ------
        LaunchError
            If the driver refuses.
        ValueError
            If it takes no tensor map at such an address.
        """
        try:
            ready = self._free.pop()
        except IndexError:  # other threads use all of them now
            ready = self._another()
        try:
            words = ready.values.words
            for word, array, offset in self._slots:
                words[word] = addresses[array] + offset
            for word, x in self._encoded_anew:
                encoded = self._context.tensor_maps.encode(x, x.place.address(addresses))
                ctypes.memmove(ctypes.addressof(words) + 8 * word, encoded, len(encoded))
            ready.enqueue(stream)
        finally:
            self._free.append(ready)
