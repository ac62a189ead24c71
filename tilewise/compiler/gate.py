"""Let no process be forked while NVRTC compiles in it.

NVRTC's own locks would be held in the child for ever.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 30.0  # seconds that a fork waits for compilations to end


class Gate:
    """A gate that counts the threads inside, and keeps others out while it is closed."""

    def __init__(self) -> None:
        self._inside, self._is_closed = 0, False
        self._changed = threading.Condition()

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Be inside during the body, once the gate is open."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_closed)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Close the gate, and wait until no thread is inside, or for :data:`PATIENCE`."""
        with self._changed:
            self._is_closed = True
            self._changed.wait_for(lambda: not self._inside, PATIENCE)

    def open(self) -> None:
        """Let others in again."""
        with self._changed:
            self._is_closed = False
            self._changed.notify_all()

    def begin_anew(self) -> None:
        """Reset to open with no thread inside, in a forked process, which does not have
        the threads.
        """
        self._inside, self._is_closed = 0, False
        self._changed = threading.Condition()


gate = Gate()
"""The gate of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=gate.close, after_in_parent=gate.open, after_in_child=gate.begin_anew
    )
