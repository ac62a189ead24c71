"""Hold global memory: allocations behind addresses.

Every allocation has a gap behind it, so that running past an array leaves it.
"""

from __future__ import annotations

import bisect
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewise.devices import virtual
from tilewise.devices.emulator.memory.storage import Bytes

FIRST_ADDRESS = 1 << 44
ALIGNMENT = 512
GAP = 1 << 36
"""The bytes between allocations: more than an index of 32 bits can bridge."""

_FIRST_PARAMETERS, _LAST_PARAMETERS, _PARAMETERS = 1 << 28, 1 << 31, 1 << 16
"""The addresses where parameters of kernels lie, and their distance: LLVM takes these addresses to
have 32 bits.
"""

WRITTEN, UNWRITTEN, OUTSIDE = 1, 0, 2
"""The states of a byte: it has a value; nobody wrote it; it is a gap between the rows of a view."""


class Allocation:
    """A piece of global or constant memory.

    Parameters
    ----------
    base : int
        The address of the first byte.
    size : int
        The size in bytes.
    name : str
        The name that a person calls it by.
    dtype : numpy dtype
        The dtype of an element, for naming places in it.
    pitches : tuple of int
        Bytes from one index to the next, one an axis; the last is the element's size.
    state : ndarray of uint8, shape (size,), optional
        ``WRITTEN``, ``UNWRITTEN`` or ``OUTSIDE`` a byte; none where every byte has a value.
    is_written : bool
        Whether some of it will be written (:func:`tilewise.devices.virtual.zeros`).

    Attributes
    ----------
    is_constant : bool
        Whether it is a ``__constant__`` variable, of which nobody wrote what has no value.
    """

    def __init__(
        self,
        base: int,
        size: int,
        name: str,
        dtype: np.dtype[Any],
        pitches: tuple[int, ...],
        state: Bytes | None = None,
        is_written: bool = True,
    ) -> None:
        self.base, self.size, self.name = base, size, name
        self.dtype, self.pitches = dtype, pitches
        # Whole 16-byte pieces, so that it can be viewed in any element type.
        self.data: Bytes = virtual.zeros(-(-size // 16) * 16, np.uint8, is_written=is_written)
        self.state: Bytes | None = None
        if state is not None:
            self.state = np.full(len(self.data), OUTSIDE, np.uint8)
            self.state[:size] = state
        self.is_written = False
        self.is_constant = False

    def leave_unset(self, state: Bytes) -> None:
        """Mark it as a constant whose bytes of that state nobody set."""
        self.is_constant = True
        self.state = np.full(len(self.data), OUTSIDE, np.uint8)
        self.state[: self.size] = state

    def place(self, address: int) -> int | tuple[int, ...]:
        """Return the element index that an address, perhaps past the end, has in this array."""
        offset = address - self.base
        index = [0] * len(self.pitches)
        # The widest steps come first; a view's axes may be in any order.
        for axis in sorted(range(len(index)), key=lambda axis: -self.pitches[axis]):
            pitch = self.pitches[axis]
            index[axis] = offset // pitch if pitch else 0
            offset -= index[axis] * pitch
        return tuple(index) if len(index) > 1 else sum(index)


class GlobalMemory:
    """The allocations that a launch may reach.

    Threads may add and remove allocations at once. The table is replaced, never changed, so that a
    look-up sees one state of it.
    """

    def __init__(self) -> None:
        self._table: tuple[list[int], list[Allocation]] = ([], [])
        self._next = FIRST_ADDRESS
        self._next_parameters = _FIRST_PARAMETERS
        self._lock = threading.Lock()
        self._released: deque[Allocation] = deque()

    def reserve(self, size: int) -> int:
        """Return an address for ``size`` bytes, apart from all others."""
        with self._lock:
            base = self._next
            self._next += -(-(size + GAP) // ALIGNMENT) * ALIGNMENT
            return base

    def reserve_parameters(self) -> int:
        """Reserve an address of 32 bits for the parameters of a launch, which are at most 32 KiB.

        The address is given out again some 30,000 launches later.
        """
        with self._lock:
            base = self._next_parameters
            after = base + _PARAMETERS
            self._next_parameters = after if after < _LAST_PARAMETERS else _FIRST_PARAMETERS
            return base

    def add(self, allocation: Allocation) -> None:
        self._replace([allocation], [])

    def remove(self, allocations: Sequence[Allocation]) -> None:
        self._replace([], allocations)

    def release(self, allocation: Allocation) -> None:
        """Remove an allocation later: a finalizer may run at any place, under the lock too."""
        self._released.append(allocation)

    def _replace(self, added: Sequence[Allocation], removed: Sequence[Allocation]) -> None:
        with self._lock:
            gone = {id(allocation) for allocation in removed}
            while self._released:
                gone.add(id(self._released.popleft()))
            kept = [a for a in (*self._table[1], *added) if id(a) not in gone]
            kept.sort(key=lambda allocation: allocation.base)
            self._table = [allocation.base for allocation in kept], kept

    def all(self) -> Sequence[Allocation]:
        """Return all allocations in the order of their addresses."""
        return self._table[1]

    def find(self, low: int, high: int) -> Allocation | None:
        """Return the allocation that holds all bytes from ``low`` up to ``high``."""
        bases, allocations = self._table
        at = bisect.bisect(bases, low) - 1
        if at < 0:
            return None
        found = allocations[at]
        return found if high <= found.base + found.size else None

    def nearest(self, address: int) -> Allocation | None:
        """Return the allocation closest to an address; None where none is near."""
        bases, allocations = self._table
        after = bisect.bisect(bases, address)
        around = allocations[max(after - 1, 0) : after + 1]
        found = min(around, key=lambda a: _distance(a, address), default=None)
        if found is None:
            return None
        gap = GAP if found.base >= FIRST_ADDRESS else _PARAMETERS
        return found if _distance(found, address) < gap // 2 else None


def _distance(allocation: Allocation, address: int) -> int:
    """Return the bytes from an address to an allocation; 0 within it."""
    end = allocation.base + allocation.size
    return max(allocation.base - address, address - end, 0)
