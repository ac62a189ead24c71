"""Copies between the host's memory and the GPU's, through pinned chunks where they are needed.

Threads copy part after part, each with a stream and two chunks of its own: while the GPU copies
from or to one, the thread fills or empties the other. They wait for one another only at the ends of
pieces. (A thread of Python's holds the interpreter's lock for some 30 µs a part, and not while it
copies.)
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np

from tilewise.host.lane import CHUNK, CHUNKS, Chunk, Kind, Lane, Shape
from tilewise.host.matrices import Array, HostMatrix, Part, packed, parts_of, pitch_of
from tilewise.host.order import Done
from tilewise.host.plan import CopyIn, CopyOut, Region

LEAST_PART = 1 << 18
"""Bytes of a part at least: a thread needs as long for what is said above."""
DIRECT = -1
"""The stream of copies from and to the host's own pinned memory, which no thread shares."""


class Threads(NamedTuple):
    """Where the threads come from.

    Attributes
    ----------
    executor : callable
        Returns an executor that has as many threads as are asked for below.
    inward, outward : int
        How many copy in each direction.
    current : callable
        A context manager that makes the GPU's context the calling thread's.
    """

    executor: Callable[[], Executor]
    inward: int
    outward: int
    current: Callable[[], AbstractContextManager[Any]]


