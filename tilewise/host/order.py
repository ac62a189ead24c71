"""Which steps wait for which: what was last done to each cell of the GPU's memory."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tilewise.host.lane import Lane, Stream


class Done:
    """A step, as those that come after it see it.

    Parameters
    ----------
    stream : Stream
        That it was given to.
    event : object, optional
        Behind it. Without one it is not enqueued yet: another thread will.
    """

    def __init__(self, stream: Stream, event: Any = None) -> None:
        self.stream = stream
        self._event = event
        self._enqueued = threading.Event()
        if event is not None:
            self._enqueued.set()

    def enqueued(self, event: Any) -> None:
        """Say that it was, with the event behind it; None where it failed."""
        self._event = event
        self._enqueued.set()

    @property
    def event(self) -> Any:
        """The event behind it, as soon as it is enqueued; None where it failed."""
        self._enqueued.wait()
        return self._event


class Order:
    """What was done to each cell."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._written: dict[int, Done] = {}
        self._read: dict[int, list[Done]] = defaultdict(list)

    def before(self, stream: Stream, reads: Iterable[int] = (), writes: Iterable[int] = ()) -> None:
        """Have a stream wait for what must be done before it reads and writes these cells."""
        waited: set[int] = set()

        def wait(done: Done | None) -> None:
            # What the stream itself was given comes in order.
            if done is None or done.stream == stream or id(done) in waited:
                return
            waited.add(id(done))
            event = done.event
            if event is not None:
                self._lane.wait(stream, event)

        for cell in reads:
            wait(self._written.get(cell))
        for cell in writes:
            wait(self._written.get(cell))
            for done in self._read[cell]:
                wait(done)

    def after(self, done: Done, reads: Iterable[int] = (), writes: Iterable[int] = ()) -> None:
        """Note a step that reads and writes these cells."""
        for cell in writes:
            self._written[cell] = done
            self._read[cell].clear()
        for cell in reads:
            # An earlier reading on the same stream has come when this one has.
            self._read[cell] = [x for x in self._read[cell] if x.stream != done.stream] + [done]

    def writing(self, cells: Iterable[int]) -> Any:
        """Return the event behind the last step that writes these cells; they have one."""
        (done,) = {id(x): x for x in map(self._written.get, cells)}.values()
        assert done is not None
        return done.event
