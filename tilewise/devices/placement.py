"""Place a launch's arguments on the GPU, as the driver takes them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewise.devices.arguments import (
    ArrayArgument,
    ScalarArgument,
    described,
)
from tilewise.devices.cuda import Context, GpuArray, Memory, Staged
from tilewise.devices.extents import is_row_contiguous

# DLDeviceType (dlpack.h) of memory that a CUDA kernel can address: device, pinned host, managed.
_DLPACK_CUDA = (2, 3, 13)


class Values:
    """The values of a kernel's parameters.

    Parameters
    ----------
    data : sequence of bytes
        The bytes of each parameter, in order.

    Attributes
    ----------
    words : ctypes array of c_uint64
        Each value in turn, which starts at a whole word, and then a pointer to each.
    first : sequence of int
        The word at which each value begins.
    address : int
        The address of an array of pointers, one to each value; 0 if there are none.
    """

    def __init__(self, data: Sequence[bytes]) -> None:
        words, first = 0, []
        padded = []
        for value in data:
            first.append(words)
            length = -(-len(value) // 8)
            words += length
            padded.append(value.ljust(8 * length, b"\0"))
        self._place(b"".join(padded), first)

    @classmethod
    def of_words(cls, data: bytes, first: Sequence[int]) -> Values:
        """Return the values that are in whole words already; ``first`` is the attribute's value."""
        made = cls.__new__(cls)
        made._place(data, first)
        return made

    def _place(self, data: bytes, first: Sequence[int]) -> None:
        words, count = len(data) // 8, len(first)
        self.first = first
        # The pointers stand behind the values.
        self.words = (ctypes.c_uint64 * (words + count)).from_buffer_copy(data + bytes(8 * count))
        begin = ctypes.addressof(self.words)
        self.words[words:] = [begin + 8 * each for each in first]
        self.address = begin + 8 * words if count else 0


class Placed:
    """Arguments whose arrays are on the GPU: NumPy arrays are copied there, others stay in place.

    Parameters
    ----------
    context : Context
        The current context.
    kernel : str
        The kernel's name, for the messages.
    arguments : sequence of ScalarArgument or ArrayArgument

    Attributes
    ----------
    values : Values

    Raises
    ------
    TypeError, ValueError
        If an array lies on no GPU, on another one, or is not row-contiguous.
    MemoryError
        If the GPU has not enough memory.
    """

    def __init__(
        self,
        context: Context,
        kernel: str,
        arguments: Sequence[ScalarArgument | ArrayArgument],
    ) -> None:
        # Other libraries' arrays first: a refusal should not wait for the copies.
        views = {
            index: _Place(context, f"{kernel}, argument {index}", argument.value)
            for index, argument in enumerate(arguments)
            if isinstance(argument, ArrayArgument) and not isinstance(argument.value, np.ndarray)
        }
        if views:
            # Their producers may still be at work on other streams.
            context.synchronize()
        self._views = views  # keeps the arrays alive
        self._staged = Staged(
            context,
            [
                argument.value
                for index, argument in enumerate(arguments)
                if isinstance(argument, ArrayArgument) and index not in views
            ],
        )
        self._context = context
        self._kept: list[Memory] = []
        copies = iter(self._staged.addresses)
        data = []
        for i, argument in enumerate(arguments):
            if isinstance(argument, ScalarArgument):
                data.append(argument.data)
                continue
            address = views[i].pointer if i in views else next(copies)
            try:
                data.append(argument.data(address, context.tensor_maps.encode, self._keep))
            except ValueError as error:
                raise ValueError(f"{kernel}, argument {i}: {error}") from None
        self.values = Values(data)

    def _keep(self, data: bytes) -> int:
        """Copy bytes to the GPU, where they stay as long as this does."""
        memory = self._context.allocate(len(data))
        self._kept.append(memory)
        self._context.upload(memory.address, np.frombuffer(data, np.uint8))
        return memory.address

    def download(self) -> None:
        """Copy back the NumPy arrays that can be written."""
        self._staged.download()


class _Place:
    """The address of an array of this or another library on this GPU."""

    def __init__(self, context: Context, where: str, value: Any) -> None:
        if isinstance(value, GpuArray):
            self._owner: Any = value
            self.pointer = value.pointer
            ordinal = value.context.ordinal
        else:
            view = _view(context, where, value)
            self._owner = view
            self.pointer = int(view.ptr)
            ordinal = view.device_id
        # cuda.core gives -1 for memory that lies on the host and that the GPU can reach.
        if ordinal not in (context.ordinal, -1):
            raise ValueError(
                f"{where}: {described(value)} lies on GPU {ordinal}; this is GPU {context.ordinal}"
            )


def _view(context: Context, where: str, value: Any) -> Any:
    if hasattr(value, "__dlpack_device__"):
        if int(value.__dlpack_device__()[0]) not in _DLPACK_CUDA:
            raise TypeError(f"{where}: {described(value)} lies on no GPU of NVIDIA's")
    elif not hasattr(type(value), "__cuda_array_interface__"):
        raise TypeError(f"{where}: {described(value)} lies on another device; pass NumPy's")
    try:
        view = context.core.utils.StridedMemoryView.from_any_interface(value, stream_ptr=-1)
        strides = view.strides
    except Exception as error:  # whatever the array's own library raises
        raise TypeError(f"{where}: {described(value)} can't be used: {error}") from error
    if strides is not None and not is_row_contiguous(view.shape, strides, 1):
        raise ValueError(
            f"{where}: {described(value)} is not row-contiguous: its strides are "
            f"{tuple(strides)} elements; pass a contiguous copy"
        )
    return view
