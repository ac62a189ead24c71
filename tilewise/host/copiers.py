"""Threads that copy arrays on the host, several of them at each array."""

from __future__ import annotations

import itertools
import queue
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewise.host.matrices import Array

SHARES = 8
"""The number of shares of an array: with two arrays on their way, every thread has a share."""
LEAST = 1 << 18
"""The least bytes of a share, since handing it to a thread takes as long as copying some."""


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
                np.copyto(to, source)
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


Tasks = queue.SimpleQueue[tuple[Copying, Array, Array] | None]


class Copiers:
    """A pool of threads that copy.

    The threads end with the pool, even if Ctrl-C interrupts its constructor or :meth:`close`: they
    refer only to its queue, and are told to end when nothing refers to the pool any more.

    Parameters
    ----------
    count : int
        The number of threads; with 0, the calling thread copies.
    """

    def __init__(self, count: int) -> None:
        self._tasks: Tasks = queue.SimpleQueue()
        self._end = weakref.finalize(self, _tell_to_end, self._tasks, count)
        self._end.atexit = False  # then daemon threads end by themselves
        self._threads = [
            threading.Thread(target=_work, args=(self._tasks,), name="tilewise copies", daemon=True)
            for _ in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def copy(self, to: Array, source: Array) -> Copying:
        """Begin to copy an array to one that it can be broadcast to."""
        if not self._threads:
            copying = Copying(1)
            copying.do(to, source)
            return copying
        found = list(_shares(to, np.broadcast_to(source, to.shape)))
        copying = Copying(len(found))
        for share in found:
            self._tasks.put((copying, *share))
        return copying

    def close(self) -> None:
        """End the threads when they have finished their tasks."""
        self._end()
        for thread in self._threads:
            thread.join()


def _work(tasks: Tasks) -> None:
    """Carry out tasks until one of them is None."""
    while (task := tasks.get()) is not None:
        copying, to, source = task
        copying.do(to, source)
        del task, copying, to, source  # so that a waiting thread keeps no array alive


def _tell_to_end(tasks: Tasks, count: int) -> None:
    """Tell ``count`` threads to end when they have finished the tasks in the queue."""
    for _ in range(count):
        tasks.put(None)


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
