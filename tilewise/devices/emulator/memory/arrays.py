"""Arrays in the emulator's global memory."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices import virtual
from tilewise.devices.emulator.memory.global_memory import (
    OUTSIDE,
    UNWRITTEN,
    WRITTEN,
    Allocation,
    GlobalMemory,
)
from tilewise.devices.emulator.memory.storage import Bytes
from tilewise.devices.extents import extent, span


def _gaps(host: npt.NDArray[Any]) -> Bytes | None:
    """Return the states of the bytes of a pitched view; None if it has no gaps."""
    begin, end = extent(host)
    if end - begin == host.nbytes:
        return None
    state = np.full(end - begin, OUTSIDE, np.uint8)
    item = host.itemsize
    rows = np.lib.stride_tricks.as_strided(
        state, (*host.shape, item), (*host.strides, 1), writeable=True
    )
    rows[...] = WRITTEN
    return state


def allocate(
    host: npt.NDArray[Any], memory: GlobalMemory, name: str, base: int | None = None
) -> Allocation:
    """Allocate a row-contiguous array's bytes, at an address that was reserved or at a new one."""
    data = span(host)
    pitches = host.strides if host.ndim else (host.itemsize,)
    if base is None:
        base = memory.reserve(len(data))
    allocation = Allocation(base, len(data), name, host.dtype, pitches, _gaps(host))
    allocation.data[: len(data)] = data
    return allocation


def allocate_together(
    hosts: Sequence[npt.NDArray[Any]], memory: GlobalMemory, name: str
) -> Allocation:
    """Allocate one piece of memory for arrays that overlap, and copy their bytes to it.

    Findings show indices of the array that begins first. Bytes that belong to none of the arrays,
    such as those between the rows of a view, are out of bounds.
    """
    extents = [extent(host) for host in hosts]
    begin, end = min(extents)[0], max(last for _, last in extents)
    first = hosts[extents.index(min(extents))]
    state = np.full(end - begin, OUTSIDE, np.uint8)
    data = np.zeros(end - begin, np.uint8)
    for host, (start, stop) in zip(hosts, extents, strict=True):
        here, gaps = slice(start - begin, stop - begin), _gaps(host)
        data[here] = span(host)
        state[here] = WRITTEN if gaps is None else np.where(gaps == WRITTEN, WRITTEN, state[here])
    has_gaps = bool((state == OUTSIDE).any())
    allocation = Allocation(
        memory.reserve(len(data)), len(data), name, first.dtype, first.strides,
        state if has_gaps else None,
    )  # fmt: skip
    allocation.data[: len(data)] = data
    return allocation


class EmulatorArray:
    """An array in the emulator's memory.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy dtype
    strides : tuple of int
        Bytes.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        strides: tuple[int, ...],
        allocation: Allocation,
        memory: GlobalMemory,
    ) -> None:
        self.shape, self.dtype, self.strides = shape, dtype, strides
        self.allocation, self._memory = allocation, memory
        memory.add(allocation)
        weakref.finalize(self, memory.release, allocation).atexit = False

    @property
    def pointer(self) -> int:
        """The address of the first element, for kernels on this emulator."""
        return self.allocation.base

    @classmethod
    def of(cls, host: npt.NDArray[Any], memory: GlobalMemory) -> EmulatorArray:
        allocation = allocate(host, memory, "array")
        return cls(host.shape, host.dtype, host.strides, allocation, memory)

    @classmethod
    def unwritten(
        cls, shape: tuple[int, ...], dtype: np.dtype[Any], memory: GlobalMemory
    ) -> EmulatorArray:
        array = cls.zeros(shape, dtype, memory, is_written=True)
        # UNWRITTEN is 0.
        array.allocation.state = virtual.zeros(len(array.allocation.data), np.uint8)
        return array

    @classmethod
    def zeros(
        cls,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        memory: GlobalMemory,
        is_written: bool = False,
    ) -> EmulatorArray:
        """Return an array of zeros: the machine gives memory only to pages that are touched."""
        size = dtype.itemsize
        strides = tuple(size * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        total = size * math.prod(shape)
        allocation = Allocation(
            memory.reserve(total), total, "array", dtype, strides or (size,), None, is_written
        )
        return cls(shape, dtype, strides, allocation, memory)

    @classmethod
    def accept(cls, value: Any, memory: GlobalMemory) -> None:
        """
        Raises
        ------
        TypeError
            If ``value`` is an array of another device, or of an emulator with another memory.
        """
        if not isinstance(value, (cls, np.ndarray)):
            raise TypeError(
                f"the emulator takes NumPy arrays and its own, not {type(value).__name__}; "
                "copy it to the host first"
            )
        if isinstance(value, cls) and value._memory is not memory:  # its address means others here
            raise TypeError(
                f"an array of shape {value.shape} and dtype {value.dtype} is another emulator's; "
                "make it on the device of the launch, or pass .to_numpy()"
            )

    def unwritten_elements(self) -> npt.NDArray[np.bool_] | None:
        """Return which elements nobody wrote, in whole or in part; None if all have a value.

        Returns
        -------
        ndarray of bool, the array's shape, or None
        """
        state = self.allocation.state
        if state is None:
            return None
        item = self.dtype.itemsize
        written = np.ndarray(
            (*self.shape, item), np.uint8, state[: self.allocation.size].tobytes(), 0,
            (*self.strides, 1),
        )  # fmt: skip
        return np.asarray((written == UNWRITTEN).any(axis=-1))

    def to_numpy(self) -> npt.NDArray[Any]:
        """Return a copy on the host."""
        data = self.allocation.data[: self.allocation.size]
        view = np.ndarray(self.shape, self.dtype, data.tobytes(), 0, self.strides)
        return view.copy()
