"""The streams, events, device memory and pinned buffers of one product from the host's memory.

The GPU can copy from and to pinned memory by itself, and the host goes on meanwhile. Data in other
memory go through pinned buffers. Pinning a buffer takes the system longer than copying it, so
buffers are kept from product to product (:mod:`tilewise.host.staging`).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tilewise.devices.cuda import Context, Memory
from tilewise.devices.gpu import Gpu
from tilewise.devices.prepared import Prepared
from tilewise.errors import LaunchError

Bytes = npt.NDArray[np.uint8]

BUFFER, LEAST_BUFFER = 32 << 20, 1 << 20
"""The most bytes of a buffer, with which the link reaches its full speed, and the least bytes."""
KEPT = 1 / 64
"""The most of the GPU's memory that an idle channel keeps, as a share of all of it."""
_PAGE = 4096


class Kind(IntEnum):
    """The purposes of a channel's streams, which all run side by side."""

    INWARD = 0
    OUTWARD = 1
    COMPUTE = 2


Stream = tuple[Kind, int]
"""The kind of a stream and its index, since there may be several of a kind."""
Shape = tuple[int, int]
"""The number of lines, and the bytes of each."""


class Buffer:
    """A piece of pinned memory.

    Attributes
    ----------
    memory : array of bytes
    event : Event or None
        The event recorded after the last copy from or to the buffer.
    """

    def __init__(self, memory: Bytes) -> None:
        self.memory = memory
        self.event: Any = None


class Channel(Protocol):
    """The interface to a GPU that carries out the steps of a plan, one product at a time."""

    def allocate(self, size: int) -> int:
        """Return the address of ``size`` bytes of the GPU's memory, valid until :meth:`release`."""
        ...

    def drain(self) -> None:
        """Wait until all streams have finished their work."""
        ...

    def release(self) -> None:
        """Free what was allocated; no stream may use it any more."""
        ...

    def stream(self, kind: Kind, index: int) -> Stream:
        """Return the stream of a kind with an index."""
        ...

    def buffer(self, kind: Kind, index: int, size: int) -> Buffer:
        """Return the buffer with an index for copies in this direction, at least ``size`` bytes
        large.
        """
        ...

    def is_pinned(self, buffer: Buffer) -> bool:
        """Return whether the GPU can copy from and to a buffer."""
        ...

    def pin(self, buffer: Buffer) -> None:
        """Let the GPU copy from and to a buffer."""
        ...

    def record(self, stream: Stream) -> Any:
        """Return an event that comes when the stream has finished its work so far."""
        ...

    def wait(self, stream: Stream, event: Any) -> None:
        """Make the later work of a stream wait for an event."""
        ...

    def finish(self, event: Any) -> None:
        """Wait until the event has come."""
        ...

    def settle(self, stream: Stream) -> None:
        """Wait until a stream has finished its work, without giving up the core."""
        ...

    def copy_in(
        self, stream: Stream, address: int, pitch: int, host: int, host_pitch: int, shape: Shape
    ) -> None:
        """Copy lines from the host's memory to the GPU's.

        From memory that is not pinned, the call returns when the driver has staged it.
        """
        ...

    def copy_out(
        self, stream: Stream, address: int, pitch: int, host: int, host_pitch: int, shape: Shape
    ) -> None:
        """Copy lines from the GPU's memory to the host's.

        To memory that is not pinned, the call returns when they are there.
        """
        ...

    def launch(
        self, launches: Sequence[Prepared], stream: Stream, addresses: Sequence[int]
    ) -> None:
        """Launch a plan's kernels."""
        ...


@contextmanager
def released(channel: Channel) -> Iterator[None]:
    """Release the channel's memory at the end; after an error, wait first for what it has begun."""
    try:
        yield
    except BaseException:
        with suppress(LaunchError, MemoryError):  # the first error is the one to report
            channel.drain()
        raise
    finally:
        channel.release()


