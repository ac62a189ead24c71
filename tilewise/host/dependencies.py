"""Which steps wait for which: what was last done to each cell of the GPU's memory."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any


class Completion:
    """The completion of a step: the events that those which come after it wait for.

    Parameters
    ----------
    events : sequence, optional
        Recorded behind it. Without, another thread has yet to enqueue it.
    stream : object, optional
        The one that it was enqueued on, if that is one alone.
    """

    def __init__(self, events: Sequence[Any] | None = None, stream: Any = None) -> None:
        self.stream = stream
        self._events: Sequence[Any] = () if events is None else events
        self._enqueued = threading.Event() if events is None else None

    def enqueued(self, events: Sequence[Any]) -> None:
        """Say that the step was enqueued, with the events behind it; none where it failed."""
        assert self._enqueued is not None
        self._events = events
        self._enqueued.set()

    @property
    def events(self) -> Sequence[Any]:
        """The events behind it, as soon as it is enqueued."""
        if self._enqueued is not None:
            self._enqueued.wait()
        return self._events


class Dependencies:
    """What was done to each cell."""

    def __init__(self) -> None:
        self._written: dict[int, Completion] = {}
        self._read: dict[int, list[Completion]] = defaultdict(list)

    def before(
        self, stream: Any, reads: Iterable[int] = (), writes: Iterable[int] = ()
    ) -> list[Any]:
        """Return the events that come before a stream reads and writes these cells.

        What the stream itself was given comes in order, and is not among them.
        """
        found: dict[int, Any] = {}

        def note(done: Completion | None) -> None:
            if done is not None and (stream is None or done.stream != stream):
                found.update((id(event), event) for event in done.events)

        for cell in reads:
            note(self._written.get(cell))
        for cell in writes:
            note(self._written.get(cell))
            for done in self._read[cell]:
                note(done)
        return list(found.values())

    def after(
        self, done: Completion, reads: Iterable[int] = (), writes: Iterable[int] = ()
    ) -> None:
        """Note a step that reads and writes these cells."""
        for cell in writes:
            self._written[cell] = done
            self._read[cell].clear()
        for cell in reads:
            # An earlier reading on the same stream has come when this one has.
            others = [x for x in self._read[cell] if x.stream is None or x.stream != done.stream]
            self._read[cell] = [*others, done]
