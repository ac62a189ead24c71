"""Copies between the host's memory and the GPU's, through pinned buffers if necessary.

A part of a piece fills a buffer: threads copy its shares side by side, and then the GPU copies the
whole buffer at once, while the threads fill the next one. Parts are few and large, because only one
thread can run the Python code between them.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np

from tilewise.host.channel import Buffer, Channel, Kind, Shape, Stream
from tilewise.host.copiers import Copiers, Copying
from tilewise.host.dependencies import Completion
from tilewise.host.matrices import Array, Part, packed, parts_of, pitch_of
from tilewise.host.plan import CopyIn, CopyOut, Region

BUFFERS = {Kind.INWARD: 5, Kind.OUTWARD: 3}
"""The number of a channel's buffers: while the GPU copies one, others are filled or emptied."""


class Helpers(NamedTuple):
    """The helpers of the thread that carries out a plan.

    Attributes
    ----------
    copiers : Copiers
        The threads that copy.
    current : callable
        A function that returns a context manager, in which the GPU's context is current.
    """

    copiers: Copiers
    current: Callable[[], AbstractContextManager[Any]]


def directly(piece: Array, region: Region) -> Iterator[tuple[int, int, int, Shape]]:
    """Yield the copies of a piece whose memory is pinned.

    Each copy is the bytes from the beginning of the region, the address on the host, the bytes from
    line to line there, and the number and the bytes of the lines.
    """
    matrices, lines, width = piece.shape
    stride, line, _ = piece.strides
    host_pitch = line if lines > 1 else width * piece.itemsize
    of_line = width * piece.itemsize
    address = piece.ctypes.data
    if matrices > 1 and stride == lines * host_pitch and region.stride == lines * region.pitch:
        matrices, lines = 1, matrices * lines
    shape = lines, of_line
    if of_line == host_pitch == region.pitch:  # one long line
        shape = 1, lines * of_line
    for matrix in range(matrices):
        yield matrix * region.stride, address + matrix * stride, host_pitch, shape


class _Filled(NamedTuple):
    """A part that is in a buffer, or will be soon."""

    buffer: Buffer
    part: Part
    copying: Copying
    is_last: bool