class _Event:
    """A CUDA event that goes back to its pool when nothing refers to it any more.

    A stream that waits for an event waits for what had been recorded when the wait was enqueued,
    even if the event is recorded anew meanwhile (CUDA Driver API, ``cuStreamWaitEvent``).
    """

    __slots__ = ("_pool", "handle")

    def __init__(self, handle: Any, pool: _EventPool) -> None:
        self.handle, self._pool = handle, pool

    def __del__(self) -> None:
        self._pool.give_back(self.handle)


class _EventPool:
    """A pool of CUDA events that are not in use.

    Parameters
    ----------
    context : Context
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._handles: list[Any] = []
        self._is_open = True
        flags = context.driver.CUevent_flags
        self._flags = flags.CU_EVENT_DISABLE_TIMING | flags.CU_EVENT_BLOCKING_SYNC

    def take(self) -> _Event:
        """Return an event that nothing refers to, or a new one."""
        try:
            handle = self._handles.pop()
        except IndexError:
            handle = self._context.call("cuEventCreate", self._flags)
        return _Event(handle, self)

    def give_back(self, handle: Any) -> None:
        """Keep an event for :meth:`take`, or destroy it if the pool is closed."""
        if self._is_open:
            self._handles.append(handle)
        elif not self._context.lost and self._context.is_of_this_process:
            with self._context.current():
                self._context.driver.cuEventDestroy(handle)

    def close(self) -> None:
        """Destroy the events; those in use are destroyed when they are given back."""
        self._is_open = False
        while self._handles:
            self.give_back(self._handles.pop())


class _PinnedBuffer(Buffer):
    """A buffer that is pinned just before the GPU uses it.

    Pages that were written before are pinned several times faster than new ones, and several
    threads write the pages of a copy to the GPU first.
    """

    def __init__(self, context: Context, size: int) -> None:
        space = np.empty(size + _PAGE, np.uint8)
        ahead = -space.ctypes.data % _PAGE
        super().__init__(space[ahead : ahead + size])
        self._context = context
        self._unpin: weakref.finalize[Any, _PinnedBuffer] | None = None

    @property
    def is_pinned(self) -> bool:
        return self._unpin is not None

    def pin(self) -> None:
        """Pin the memory if it is not pinned yet."""
        if self._unpin is not None:
            return
        address = self.memory.ctypes.data
        portable = self._context.driver.CU_MEMHOSTREGISTER_PORTABLE
        # The finalizer is registered before the memory is pinned, so that Ctrl-C, which may be
        # raised as the driver returns, can't leave it pinned.
        self._unpin = weakref.finalize(self, _unpin, self._context, address, self.memory)
        self._unpin.atexit = False
        try:
            self._context.call("cuMemHostRegister", address, self.memory.size, portable)
        except Exception:  # the driver refused
            self._unpin.detach()
            self._unpin = None
            raise
        except BaseException:
            self.free()
            raise

    def free(self) -> None:
        """Unpin the memory if it is pinned."""
        if self._unpin is not None:
            self._unpin()
            self._unpin = None


def _unpin(context: Context, address: int, memory: Bytes) -> None:
    """Unpin memory, which the argument keeps alive; the driver refuses if it is not pinned."""
    if not context.lost and context.is_of_this_process:
        with context.current():
            context.driver.cuMemHostUnregister(address)


class GpuChannel:
    """The channel of a GPU, whose methods need the GPU's context to be current.

    Parameters
    ----------
    gpu : Gpu
    """

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self._context = gpu.context
        self._driver = gpu.context.driver
        self._buffers: dict[tuple[Kind, int], _PinnedBuffer] = {}
        self._streams: dict[Stream, Any] = {}
        self._handles: dict[Stream, int] = {}
        self._memory: Memory | None = None
        self._events = _EventPool(self._context)

    @property
    def pinned(self) -> int:
        """The bytes of pinned memory that the channel keeps."""
        return sum(x.memory.size for x in self._buffers.values() if x.is_pinned)

    def allocate(self, size: int) -> int:
        if self._memory is None or self._memory.size < size:
            self._memory = None  # freed before more is allocated
            self._memory = Memory(self._context, size)
        return self._memory.address

    def drain(self) -> None:
        for stream in self._streams.values():
            self._call("cuStreamSynchronize", stream)

    def release(self, most: int | None = None) -> None:
        if most is None:
            most = int(KEPT * self.gpu.memory)
        if self._memory is not None and self._memory.size > most:
            self._memory = None

    def close(self) -> None:
        """Free everything; the channel can't be used afterwards."""
        self._memory = None
        for buffer in self._buffers.values():
            buffer.free()
        self._buffers.clear()
        for stream in self._streams.values():
            self._driver.cuStreamDestroy(stream)
        self._streams.clear()
        self._events.close()

    def stream(self, kind: Kind, index: int) -> Stream:
        stream = kind, index
        if stream not in self._streams:
            flags = self._driver.CUstream_flags.CU_STREAM_NON_BLOCKING
            made = self._call("cuStreamCreate", flags)
            self._handles[stream] = int(made)
            self._streams[stream] = made
        return stream

    def buffer(self, kind: Kind, index: int, size: int) -> Buffer:
        key = kind, index
        buffer = self._buffers.get(key)
        if buffer is None or buffer.memory.size < size:
            if buffer is not None:
                buffer.free()
            buffer = self._buffers[key] = _PinnedBuffer(self._context, size)
        return buffer

    def is_pinned(self, buffer: Buffer) -> bool:
        assert isinstance(buffer, _PinnedBuffer)
        return buffer.is_pinned

    def pin(self, buffer: Buffer) -> None:
        assert isinstance(buffer, _PinnedBuffer)
        buffer.pin()

    def record(self, stream: Stream) -> _Event:
        event = self._events.take()
        self._call("cuEventRecord", event.handle, self._streams[stream])
        return event

    def wait(self, stream: Stream, event: _Event) -> None:
        self._call("cuStreamWaitEvent", self._streams[stream], event.handle, 0)

    def finish(self, event: _Event) -> None:
        self._call("cuEventSynchronize", event.handle)

    def settle(self, stream: Stream) -> None:
        self._call("cuStreamSynchronize", self._streams[stream])

    def copy_in(
        self, stream: Stream, address: int, pitch: int, host: int, host_pitch: int, shape: Shape
    ) -> None:
        lines, width = shape
        if lines == 1:
            self._call("cuMemcpyHtoDAsync", address, host, width, self._streams[stream])
            return
        copy = self._copy(lines, width)
        kinds = self._driver.CUmemorytype
        copy.srcMemoryType, copy.srcHost, copy.srcPitch = kinds.CU_MEMORYTYPE_HOST, host, host_pitch
        copy.dstMemoryType = kinds.CU_MEMORYTYPE_DEVICE
        copy.dstDevice, copy.dstPitch = address, pitch
        self._call("cuMemcpy2DAsync", copy, self._streams[stream])

    def copy_out(
        self, stream: Stream, address: int, pitch: int, host: int, host_pitch: int, shape: Shape
    ) -> None:
        lines, width = shape
        if lines == 1:  # one line, as what lies between the host's lines must not change
            self._call("cuMemcpyDtoHAsync", host, address, width, self._streams[stream])
            return
        copy = self._copy(lines, width)
        kinds = self._driver.CUmemorytype
        copy.srcMemoryType = kinds.CU_MEMORYTYPE_DEVICE
        copy.srcDevice, copy.srcPitch = address, pitch
        copy.dstMemoryType, copy.dstHost, copy.dstPitch = kinds.CU_MEMORYTYPE_HOST, host, host_pitch
        self._call("cuMemcpy2DAsync", copy, self._streams[stream])

    def launch(
        self, launches: Sequence[Prepared], stream: Stream, addresses: Sequence[int]
    ) -> None:
        for prepared in launches:
            prepared.enqueue(self._handles[stream], addresses)

    def _copy(self, lines: int, width: int) -> Any:
        copy = self._driver.CUDA_MEMCPY2D()
        copy.WidthInBytes, copy.Height = width, lines
        return copy

    def _call(self, function: str, *args: Any) -> Any:
        return self._context.call(function, *args)
