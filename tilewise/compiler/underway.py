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
    """Keeps a queue of what is to be compiled, and what is being compiled.

    Attributes
    ----------
    queue : dict
        Jobs that wait for a thread, by key, the first one first.
    running : dict
        For each key that is being compiled, an event that is set at its end.
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
            Whether it is new: it neither waited nor runs already.
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
        """Take the first job of the queue, to compile it and to call :meth:`end` then.

        Returns
        -------
        (bytes, job) or None
            None where there is none.
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
            Whether another's compilation was waited for, so that the cache may have the kernel now.
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
"""This process's."""


def _begin_anew() -> None:
    """Forget what the process did that this one was forked from: its threads are not here."""
    underway.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
