"""Find where in global memory the data come from that threads store to shared memory.

For an asynchronous copy the origin is known. For what a thread loads and stores it follows from the
bits, if the thread has loaded them from one place only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.recording.events import Event
from tilewise.lens.tables import NOTHING

REMEMBERED = 64  # loads of a thread
Addresses = npt.NDArray[np.int64]


class Origins:
    """The origins of the data in one block's events, which are followed in order."""

    def __init__(self) -> None:
        self._loaded: dict[int, deque[tuple[bytes, int]]] = {}
        self._copied: dict[tuple[int, int], deque[int]] = {}

    def see(self, event: Event) -> Addresses | None:
        """Return the address in global memory that each thread's data come from, for a store.

        Returns
        -------
        ndarray of int64, shape (threads,), or None
            The addresses, ``NOTHING`` where they are not known; None if the event is not a store to
            shared memory.
        """
        if event.is_copy and event.target is not None:
            self._copies(event)
        elif event.is_copy and event.kind == "store":
            return self._arrived(event)
        elif event.values is None or event.address is None or event.held:
            return None
        elif (event.kind, event.space) == ("load", "global"):
            for thread, address, bits in _each(event):
                loads = self._loaded.setdefault(thread, deque(maxlen=REMEMBERED))
                loads.append((bits, address))
        elif (event.kind, event.space) == ("store", "shared"):
            return np.array([self._found(thread, bits) for thread, _, bits in _each(event)])
        return None

    def _found(self, thread: int, bits: bytes) -> int:
        places = {at for loaded, at in self._loaded.get(thread, ()) if loaded == bits}
        return places.pop() if len(places) == 1 else NOTHING

    def _copies(self, event: Event) -> None:
        assert event.target is not None
        sources = {}
        if event.address is not None:  # otherwise all of them bring zeros
            sources = dict(zip(event.threads.tolist(), event.address.tolist(), strict=True))
        for thread, to in zip(*(x.tolist() for x in event.target), strict=True):
            waiting = self._copied.setdefault((thread, to), deque())
            waiting.append(sources.get(thread, NOTHING))

    def _arrived(self, event: Event) -> Addresses:
        assert event.address is not None
        found = []
        for key in zip(event.threads.tolist(), event.address.tolist(), strict=True):
            waiting = self._copied.get(key)
            found.append(waiting.popleft() if waiting else NOTHING)
        return np.array(found, np.int64)


def needed(events: Sequence[Event]) -> bool:
    """Return whether some event moves 16 bytes at once, whose origins are worth showing."""
    return any(
        event.held or event.move is not None or (event.space == "shared" and event.width == 16)
        for event in events
    )


def _each(event: Event) -> list[tuple[int, int, bytes]]:
    """Return each thread with its address and its bits."""
    assert event.values is not None
    assert event.address is not None
    values: npt.NDArray[Any] = np.ascontiguousarray(event.values)
    rows = values.reshape(len(values), -1).view(np.uint8)
    threads, addresses = event.threads.tolist(), event.address.tolist()
    return [
        (thread, address, row.tobytes())
        for thread, address, row in zip(threads, addresses, rows, strict=True)
    ]
