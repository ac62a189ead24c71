"""Copies between the host's memory and the GPU's, through pinned chunks where they are needed."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np

from tilewise.host.lane import CHUNK, Chunk, Lane, Stream
from tilewise.host.matrices import Array, HostMatrix, Part, packed, parts_of, pitch_of
from tilewise.host.order import Done
from tilewise.host.plan import CopyIn, CopyOut, Region

LEAST_PART = 1 << 18
"""Bytes of a part at least: handing one to a thread takes as long as copying some of it."""


class Here(Executor):
    """An executor that does at once what it is given, in the calling thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        found: Future[Any] = Future()
        found.set_result(fn(*args, **kwargs))
        return found


def part_size(total: int, workers: int) -> int:
    """Return the bytes of a part, where so many travel: all threads shall have some of them."""
    return max(LEAST_PART, min(CHUNK, total // (4 * workers)))


def directly(piece: Array, region: Region) -> Iterator[tuple[int, int, int, tuple[int, int]]]:
    """Yield the copies of a piece whose memory is pinned.

    Each is the bytes from where the region begins, the host's address, its bytes from line to
    line, and how many lines of how many bytes.
    """
    matrices, lines, width = piece.shape
    stride, line, _ = piece.strides
    host_pitch = line if lines > 1 else width * piece.itemsize
    of_line = width * piece.itemsize
    if matrices > 1 and stride == lines * host_pitch and region.stride == lines * region.pitch:
        yield 0, piece.ctypes.data, host_pitch, (matrices * lines, of_line)
        return
    for matrix in range(matrices):
        yield matrix * region.stride, piece.ctypes.data + matrix * stride, host_pitch, (
            lines, of_line,
        )  # fmt: skip


class _Filled(NamedTuple):
    """A part that is copied to its chunk, or will be soon."""

    chunk: Chunk
    part: Part
    future: Future[None]
    is_last: bool


class Loader:
    """Copies pieces to the GPU, reading ahead into pinned chunks.

    Parameters
    ----------
    lane : Lane
    executor : Executor
        Of the threads that fill chunks.
    steps : iterator of CopyIn
        All that :meth:`load` will be asked for through chunks, in order.
    piece_of : callable
        The view of a step's piece.
    most : int
        Bytes of a part.
    """

    def __init__(
        self,
        lane: Lane,
        executor: Executor,
        steps: Iterator[CopyIn],
        piece_of: Callable[[CopyIn], Array],
        most: int,
    ) -> None:
        self._lane, self._executor = lane, executor
        self._ahead = self._parts(steps, piece_of, most)
        self._filled: deque[_Filled] = deque()
        self._used: deque[Chunk] = deque()  # on their way to the GPU, the oldest first

    @staticmethod
    def _parts(
        steps: Iterator[CopyIn], piece_of: Callable[[CopyIn], Array], most: int
    ) -> Iterator[tuple[Part, bool]]:
        for step in steps:
            parts = list(parts_of(piece_of(step), step.to.pitch, step.to.stride, most))
            for at, part in enumerate(parts, 1):
                yield part, at == len(parts)

    def load(self, address: int, pitch: int) -> None:
        """Copy the next piece to this address, on the inward stream."""
        is_last = False
        while not is_last:
            self._fill(not self._filled)
            chunk, part, future, is_last = self._filled.popleft()
            self._fill(False)
            future.result()
            self._lane.pin(chunk)
            host, host_pitch, shape = _lines(chunk, part, pitch)
            self._lane.copy_in(address + part.ahead, pitch, host, host_pitch, shape)
            chunk.event = self._lane.record(Stream.INWARD)
            self._used.append(chunk)

    def _fill(self, must: bool) -> None:
        """Hand a part to the threads for each free chunk; wait for one if there ``must`` be."""
        while (chunk := self._chunk(must)) is not None:
            found = next(self._ahead, None)
            if found is None:
                self._used.appendleft(chunk)
                return
            part, is_last = found
            future = self._executor.submit(_fill, chunk, part.host)
            self._filled.append(_Filled(chunk, part, future, is_last))
            must = False

    def _chunk(self, must: bool) -> Chunk | None:
        if self._used and (self._used[0].event is None or self._lane.is_done(self._used[0].event)):
            return self._used.popleft()
        if (fresh := self._lane.chunk(Stream.INWARD)) is not None:
            fresh.event = None
            return fresh
        if not must:
            return None
        chunk = self._used.popleft()
        self._lane.finish(chunk.event)
        return chunk

    def cancel(self) -> None:
        """Have no thread fill a chunk any more when this returns."""
        for filled in self._filled:
            filled.future.cancel()
        for filled in self._filled:
            if not filled.future.cancelled():
                filled.future.exception()


def _fill(chunk: Chunk, host: Array) -> None:
    np.copyto(packed(chunk.memory, host), host)


def _empty(chunk: Chunk, host: Array) -> None:
    np.copyto(host, packed(chunk.memory, host))


def _lines(chunk: Chunk, part: Part, pitch: int) -> tuple[int, int, tuple[int, int]]:
    """Return a part's address in its chunk, its bytes from line to line, lines and their bytes.

    Lines that follow one another in the chunk as on the GPU are one long line.
    """
    matrices, lines, width = part.host.shape
    host_pitch, of_line = pitch_of(width * part.host.itemsize), width * part.host.itemsize
    shape = matrices * lines, of_line
    if host_pitch == pitch:
        shape = 1, (matrices * lines - 1) * pitch + of_line
    return chunk.memory.ctypes.data, host_pitch, shape


class _Flying(NamedTuple):
    """A part on its way to a chunk."""

    chunk: Chunk
    part: Part


class Storer:
    """Copies finished pieces from the GPU to the host's memory, each when it is done.

    Parameters
    ----------
    lane : Lane
    executor : Executor
        Of the threads that empty chunks.
    target : HostMatrix
    by_rows : bool
        Whether the pieces' lines are rows.
    most : int
        Bytes of a part.
    """

    def __init__(
        self, lane: Lane, executor: Executor, target: HostMatrix, by_rows: bool, most: int
    ) -> None:
        self._lane, self._executor, self._target = lane, executor, target
        self._by_rows, self._most = by_rows, most
        self._free: list[Chunk] = []
        self._flying: deque[_Flying] = deque()
        self._copying: deque[tuple[Chunk, Future[None]]] = deque()

    def store(self, step: CopyOut, address: int, computed: Any) -> Any:
        """Enqueue the copies of a piece; return the event behind them."""
        lane, region = self._lane, step.source
        lane.wait(Stream.OUTWARD, computed)
        piece = self._target.piece(step.batch, step.rows, step.columns, self._by_rows)
        at = address + region.offset
        if self._target.goes_directly(self._by_rows):
            for ahead, host, host_pitch, shape in directly(piece, region):
                lane.copy_out(at + ahead, region.pitch, host, host_pitch, shape)
            return lane.record(Stream.OUTWARD)
        event = None
        for part in parts_of(piece, region.pitch, region.stride, self._most):
            chunk = self._chunk()
            lane.pin(chunk)
            host, host_pitch, shape = _lines(chunk, part, region.pitch)
            lane.copy_out(at + part.ahead, region.pitch, host, host_pitch, shape)
            chunk.event = event = lane.record(Stream.OUTWARD)
            self._flying.append(_Flying(chunk, part))
            while self._flying and lane.is_done(self._flying[0].chunk.event):
                self._land()
        return event

    def advance(self) -> bool:
        """Wait for the oldest copy on its way, and have it copied on; False where there is none."""
        if self._flying:
            self._land()
            return True
        return False

    def finish(self) -> None:
        """Wait until everything is in the host's memory."""
        while self.advance():
            pass
        while self._copying:
            self._copying.popleft()[1].result()

    def cancel(self) -> None:
        """Have no thread empty a chunk any more when this returns."""
        for _, future in self._copying:
            future.cancel()
        for _, future in self._copying:
            if not future.cancelled():
                future.exception()

    def _chunk(self) -> Chunk:
        while True:
            if self._free:
                return self._free.pop()
            if self._copying and (not self._flying or self._copying[0][1].done()):
                chunk, future = self._copying.popleft()
                future.result()
                return chunk
            if (fresh := self._lane.chunk(Stream.OUTWARD)) is not None:
                return fresh
            self._land()

    def _land(self) -> None:
        chunk, part = self._flying.popleft()
        self._lane.finish(chunk.event)
        self._copying.append((chunk, self._executor.submit(_empty, chunk, part.host)))


class _Task(NamedTuple):
    step: CopyOut
    computed: Any
    done: Done


class StorerThread:
    """A thread of its own for a :class:`Storer`, so that kernels and copies in go on meanwhile.

    Parameters
    ----------
    storer : Storer
    address : int
        Of the GPU's memory that regions lie in.
    current : callable
        A context manager that makes the GPU's context the thread's.
    """

    def __init__(
        self, storer: Storer, address: int, current: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        self._storer, self._address, self._current = storer, address, current
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._stops = False
        self._thread = threading.Thread(target=self._run, name="tilewise stores", daemon=True)
        self._thread.start()

    def store(self, step: CopyOut, computed: Any) -> Done:
        """Store a piece when it is computed; return at once."""
        if self._error is not None:
            raise self._error
        done = Done(Stream.OUTWARD)
        self._tasks.put(_Task(step, computed, done))
        return done

    def finish(self) -> None:
        """Wait until everything is stored.

        Raises
        ------
        Exception
            What went wrong in the thread.
        """
        self._tasks.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """End the thread, whatever is left to be stored."""
        self._stops = True
        self._tasks.put(None)
        self._thread.join()

    def _run(self) -> None:
        task: _Task | None = None
        try:
            with self._current():
                while (task := self._next()) is not None:
                    task.done.enqueued(self._storer.store(task.step, self._address, task.computed))
                if self._stops:
                    self._storer.cancel()
                else:
                    self._storer.finish()
        except BaseException as error:
            self._error = error
            while task is not None:  # nobody waits for what does not come
                task.done.enqueued(None)
                task = self._tasks.get()
            self._storer.cancel()

    def _next(self) -> _Task | None:
        """Return the next piece; while there is none yet, bring home those on their way."""
        while True:
            try:
                task = self._tasks.get_nowait()
                return None if self._stops else task
            except queue.Empty:
                if not self._storer.advance():
                    task = self._tasks.get()
                    return None if self._stops else task
