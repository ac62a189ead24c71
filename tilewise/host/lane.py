"""What one product from the host's memory uses of a GPU: streams, events, and pinned memory.

The GPU copies by itself from and to memory that is pinned, and while it does the host goes on. What
other memory holds goes through pinned chunks. Pinning takes the system longer than copying does,
so that chunks are kept from product to product (:mod:`tilewise.host.staging`).
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tilewise.devices.cuda import Context, Memory
from tilewise.devices.gpu import Gpu
from tilewise.devices.prepared import Prepared

Bytes = npt.NDArray[np.uint8]

CHUNK = 4 << 20
"""Bytes of a chunk: the link is at 0.97 of its speed, and the host copies it in under a ms."""
_PAGE = 4096


class Stream(IntEnum):
    """A lane's streams; each does one thing after the other, and all go on side by side.

    There are two for kernels, so that the last blocks of one product run beside the next one.
    """

    INWARD = 0
    OUTWARD = 1
    COMPUTE = 2
    COMPUTE_TOO = 3


MOST = {Stream.INWARD: 20, Stream.OUTWARD: 12}
"""Chunks of a lane: as many as the copying threads work at, and some that are on their way."""


class Chunk:
    """A piece of pinned memory.

    Attributes
    ----------
    memory : array of bytes
    event : Event or None
        Behind the last copy from or to it.
    """

    def __init__(self, memory: Bytes) -> None:
        self.memory = memory
        self.event: Any = None


class Lane(Protocol):
    """What carries out the steps of a plan, one product at a time."""

    def allocate(self, size: int) -> int:
        """Return the address of so many bytes of the GPU's memory, until :meth:`release`."""
        ...

    def release(self) -> None:
        """Wait for all streams, and free what was allocated."""
        ...

    def chunk(self, stream: Stream) -> Chunk | None:
        """Return another chunk for the copies of a stream; None where it has all it may have."""
        ...

    def record(self, stream: Stream) -> Any:
        """Return an event behind what the stream was given so far."""
        ...

    def wait(self, stream: Stream, event: Any) -> None:
        """Have what a stream is given from now on wait for an event."""
        ...

    def is_done(self, event: Any) -> bool:
        """Whether the event has come."""
        ...

    def finish(self, event: Any) -> None:
        """Wait until the event has come."""
        ...

    def pin(self, chunk: Chunk) -> None:
        """Let the GPU copy from and to a chunk."""
        ...

    def copy_in(self, address: int, pitch: int, host: int, host_pitch: int, shape: Shape) -> None:
        """Copy lines from the host's pinned memory to the GPU's, on the inward stream."""
        ...

    def copy_out(self, address: int, pitch: int, host: int, host_pitch: int, shape: Shape) -> None:
        """Copy lines from the GPU's memory to the host's pinned, on the outward stream."""
        ...

    def launch(
        self, launches: Sequence[Prepared], stream: Stream, addresses: Sequence[int]
    ) -> None:
        """Launch a plan's kernels on a stream."""
        ...


Shape = tuple[int, int]
"""Lines, and the bytes of each."""


class _Event:
    """An event of the driver's, which goes back to the lane when nobody refers to it any more.

    One that is recorded anew goes on to mean the earlier time to those who waited for it
    (CUDA Driver API, ``cuStreamWaitEvent``).
    """

    __slots__ = ("handle", "pool")

    def __init__(self, handle: Any, pool: list[Any]) -> None:
        self.handle, self.pool = handle, pool

    def __del__(self) -> None:
        self.pool.append(self.handle)


class _PinnedChunk(Chunk):
    """A chunk that is pinned when the GPU is about to use it.

    Pages that were written already are pinned several times faster than new ones: those of a copy
    to the GPU are written first, by several threads.
    """

    def __init__(self, context: Context) -> None:
        space = np.empty(CHUNK + _PAGE, np.uint8)
        ahead = -space.ctypes.data % _PAGE
        super().__init__(space[ahead : ahead + CHUNK])
        self._context = context
        self._unpin: weakref.finalize[Any, _PinnedChunk] | None = None

    @property
    def is_pinned(self) -> bool:
        return self._unpin is not None

    def pin(self) -> None:
        """Pin it, if it is not."""
        if self._unpin is not None:
            return
        address = self.memory.ctypes.data
        portable = self._context.driver.CU_MEMHOSTREGISTER_PORTABLE
        self._context.call("cuMemHostRegister", address, CHUNK, portable)
        self._unpin = weakref.finalize(self, _unpin, self._context, address, self.memory)
        self._unpin.atexit = False

    def free(self) -> None:
        """Unpin it."""
        if self._unpin is not None:
            self._unpin()
            self._unpin = None


