"""Keep track of the compilations in this process, so that none is made twice.

A kernel is known here by its key in the cache on disk. Threads that compile ahead take kernels from
a queue. A caller that needs a queued kernel now compiles it itself, or waits if a thread has begun.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE = 30.0  # seconds that a caller waits for another's compilation before it compiles itself

Key = bytes


class Underway:
    """A queue of kernels to compile, and the kernels that are being compiled.

    Attributes
    ----------
    queue : dict
        The jobs that wait for a thread, by key, the first one first.
    running : dict
        An event for each key that is being compiled, which is set at its end.
    taken : set
        Keys of the jobs that threads took out of the queue and have not ended.
    """

    def __init__(self) -> None:
        self.queue: dict[Key, Any] = {}
        self.running: dict[Key, threading.Event] = {}
        self.taken: set[Key] = set()
        self._lock = threading.Lock()

    def put(self, key: Key, job: Any, *, is_first: bool = False) -> bool:
        """Append a job to the queue, or put it at its beginning.

        Returns
        -------
        bool
            Whether it is new, so that it neither waited nor ran already.
        """
        with self._lock:
            if key in self.running or key in self.taken:
                return False
            is_new = key not in self.queue
            if is_first:
                self.queue.pop(key, None)
                self.queue = {key: job, **self.queue}
            elif is_new:
                self.queue[key] = job
            return is_new

    def take(self) -> tuple[Key, Any] | None:
        """Take the first job of the queue, in order to compile it and then to call :meth:`end`.

        Returns
        -------
        (bytes, job) or None
            The key and the job; None if there is none.
        """
        with self._lock:
            if not self.queue:
                return None
            key = next(iter(self.queue))
            job = self.queue.pop(key)
            self.taken.add(key)
            return key, job

    def end(self, key: Key) -> None:
        """Say that a job which was taken has ended, whether it compiled or failed."""
        with self._lock:
            self.taken.discard(key)

    @contextmanager
    def compiling(self, key: Key) -> Iterator[bool]:
        """Enter the body to compile a kernel, at once or when another thread has compiled it.

        Yields
        ------
        bool
            Whether it waited for another thread's compilation, so that the cache may have the
            kernel now.
        """
        with self._lock:
            self.queue.pop(key, None)
            others = self.running.get(key)
            if others is None:
                self.running[key] = threading.Event()
        if others is not None:
            others.wait(PATIENCE)
            yield True
            return
        try:
            yield False
        finally:
            with self._lock:
                self.running.pop(key).set()


underway = Underway()
"""The queue of this process."""


def _begin_anew() -> None:
    """Forget what the process did that this one was forked from: its threads are not here."""
    underway.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
