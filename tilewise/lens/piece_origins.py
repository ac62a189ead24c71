"""Where what threads store to shared memory comes from in global memory.

Of an asynchronous copy it is known. Of what a thread loads and stores it follows from its bits: the
thread has loaded them from one place, and from no other.
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
    """Follows one block's events, in order."""

    def __init__(self) -> None:
        self._loaded: dict[int, deque[tuple[bytes, int]]] = {}
        self._copied: dict[tuple[int, int], deque[int]] = {}

    def see(self, event: Event) -> Addresses | None:
        """Of a store to shared memory: the address in global memory that each thread's comes from.

        Returns
        -------
        ndarray of int64, shape (threads,), or None
            ``NOTHING`` where that is not known; None of an event that is no such store.
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
        if event.address is not None:  # else all of them bring zeros
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
    """Whether some event moves 16 bytes at once, of which one wants to know what they are."""
    return any(
        event.held or event.move is not None or (event.space == "shared" and event.width == 16)
        for event in events
    )


def _each(event: Event) -> list[tuple[int, int, bytes]]:
    """Each thread, its address, and its bits."""
    assert event.values is not None
    assert event.address is not None
    values: npt.NDArray[Any] = np.ascontiguousarray(event.values)
    rows = values.reshape(len(values), -1).view(np.uint8)
    threads, addresses = event.threads.tolist(), event.address.tolist()
    return [
        (thread, address, row.tobytes())
        for thread, address, row in zip(threads, addresses, rows, strict=True)
    ]
