"""Threads that copy arrays on the host, each array by several of them at once."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewise.host.matrices import Array

SHARES = 8
"""Into how many shares an array is cut: of two arrays on their way, every thread has one."""
LEAST = 1 << 18
"""Bytes of a share at least: handing it to a thread takes as long as copying some of it."""


class Copying:
    """A copy of an array, under way.

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
        """Copy a share."""
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
        """Wait until all of it is copied; raise what went wrong."""
        self._ended.wait()
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """Copy no more of it; return when no thread does."""
        self._stops = True
        self._ended.wait()


class Copiers:
    """The threads.

    Parameters
    ----------
    count : int
        How many; with 0, the calling thread copies.
    """

    def __init__(self, count: int) -> None:
        self._tasks: queue.SimpleQueue[tuple[Copying, Array, Array] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name="tilewise copies", daemon=True)
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
        """End the threads, when they have done what they were given."""
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            copying, to, source = task
            copying.do(to, source)
            del task, copying, to, source  # a thread that waits keeps no array


def _shares(to: Array, source: Array) -> Iterator[tuple[Array, Array]]:
    """Cut both along the longest dimension but the last, or along that where there is no other."""
    count = max(1, min(SHARES, to.nbytes // LEAST))
    axis = max(range(to.ndim), key=lambda i: (i < to.ndim - 1 and to.shape[i] > 1, to.shape[i]))
    extent = to.shape[axis]
    ends = [extent * i // count for i in range(count + 1)]
    for start, stop in itertools.pairwise(ends):
        if start < stop:
            which: Any = (slice(None),) * axis + (slice(start, stop),)
            yield to[which], source[which]
