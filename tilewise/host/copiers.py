"""Threads that copy arrays on the host, several of them at each array."""

from __future__ import annotations

import itertools
import queue
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from tilewise.host import streaming
from tilewise.host.matrices import Array

SHARES = 8
"""The number of shares of an array: with two arrays on their way, every thread has a share."""
LEAST = 1 << 18
"""The least bytes of a share, since handing it to a thread takes as long as copying some."""


OTHERS = 8
"""Of so many shares, one is of an array that is not to be copied first, if there is one."""


class Copying:
    """The progress of an array's copy.

    Parameters
    ----------
    shares : int
    """

    def __init__(self, shares: int) -> None:
        self._left = shares
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._stops = False
        if not shares:
            self._ended.set()

    def do(self, to: Array, source: Array) -> None:
        """Copy a share of the array."""
        try:
            if not self._stops:
                streaming.copy(to, source)
        except BaseException as error:
            self._error = error
        with self._lock:
            self._left -= 1
            if self._left:
                return
        self._ended.set()

    def wait(self) -> None:
        """Wait until the whole array is copied; raise what went wrong."""
        self._ended.wait()
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """Stop copying; return when no thread copies any more."""
        self._stops = True
        self._ended.wait()


class _Share(NamedTuple):
    """A share of an array that a thread has to copy."""

    copying: Copying
    to: Array
    source: Array


class _Tasks:
    """The shares that threads have to copy: those to copy first, and the others.

    Of so many shares, :data:`OTHERS`, one is taken from the others even if some are to be copied
    first, so that one product's copies to the GPU can't hold up another product for ever.
    """

    def __init__(self) -> None:
        self._first: deque[_Share] = deque()
        self._later: deque[_Share] = deque()
        self._turn = itertools.count(1)
        # A True, which wakes a thread, for each share that is put, and a None for each thread that
        # has to end. Threads look for shares before they wait, so it does not matter if Ctrl-C
        # comes between the two steps of :meth:`put`.
        self._wakes: queue.SimpleQueue[bool | None] = queue.SimpleQueue()

    def put(self, share: _Share, is_first: bool) -> None:
        """Add a share, to be copied before those that are not ``is_first`` if it is."""
        (self._first if is_first else self._later).append(share)
        self._wakes.put(True)

    def get(self) -> _Share | None:
        """Wait for the next share and return it; None if the thread has to end."""
        while True:
            queues = self._first, self._later
            for shares in queues if next(self._turn) % OTHERS else queues[::-1]:
                with suppress(IndexError):
                    return shares.popleft()
            if self._wakes.get() is None:
                return None

    def end(self, count: int) -> None:
        """End ``count`` threads once all shares that were put before have been taken."""
        for _ in range(count):
            self._wakes.put(None)


class Copiers:
    """A pool of threads that copy.

    The threads end with the pool, even if Ctrl-C interrupts its constructor or :meth:`close`: they
    refer only to its tasks, and are told to end when nothing refers to the pool any more.

    Parameters
    ----------
    count : int
        The number of threads; with 0, the calling thread copies.
    """

    def __init__(self, count: int) -> None:
        self._tasks = _Tasks()
        self._end = weakref.finalize(self, self._tasks.end, count)
        self._end.atexit = False  # then daemon threads end by themselves
        self._threads = [
            threading.Thread(target=_work, args=(self._tasks,), name="tilewise copies", daemon=True)
            for _ in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def copy(self, to: Array, source: Array, *, is_first: bool = False) -> Copying:
        """Begin to copy an array to one that it can be broadcast to, and that does not overlap it.

        Parameters
        ----------
        to, source : array
        is_first : bool, optional
            Whether the threads copy it before all arrays for which this is not set.
        """
        if not self._threads:
            copying = Copying(1)
            copying.do(to, source)
            return copying
        found = list(_shares(to, np.broadcast_to(source, to.shape)))
        copying = Copying(len(found))
        for share in found:
            self._tasks.put(_Share(copying, *share), is_first)
        return copying

    def close(self) -> None:
        """End the threads when they have finished their tasks."""
        self._end()
        for thread in self._threads:
            thread.join()


def _work(tasks: _Tasks) -> None:
    """Copy shares until the thread has to end."""
    while (share := tasks.get()) is not None:
        share.copying.do(share.to, share.source)
        del share  # so that a waiting thread keeps no array alive


def _shares(to: Array, source: Array) -> Iterator[tuple[Array, Array]]:
    """Cut both along the longest dimension but the last, or along the last if there is no other."""
    count = max(1, min(SHARES, to.nbytes // LEAST))
    axis = max(range(to.ndim), key=lambda i: (i < to.ndim - 1 and to.shape[i] > 1, to.shape[i]))
    extent = to.shape[axis]
    ends = [extent * i // count for i in range(count + 1)]
    for start, stop in itertools.pairwise(ends):
        if start < stop:
            which: Any = (slice(None),) * axis + (slice(start, stop),)
            yield to[which], source[which]