class Loader:
    """The copies to the GPU of pieces that are not pinned; buffers are filled ahead of the steps.

    If there are more parts than buffers, a thread waits for the copies from the buffers to the GPU,
    and fills each buffer again as soon as it is free, while the steps go on.

    Parameters
    ----------
    channel : Channel
    stream : Stream
        A stream of the channel.
    base : int
        The address at which regions begin in the GPU's memory.
    steps : iterator of CopyIn
        All steps that :meth:`load` will be called for, in order.
    piece_of : callable
        A function that returns the view of a step's piece.
    most : int
        The most bytes of a part.
    helpers : Helpers
    """

    def __init__(
        self,
        channel: Channel,
        stream: Stream,
        base: int,
        steps: Iterator[CopyIn],
        piece_of: Callable[[CopyIn], Array],
        most: int,
        helpers: Helpers,
    ) -> None:
        self._channel, self._base, self._most, self._helpers = channel, base, most, helpers
        self._stream = stream
        self._parts = _parts(steps, piece_of, most)
        self._has_begun, self._stops = False, False
        self._filled: deque[_Filled] = deque()
        # A None for each part in :attr:`_filled`, or the error of the thread.
        self._turns: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        # The buffers on their way to the GPU, the oldest first; None if the thread has to end.
        self._sent: queue.SimpleQueue[Buffer | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def load(self, region: Region, waits: Sequence[Any]) -> Completion:
        """Copy the next piece to its region, after these events.

        Raises
        ------
        Exception
            The error of the thread that fills buffers, if it failed.
        """
        channel, stream = self._channel, self._stream
        if not self._has_begun:
            self._begin()
        for event in waits:
            channel.wait(stream, event)
        while True:
            error = self._turns.get()
            if error is not None:
                try:
                    raise error
                finally:
                    del error  # whose traceback refers to this frame, and so to the arrays
            # Removed only when it is filled, as :meth:`cancel` waits for those that are not.
            buffer, part, copying, is_last = self._filled[0]
            copying.wait()
            self._filled.popleft()
            channel.pin(buffer)
            host, host_pitch, shape = _lines(buffer, part, region.pitch)
            address = self._base + region.offset + part.ahead
            channel.copy_in(stream, address, region.pitch, host, host_pitch, shape)
            buffer.event = channel.record(stream)
            self._sent.put(buffer)
            if is_last:
                return Completion([buffer.event], stream)

    def finish(self) -> None:
        """End the thread, when all pieces are loaded."""
        if self._thread is not None:
            self._thread.join()

    def cancel(self) -> None:
        """Make all threads stop filling buffers, and return when they have."""
        self._stops = True
        self._sent.put(None)
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()
        for filled in self._filled:
            filled.copying.cancel()

    def _begin(self) -> None:
        """Begin to fill all buffers, and let the thread fill them again."""
        self._has_begun = True
        for index in range(BUFFERS[Kind.INWARD]):
            found = next(self._parts, None)
            if found is None:
                return
            buffer = self._channel.buffer(Kind.INWARD, index, self._most)
            if buffer.event is not None:
                self._channel.finish(buffer.event)
            self._fill(buffer, *found)
        found = next(self._parts, None)
        if found is not None:
            self._thread = threading.Thread(
                target=self._fill_again, args=found, name="tilewise loads", daemon=True
            )
            self._thread.start()

    def _fill(self, buffer: Buffer, part: Part, is_last: bool) -> None:
        """Begin to fill a buffer with a part."""
        to = packed(buffer.memory, part.host)
        copying = self._helpers.copiers.copy(to, part.host, is_first=True)
        self._filled.append(_Filled(buffer, part, copying, is_last))
        self._turns.put(None)

    def _fill_again(self, part: Part, is_last: bool) -> None:
        """Fill buffers whose copies to the GPU have ended, with a part and those behind it."""
        try:
            with self._helpers.current():
                for each in itertools.chain([(part, is_last)], self._parts):
                    buffer = self._sent.get()
                    if self._stops or buffer is None:
                        return
                    self._channel.finish(buffer.event)
                    self._fill(buffer, *each)
        except BaseException as error:
            self._turns.put(error)


def _parts(
    steps: Iterator[CopyIn], piece_of: Callable[[CopyIn], Array], most: int
) -> Iterator[tuple[Part, bool]]:
    """Yield the parts of all steps' pieces, and whether each is the last one of its piece."""
    for step in steps:
        region = step.to
        parts = list(parts_of(piece_of(step), region.pitch, region.stride, most))
        for at, part in enumerate(parts, 1):
            yield part, at == len(parts)


class Storer:
    """The copies of finished pieces from the GPU to the host's memory.

    Parameters
    ----------
    channel : Channel
    stream : Stream
        A stream of the channel.
    base : int
        The address at which regions begin in the GPU's memory.
    piece_of : callable
        A function that returns the view of a step's piece.
    is_direct : bool
        Whether the driver copies straight to D, without a buffer.
    most : int
        The most bytes of a part.
    copiers : Copiers
    """

    def __init__(
        self,
        channel: Channel,
        stream: Stream,
        base: int,
        piece_of: Callable[[CopyOut], Array],
        is_direct: bool,
        most: int,
        copiers: Copiers,
    ) -> None:
        self._channel, self._base, self._most, self._copiers = channel, base, most, copiers
        self._piece_of, self._is_direct = piece_of, is_direct
        self._stream = stream
        self._coming: deque[tuple[Buffer, Part]] = deque()
        self._emptied: deque[tuple[Buffer, Copying]] = deque()
        self._buffers = 0

    def store(self, step: CopyOut, waits: Sequence[Any]) -> Completion:
        """Enqueue the copies of a piece after these events; return what completes with them."""
        channel, stream, region = self._channel, self._stream, step.source
        for event in waits:
            channel.wait(stream, event)
        piece = self._piece_of(step)
        at = self._base + region.offset
        if self._is_direct:
            for ahead, host, host_pitch, shape in directly(piece, region):
                channel.copy_out(stream, at + ahead, region.pitch, host, host_pitch, shape)
            return Completion([channel.record(stream)])
        event = None
        for part in parts_of(piece, region.pitch, region.stride, self._most):
            buffer = self._buffer()
            host, host_pitch, shape = _lines(buffer, part, region.pitch)
            channel.copy_out(stream, at + part.ahead, region.pitch, host, host_pitch, shape)
            buffer.event = event = channel.record(stream)
            self._coming.append((buffer, part))
        return Completion([event])

    def advance(self) -> bool:
        """Wait for the oldest copy to a buffer, and begin to empty it; False if there is none."""
        if not self._coming:
            return False
        buffer, part = self._coming.popleft()
        self._channel.finish(buffer.event)
        copying = self._copiers.copy(part.host, packed(buffer.memory, part.host))
        self._emptied.append((buffer, copying))
        return True

    def finish(self) -> None:
        """Wait until everything is in the host's memory."""
        if self._is_direct:
            self._channel.settle(self._stream)
        while self.advance():
            pass
        while self._emptied:
            self._emptied[0][1].wait()
            self._emptied.popleft()

    def cancel(self) -> None:
        """Make all threads stop emptying buffers, and return when they have."""
        for _, copying in self._emptied:
            copying.cancel()

    def _buffer(self) -> Buffer:
        """Return an empty, pinned buffer."""
        if self._buffers < BUFFERS[Kind.OUTWARD]:
            buffer = self._channel.buffer(Kind.OUTWARD, self._buffers, self._most)
            self._buffers += 1
            if not self._channel.is_pinned(buffer):
                # Pages that were written before are pinned several times faster than new ones.
                self._copiers.copy(buffer.memory, np.zeros(1, np.uint8)).wait()
                self._channel.pin(buffer)
            return buffer
        while not self._emptied:
            self.advance()
        buffer, copying = self._emptied[0]
        copying.wait()
        self._emptied.popleft()
        return buffer


class _Task(NamedTuple):
    step: CopyOut
    waits: Sequence[Any]
    done: Completion


class StorerThread:
    """A thread for a :class:`Storer`, so that kernels and copies to the GPU go on meanwhile.

    Parameters
    ----------
    storer : Storer
    current : callable
        A function that returns a context manager, in which the GPU's context is current.
    """

    def __init__(self, storer: Storer, current: Callable[[], AbstractContextManager[Any]]) -> None:
        self._storer, self._current = storer, current
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._stops = False
        self._thread = threading.Thread(target=self._run, name="tilewise stores", daemon=True)
        self._thread.start()

    def store(self, step: CopyOut, waits: Sequence[Any]) -> Completion:
        """Store a piece after these events; return at once."""
        if self._error is not None:
            raise self._error
        done = Completion()
        self._tasks.put(_Task(step, waits, done))
        return done

    def finish(self) -> None:
        """Wait until everything is stored.

        Raises
        ------
        Exception
            The error of the thread, if it failed.
        """
        self._tasks.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """End the thread, even if something is left to be stored."""
        self._stops = True
        self._tasks.put(None)
        self._thread.join()

    def _run(self) -> None:
        task: _Task | None = None
        try:
            with self._current():
                while (task := self._next()) is not None and not self._stops:
                    task.done.enqueued(self._storer.store(task.step, task.waits).events)
                if not self._stops:
                    self._storer.finish()
                    return
        except BaseException as error:
            self._error = error
        while task is not None:  # so that nothing waits for steps that will not be enqueued
            task.done.enqueued(())
            task = self._tasks.get()
        self._storer.cancel()

    def _next(self) -> _Task | None:
        """Return the next piece; while there is none, empty the buffers of finished copies."""
        while True:
            try:
                return self._tasks.get_nowait()
            except queue.Empty:
                if not self._storer.advance():
                    return self._tasks.get()


def _lines(buffer: Buffer, part: Part, pitch: int) -> tuple[int, int, Shape]:
    """Return a part's address in its buffer, its pitch, and the number and the bytes of its lines.

    Lines that have the same pitch in the buffer and on the GPU count as one long line.
    """
    matrices, lines, width = part.host.shape
    host_pitch, of_line = pitch_of(width * part.host.itemsize), width * part.host.itemsize
    shape = matrices * lines, of_line
    if host_pitch == pitch:
        shape = 1, (matrices * lines - 1) * pitch + of_line
    return buffer.memory.ctypes.data, host_pitch, shape
