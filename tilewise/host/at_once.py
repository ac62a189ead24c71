"""Carry out a plan of a single product that is so small that nothing would overlap.

A and B lie in one pinned buffer as they will lie on the GPU, and D comes back to the same buffer.
The host enqueues everything on one stream and waits once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from tilewise.host.channel import LEAST_BUFFER, Buffer, Channel, Kind, released
from tilewise.host.copiers import Copiers, Copying
from tilewise.host.execute import Launcher, Matrices
from tilewise.host.matrices import Array, packed
from tilewise.host.plan import Compute, CopyIn, CopyOut, HostPlan, Region

MOST = 128 << 20
"""The most bytes to and from the GPU of a product that is computed at once, and of its buffer."""
TINY, TINY_RESULT = 1 << 17, 1 << 20
"""The most bytes of a matrix, and of D, that the calling thread copies to and from the buffer.

Above this size, copies by the calling thread leave dirty lines in its core's cache, from which PCIe
reads slowly.
"""
MOST_BY_DRIVER = 4 << 20
"""The most bytes of a matrix that the driver copies from and to memory that is not pinned.

Above this size, waking several threads, which copy to the buffer, takes less time.
"""


def is_for(plan: HostPlan, matrices: Matrices) -> bool:
    """Return whether a plan is one small product of matrices none of which is pinned."""
    # Padded lines take more memory than is copied.
    if max(plan.bytes_in + plan.bytes_out, plan.memory) > MOST:
        return False
    if any(x is not None and x.is_pinned for x in matrices):
        return False
    return sum(isinstance(step, Compute) for step in plan.steps()) == 1


def execute(
    launcher: Launcher, matrices: Matrices, channel: Channel, base: int, copiers: Copiers
) -> None:
    """Carry out a plan that :func:`is_for` takes; return when D is in the host's memory.

    Its parameters and errors are those of :func:`tilewise.host.execute.execute`; ``copiers`` are
    the threads that copy what neither the driver nor the calling thread does.
    """
    with released(channel), _cancelled_on_error() as copies:
        plan = launcher.plan
        buffer = channel.buffer(Kind.INWARD, 0, buffer_size(plan.memory))
        stream = channel.stream(Kind.COMPUTE, 0)
        steps = list(plan.steps())
        pieces = ((x.to, matrices.piece(x)) for x in steps if isinstance(x, CopyIn))
        loads = [(region, x) for region, x in pieces if x.size]
        (product,) = (step for step in steps if isinstance(step, Compute))
        (store,) = (step for step in steps if isinstance(step, CopyOut))

        def send(start: int, stop: int) -> None:
            channel.pin(buffer)
            host = buffer.memory.ctypes.data + start
            channel.copy_in(stream, base + start, 0, host, 0, (1, stop - start))

        def is_copied_by_driver(x: Array, region: Region) -> bool:
            is_in_one_piece = x.flags.c_contiguous and _bytes(x, region) == x.nbytes
            return x.nbytes <= MOST_BY_DRIVER and is_in_one_piece

        if all(x.nbytes <= TINY for _, x in loads):
            for region, x in loads:
                np.copyto(_there(buffer, region, x), x)
            if loads:
                send(0, max(region.offset + _bytes(x, region) for region, x in loads))
        else:
            for region, x in loads:
                if not is_copied_by_driver(x, region):
                    copies.append(copiers.copy(_there(buffer, region, x), x, is_first=True))
            begun = iter(copies[:])
            for region, x in loads:
                if is_copied_by_driver(x, region):
                    shape = 1, x.nbytes
                    channel.copy_in(stream, base + region.offset, 0, x.ctypes.data, 0, shape)
                else:
                    next(begun).wait()
                    send(region.offset, region.offset + _bytes(x, region))
        launcher.launch(product, channel, stream, base, base + plan.memory)
        region = store.source
        result = matrices.piece(store)
        size, address = _bytes(result, region), base + region.offset
        if result.nbytes > TINY_RESULT and is_copied_by_driver(result, region):
            channel.copy_out(stream, address, 0, result.ctypes.data, 0, (1, size))
            channel.settle(stream)
        else:
            channel.pin(buffer)
            host = buffer.memory.ctypes.data + region.offset
            channel.copy_out(stream, address, 0, host, 0, (1, size))
            channel.settle(stream)
            if result.nbytes <= TINY_RESULT:
                np.copyto(result, _there(buffer, region, result))
            else:
                copies.append(copiers.copy(result, _there(buffer, region, result), is_first=True))
                copies[-1].wait()


def buffer_size(least: int) -> int:
    """Return the bytes of the buffer, so large that few sizes of products need another one."""
    return max(LEAST_BUFFER, 1 << (least - 1).bit_length())


def _there(buffer: Buffer, region: Region, like: Array) -> Array:
    """Return the place of a region in the buffer, as an array with the shape of the piece."""
    return packed(buffer.memory[region.offset :], like)


@contextmanager
def _cancelled_on_error() -> Iterator[list[Copying]]:
    """Yield a list of copies that are begun; they are cancelled after an error."""
    copies: list[Copying] = []
    try:
        yield copies
    except BaseException:
        for copying in copies:
            copying.cancel()
        raise


def _bytes(piece: Array, region: Region) -> int:
    """Return the bytes from a piece's first element on the GPU to behind its last one."""
    matrices, lines, width = piece.shape
    return int((matrices * lines - 1) * region.pitch + width * piece.itemsize)