def _unpin(context: Context, address: int, memory: Bytes) -> None:
    """Unpin memory, which is kept until then."""
    if not context.lost and context.is_of_this_process:
        with context.current():
            context.driver.cuMemHostUnregister(address)


class GpuLane:
    """A GPU's lane. Its methods ask for the GPU's context to be current.

    Parameters
    ----------
    gpu : Gpu
    """

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self._context = context = gpu.context
        self._driver = context.driver
        self._chunks: dict[Stream, list[_PinnedChunk]] = {Stream.INWARD: [], Stream.OUTWARD: []}
        self._taken = dict.fromkeys(self._chunks, 0)
        self._memories: list[Memory] = []
        self._events: list[Any] = []
        non_blocking = self._driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        self._streams = [context.call("cuStreamCreate", non_blocking) for _ in Stream]
        self._handles = [int(stream) for stream in self._streams]
        flags = self._driver.CUevent_flags
        self._flags = flags.CU_EVENT_DISABLE_TIMING | flags.CU_EVENT_BLOCKING_SYNC

    @property
    def pinned(self) -> int:
        """Bytes of pinned memory that it keeps."""
        return CHUNK * sum(x.is_pinned for chunks in self._chunks.values() for x in chunks)

    def allocate(self, size: int) -> int:
        memory = Memory(self._context, size)
        self._memories.append(memory)
        return memory.address

    def release(self) -> None:
        try:
            for stream in self._streams:
                self._context.call("cuStreamSynchronize", stream)
        finally:
            self._memories.clear()
            self._taken = dict.fromkeys(self._chunks, 0)

    def close(self) -> None:
        """Free everything; the lane is of no use afterwards."""
        for chunks in self._chunks.values():
            for chunk in chunks:
                chunk.free()
            chunks.clear()
        for stream in self._streams:
            self._driver.cuStreamDestroy(stream)
        for event in self._events:
            self._driver.cuEventDestroy(event)

    def chunk(self, stream: Stream) -> Chunk | None:
        chunks, taken = self._chunks[stream], self._taken[stream]
        if taken == MOST[stream]:
            return None
        if taken == len(chunks):
            chunks.append(_PinnedChunk(self._context))
        self._taken[stream] = taken + 1
        return chunks[taken]

    def pin(self, chunk: Chunk) -> None:
        assert isinstance(chunk, _PinnedChunk)
        chunk.pin()

    def record(self, stream: Stream) -> _Event:
        handle = self._events.pop() if self._events else self._call("cuEventCreate", self._flags)
        event = _Event(handle, self._events)
        self._call("cuEventRecord", handle, self._streams[stream])
        return event

    def wait(self, stream: Stream, event: _Event) -> None:
        self._call("cuStreamWaitEvent", self._streams[stream], event.handle, 0)

    def is_done(self, event: _Event) -> bool:
        (status,) = self._driver.cuEventQuery(event.handle)
        if status == self._driver.CUresult.CUDA_ERROR_NOT_READY:
            return False
        if status != self._driver.CUresult.CUDA_SUCCESS:
            raise self._context.error(status, "cuEventQuery")
        return True

    def finish(self, event: _Event) -> None:
        self._call("cuEventSynchronize", event.handle)

    def copy_in(self, address: int, pitch: int, host: int, host_pitch: int, shape: Shape) -> None:
        lines, width = shape
        if lines == 1:
            self._call("cuMemcpyHtoDAsync", address, host, width, self._streams[Stream.INWARD])
            return
        copy = self._copy(lines, width)
        kinds = self._driver.CUmemorytype
        copy.srcMemoryType, copy.srcHost, copy.srcPitch = kinds.CU_MEMORYTYPE_HOST, host, host_pitch
        copy.dstMemoryType, copy.dstDevice, copy.dstPitch = (
            kinds.CU_MEMORYTYPE_DEVICE, address, pitch,
        )  # fmt: skip
        self._call("cuMemcpy2DAsync", copy, self._streams[Stream.INWARD])

    def copy_out(self, address: int, pitch: int, host: int, host_pitch: int, shape: Shape) -> None:
        lines, width = shape
        if lines == 1:  # what lies between the host's lines stays as it is
            self._call("cuMemcpyDtoHAsync", host, address, width, self._streams[Stream.OUTWARD])
            return
        copy = self._copy(lines, width)
        kinds = self._driver.CUmemorytype
        copy.srcMemoryType, copy.srcDevice, copy.srcPitch = (
            kinds.CU_MEMORYTYPE_DEVICE, address, pitch,
        )  # fmt: skip
        copy.dstMemoryType, copy.dstHost, copy.dstPitch = kinds.CU_MEMORYTYPE_HOST, host, host_pitch
        self._call("cuMemcpy2DAsync", copy, self._streams[Stream.OUTWARD])

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
