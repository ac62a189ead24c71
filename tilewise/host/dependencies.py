"""The order of steps, by the last use of each cell of the GPU's memory."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any


class Completion:
    """The completion of a step, as events that later steps wait for.

    Parameters
    ----------
    events : sequence, optional
        The events recorded after the step. Without them, another thread has yet to enqueue the
        step.
    stream : object, optional
        The stream that the step was enqueued on, if it is a single one.
    """

    def __init__(self, events: Sequence[Any] | None = None, stream: Any = None) -> None:
        self.stream = stream
        self._events: Sequence[Any] = () if events is None else events
        self._enqueued = threading.Event() if events is None else None

    def enqueued(self, events: Sequence[Any]) -> None:
        """Set the events after the step, which has been enqueued; they are none if it failed."""
        assert self._enqueued is not None
        self._events = events
        self._enqueued.set()

    @property
    def events(self) -> Sequence[Any]:
        """The events after the step; reading them waits until the step is enqueued."""
        if self._enqueued is not None:
            self._enqueued.wait()
        return self._events


class Dependencies:
    """The last steps that wrote and read each cell."""

    def __init__(self) -> None:
        self._written: dict[int, Completion] = {}
        self._read: dict[int, list[Completion]] = defaultdict(list)

    def before(
        self, stream: Any, reads: Iterable[int] = (), writes: Iterable[int] = ()
    ) -> list[Any]:
        """Return the events that have to come before a stream reads and writes these cells.

        The work of a stream itself runs in order, so its events are left out.
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
        """Record a step that reads and writes these cells."""
        for cell in writes:
            self._written[cell] = done
            self._read[cell].clear()
        for cell in reads:
            # An earlier reading on the same stream has ended when this one has.
            others = [x for x in self._read[cell] if x.stream is None or x.stream != done.stream]
            self._read[cell] = [*others, done]