def part_size(total: int, workers: int) -> int:
    """Return the bytes of a part, where so many travel: all threads shall have some of them."""
    return max(LEAST_PART, min(CHUNK, total // (4 * workers)))


def directly(piece: Array, region: Region) -> Iterator[tuple[int, int, int, Shape]]:
    """Yield the copies of a piece whose memory is pinned.

    Each is the bytes from where the region begins, the host's address, its bytes from line to
    line, and how many lines of how many bytes.
    """
    matrices, lines, width = piece.shape
    stride, line, _ = piece.strides
    host_pitch = line if lines > 1 else width * piece.itemsize
    of_line = width * piece.itemsize
    address = piece.ctypes.data
    if matrices > 1 and stride == lines * host_pitch and region.stride == lines * region.pitch:
        yield 0, address, host_pitch, (matrices * lines, of_line)
        return
    for matrix in range(matrices):
        yield matrix * region.stride, address + matrix * stride, host_pitch, (lines, of_line)


class _Piece:
    """A piece on its way, whose parts several threads copy.

    Attributes
    ----------
    done : Done
        Known to be enqueued when the last part is.
    waits : list
        The events that come before its first copy; known when ``gate`` is open.
    gate : threading.Event
    """

    def __init__(self, parts: int) -> None:
        self.done = Done()
        self.waits: Sequence[Any] = ()
        self.gate = threading.Event()
        self._left = parts
        self._events: list[Any] = []
        self._lock = threading.Lock()

    def open(self, waits: Sequence[Any]) -> None:
        """Let its copies be enqueued, behind these events."""
        self.waits = waits
        self.gate.set()

    def enqueued(self, event: Any) -> None:
        """Note that a part's copy is, with the event behind it."""
        with self._lock:
            self._events.append(event)
            self._left -= 1
            is_last = not self._left
        if is_last:
            self.done.enqueued(self._events)


class _Workers:
    """Threads that do the same until there is no more to do, or one of them fails.

    Parameters
    ----------
    threads : Threads
    count : int
    work : callable
        Of the thread's number.
    failed : callable
        Called when one fails; the others stop then.
    """

    def __init__(
        self,
        threads: Threads,
        count: int,
        work: Callable[[int], None],
        failed: Callable[[], None],
    ) -> None:
        self.error: BaseException | None = None
        self.stops = False
        self._current, self._work, self._failed = threads.current, work, failed
        executor = threads.executor()
        self._futures: list[Future[None]] = [executor.submit(self._run, i) for i in range(count)]

    def _run(self, index: int) -> None:
        try:
            with self._current():
                self._work(index)
        except BaseException as error:
            self.error, self.stops = self.error or error, True
            self._failed()
            raise

    def join(self) -> None:
        """Wait until they have ended."""
        for future in self._futures:
            if not (self.stops and future.cancel()):
                future.exception()

    def check(self) -> None:
        """Raise what went wrong in one of them."""
        if self.error is not None:
            raise self.error


class _Part(NamedTuple):
    """A part of a piece, and where the piece lies on the GPU."""

    piece: _Piece
    part: Part
    region: Region


class Loader:
    """Copies pieces that are not pinned to the GPU; threads fill chunks ahead of the steps.

    Parameters
    ----------
    lane : Lane
    base : int
        Where regions begin in the GPU's memory.
    steps : iterator of CopyIn
        All that :meth:`load` will be asked for, in order.
    piece_of : callable
        The view of a step's piece.
    most : int
        Bytes of a part.
    threads : Threads or None
        None where the calling thread copies.
    """

    def __init__(
        self,
        lane: Lane,
        base: int,
        steps: Iterator[CopyIn],
        piece_of: Callable[[CopyIn], Array],
        most: int,
        threads: Threads | None,
    ) -> None:
        self._lane, self._base, self._most = lane, base, most
        self._steps, self._piece_of = steps, piece_of
        self._lock = threading.Lock()
        self._pieces: deque[_Piece] = deque()  # that :meth:`load` was not asked for yet
        self._parts: deque[_Part] = deque()  # that no thread has taken yet
        self._begun: list[_Piece] = []
        self._turn = 0
        self._workers: _Workers | None = None
        if threads is not None:
            self._workers = _Workers(threads, threads.inward, self._work, self._release)

    def load(self, waits: Sequence[Any]) -> Done:
        """Have the next piece copied, behind these events."""
        with self._lock:
            if self._workers is not None:
                self._workers.check()
            if not self._pieces:
                self._begin()
            piece = self._pieces.popleft()
        piece.open(waits)
        if self._workers is None:
            while self._parts:
                self._turn = (self._turn + 1) % CHUNKS
                self._copy(self._parts.popleft(), 0, self._turn, is_first=True)
        return piece.done

    def finish(self) -> None:
        """Wait until the threads have no more to do."""
        if self._workers is not None:
            self._workers.join()
            self._workers.check()

    def cancel(self) -> None:
        """Have no thread copy any more when this returns."""
        if self._workers is None:
            return
        self._workers.stops = True
        self._release()
        self._workers.join()

    def _release(self) -> None:
        """Have nobody wait for what does not come any more."""
        with self._lock:
            self._steps = iter(())
            self._parts.clear()
            for piece in self._begun:
                piece.open(())
                piece.done.enqueued(())

    def _begin(self) -> None:
        """Cut the next step's piece into parts; StopIteration where there is none."""
        step = next(self._steps)
        region = step.to
        parts = list(parts_of(self._piece_of(step), region.pitch, region.stride, self._most))
        piece = _Piece(len(parts))
        self._pieces.append(piece)
        self._begun = [x for x in self._begun if not x.done.is_enqueued] + [piece]
        self._parts.extend(_Part(piece, part, region) for part in parts)

    def _take(self) -> _Part | None:
        with self._lock:
            try:
                if not self._parts:
                    self._begin()
            except StopIteration:
                return None
            return self._parts.popleft()

    def _work(self, index: int) -> None:
        turn, last = 0, None
        while not self._stops and (taken := self._take()) is not None:
            self._copy(taken, index, turn, is_first=taken.piece is not last)
            turn, last = (turn + 1) % CHUNKS, taken.piece

    @property
    def _stops(self) -> bool:
        return self._workers is not None and self._workers.stops

    def _copy(self, taken: _Part, index: int, turn: int, is_first: bool) -> None:
        """Copy a part by a thread's stream and one of its chunks.

        ``is_first`` says that the stream does not wait yet for what comes before the piece.
        """
        lane, (piece, part, region) = self._lane, taken
        stream, chunk = lane.stream(Kind.INWARD, index), lane.chunk(Kind.INWARD, index, turn)
        if chunk.event is not None:
            lane.finish(chunk.event)
        np.copyto(packed(chunk.memory, part.host), part.host)
        piece.gate.wait()
        if self._stops:
            return
        if is_first:
            for event in piece.waits:
                lane.wait(stream, event)
        lane.pin(chunk)
        host, host_pitch, shape = _lines(chunk, part, region.pitch)
        address = self._base + region.offset + part.ahead
        lane.copy_in(stream, address, region.pitch, host, host_pitch, shape)
        chunk.event = lane.record(stream)
        piece.enqueued(chunk.event)


class Storer:
    """Copies finished pieces from the GPU to the host's memory, each when it is computed.

    Parameters
    ----------
    lane : Lane
    base : int
        Where regions begin in the GPU's memory.
    target : HostMatrix
    by_rows : bool
        Whether the pieces' lines are rows.
    most : int
        Bytes of a part.
    threads : Threads or None
        None where the calling thread copies.
    """

    def __init__(
        self,
        lane: Lane,
        base: int,
        target: HostMatrix,
        by_rows: bool,
        most: int,
        threads: Threads | None,
    ) -> None:
        self._lane, self._base, self._target = lane, base, target
        self._by_rows, self._most = by_rows, most
        self._is_direct = target.goes_directly(by_rows)
        self._tasks: queue.SimpleQueue[_Part | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._begun: list[_Piece] = []
        self._threads = threads
        self._workers: _Workers | None = None

    def store(self, step: CopyOut, computed: Sequence[Any]) -> Done:
        """Have a piece copied, behind these events."""
        lane, region = self._lane, step.source
        view = self._target.piece(step.batch, step.rows, step.columns, self._by_rows)
        if self._is_direct:
            stream = lane.stream(Kind.OUTWARD, DIRECT)
            for event in computed:
                lane.wait(stream, event)
            at = self._base + region.offset
            for ahead, host, host_pitch, shape in directly(view, region):
                lane.copy_out(stream, at + ahead, region.pitch, host, host_pitch, shape)
            return Done([lane.record(stream)], stream)
        parts = list(parts_of(view, region.pitch, region.stride, self._most))
        piece = _Piece(len(parts))
        piece.open(computed)
        if self._threads is None:
            for part in parts:
                taken = _Part(piece, part, region)
                _empty(lane, self._copy(taken, 0, 0, is_first=True), part)
        else:
            if self._workers is None:
                count = self._threads.outward
                self._workers = _Workers(self._threads, count, self._work, self._release)
            with self._lock:
                self._workers.check()
                self._begun = [x for x in self._begun if not x.done.is_enqueued] + [piece]
            for part in parts:
                self._tasks.put(_Part(piece, part, region))
        return piece.done

    def finish(self) -> None:
        """Wait until everything is in the host's memory."""
        if self._is_direct:
            self._lane.finish(self._lane.record(self._lane.stream(Kind.OUTWARD, DIRECT)))
        if self._workers is not None:
            self._end()
            self._workers.join()
            self._workers.check()

    def cancel(self) -> None:
        """Have no thread copy any more when this returns."""
        if self._workers is not None:
            self._workers.stops = True
            self._release()
            self._workers.join()

    def _end(self) -> None:
        """Have the threads end behind the last part."""
        for _ in range(0 if self._threads is None else self._threads.outward):
            self._tasks.put(None)

    def _release(self) -> None:
        """Have nobody wait for what does not come any more."""
        self._end()
        with self._lock:
            for piece in self._begun:
                piece.done.enqueued(())

    def _work(self, index: int) -> None:
        """Copy parts to chunks, and from there on: the last one while the next one comes."""
        turn = 0
        before: tuple[Chunk, Part] | None = None
        last: _Piece | None = None
        while not (self._workers is not None and self._workers.stops):
            try:
                taken = self._tasks.get_nowait()
            except queue.Empty:
                if before is not None:
                    _empty(self._lane, *before)
                    before = None
                taken = self._tasks.get()
            if taken is None:
                break
            chunk = self._copy(taken, index, turn, is_first=taken.piece is not last)
            if before is not None:
                _empty(self._lane, *before)
            before, turn, last = (chunk, taken.part), (turn + 1) % CHUNKS, taken.piece
        if before is not None:
            _empty(self._lane, *before)

    def _copy(self, taken: _Part, index: int, turn: int, is_first: bool) -> Chunk:
        """Enqueue the copy of a part to one of a thread's chunks, which is empty."""
        lane, (piece, part, region) = self._lane, taken
        stream, chunk = lane.stream(Kind.OUTWARD, index), lane.chunk(Kind.OUTWARD, index, turn)
        if is_first:
            for event in piece.waits:
                lane.wait(stream, event)
        lane.pin(chunk)
        host, host_pitch, shape = _lines(chunk, part, region.pitch)
        address = self._base + region.offset + part.ahead
        lane.copy_out(stream, address, region.pitch, host, host_pitch, shape)
        chunk.event = lane.record(stream)
        piece.enqueued(chunk.event)
        return chunk


def _empty(lane: Lane, chunk: Chunk, part: Part) -> None:
    """Copy a part from its chunk to the host's array, when it has come."""
    lane.finish(chunk.event)
    np.copyto(part.host, packed(chunk.memory, part.host))


def _lines(chunk: Chunk, part: Part, pitch: int) -> tuple[int, int, Shape]:
    """Return a part's address in its chunk, its bytes from line to line, lines and their bytes.

    Lines that follow one another in the chunk as on the GPU are one long line.
    """
    matrices, lines, width = part.host.shape
    host_pitch, of_line = pitch_of(width * part.host.itemsize), width * part.host.itemsize
    shape = matrices * lines, of_line
    if host_pitch == pitch:
        shape = 1, (matrices * lines - 1) * pitch + of_line
    return chunk.memory.ctypes.data, host_pitch, shape
