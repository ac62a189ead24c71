"""Keep track of compilations in this process and its helpers, so that none is made twice.

A kernel is known here by its key in the cache on disk. Helpers, which are processes that compile
beside this one, take kernels from a queue. A caller that needs a queued kernel now compiles it
itself, or waits if a helper has begun.
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
        Jobs that wait for a helper, by key, the first one first.
    running : dict
        For each key that is being compiled, an event that is set at its end.
    """

    def __init__(self) -> None:
        self.queue: dict[Key, Any] = {}
        self.running: dict[Key, threading.Event] = {}
        self._changed = threading.Condition()

    def put(self, key: Key, job: Any) -> bool:
        """Append a job to the queue; return False where it waits or runs already."""
        with self._changed:
            if key in self.queue or key in self.running:
                return False
            self.queue[key] = job
            self._changed.notify()
            return True

    def take(self, idle: float) -> tuple[Key, Any] | None:
        """Take the first job of the queue, to run it and to call :meth:`end` then.

        Parameters
        ----------
        idle : float
            Seconds to wait for one.

        Returns
        -------
        (bytes, job) or None
            None where none came.
        """
        with self._changed:
            if not self.queue and not self._changed.wait_for(lambda: self.queue, idle):
                return None
            key = next(iter(self.queue))
            job = self.queue.pop(key)
            self.running[key] = threading.Event()
            return key, job

    def end(self, key: Key) -> None:
        """Say that a job which was taken has ended, well or not."""
        with self._changed:
            self.running.pop(key).set()

    @contextmanager
    def compiling(self, key: Key) -> Iterator[bool]:
        """Compile a kernel in the body, or wait for whoever is compiling it.

        Yields
        ------
        bool
            Whether another's compilation was waited for, so that the cache may have the kernel now.
        """
        with self._changed:
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
            self.end(key)


underway = Underway()
"""This process's."""


def _begin_anew() -> None:
    """Forget what the process did that this one was forked from: its threads are not here."""
    underway.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
