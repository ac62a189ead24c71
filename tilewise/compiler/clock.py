"""The time that one compilation has left, over all its steps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tilewise.errors import LimitError

STOPPED = "the compilation was stopped"


class Clock:
    """The time that a compilation may take.

    The clock runs during each step, and stops while a process starts or another thread compiles.

    Parameters
    ----------
    seconds : float or None
        The seconds that all steps may take together; None for no limit.
    file : str
        The source's name, for messages.
    """

    def __init__(self, seconds: float | None, file: str) -> None:
        self.seconds, self.file = seconds, file
        self._spent = 0.0
        self._begun: float | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the clock run during one step."""
        self._begun = time.monotonic()
        try:
            yield
        finally:
            self._spent += time.monotonic() - self._begun
            self._begun = None

    def left(self) -> float | None:
        """Return the seconds that are left, 0 at least; None where there is no limit."""
        if self.seconds is None:
            return None
        now = 0.0 if self._begun is None else time.monotonic() - self._begun
        return max(0.0, self.seconds - self._spent - now)

    def check(self) -> None:
        """Raise where the time is over.

        Raises
        ------
        LimitError
            If no time is left.
        """
        if self.left() == 0.0:
            raise self.exceeded()

    def exceeded(self, file: str | None = None, line: int = 0) -> LimitError:
        """Return the error of a compilation whose time is over, at a place where one is known."""
        assert self.seconds is not None
        return LimitError("seconds", self.seconds, STOPPED, file or self.file, line)
