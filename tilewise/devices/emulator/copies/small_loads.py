"""Small bulk loads that many lanes start by one instruction, done at once.

Each lane's load counts as ended, and its barrier as notified, before the next lane's starts. If
several consecutive loads touch different places, end no phase, and have nothing to report, then
doing them all at once has the same result, in a time that hardly depends on their number.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.copies.transfers import BARRIER, BulkCopy, GlobalRows
from tilewise.devices.emulator.memory.global_memory import OUTSIDE, UNWRITTEN, Allocation
from tilewise.devices.emulator.memory.storage import Bytes
from tilewise.devices.emulator.threads.lanes import Index
from tilewise.tensor_map import PIECE

_SMALL = 512
_LEAST = 2
Addresses = npt.NDArray[np.int64]


class SmallLoads:
    """The bulk loads that lanes start by one instruction, each from global memory.

    Parameters
    ----------
    copy : BulkCopy
    lanes : ndarray of intp, shape (n,)
    targets, sources, sizes, barriers : ndarray, shape (n,)
        The operands of each lane.
    """

    def __init__(
        self,
        copy: BulkCopy,
        lanes: Index,
        targets: Addresses,
        sources: Addresses,
        sizes: npt.NDArray[np.uint32],
        barriers: Addresses,
    ) -> None:
        self._copy, self._lanes, self._sources = copy, lanes, sources
        self._sizes = sizes.astype(np.int64)
        machine = copy.machine
        self._rows = machine.geometry.block_of[lanes]
        right = (self._sizes > 0) & (self._sizes <= _SMALL) & (self._sizes % PIECE == 0)
        right &= sources % PIECE == 0
        self._offsets, there = self._own(targets, self._sizes, PIECE)
        at, told = self._own(barriers, BARRIER, BARRIER)
        right &= there & told
        self._barrier = np.full(len(lanes), -1, np.intp)
        self._barrier[right] = machine.mbarriers.numbers_at(self._rows[right], at[right])
        right &= self._barrier >= 0
        self._allocation = np.full(len(lanes), -1, np.intp)
        self._allocations: list[Allocation] = []
        self._find(right)
        right &= self._allocation >= 0
        # For each load, the next load that can't be done at once with it.
        self._right = right
        alike = (self._sizes[1:] == self._sizes[:-1]) & right[1:] & right[:-1]
        alike &= self._allocation[1:] == self._allocation[:-1]
        self._ends = np.append(np.flatnonzero(~alike) + 1, len(lanes))
        self._overlapped = self._overlaps()

    def _own(
        self, addresses: Addresses, sizes: Addresses | int, alignment: int
    ) -> tuple[Addresses, npt.NDArray[np.bool_]]:
        """Return offsets in shared memory, and which are in their lane's own block, and aligned."""
        machine = self._copy.machine
        rows, offsets = machine.clusters.locate(addresses, self._rows)
        right = (rows == self._rows) & (offsets >= 0) & (offsets + sizes <= machine.shared.size)
        return offsets, right & (offsets % alignment == 0)

    def _find(self, right: npt.NDArray[np.bool_]) -> None:
        """Find the allocations that the loads read from, where all they read was written."""
        machine, sources, ends = self._copy.machine, self._sources, self._sources + self._sizes
        left = np.flatnonzero(right)
        while len(left):
            found = machine.memory.find(int(sources[left[0]]), int(ends[left[0]]))
            if found is None:
                left = left[1:]
                continue
            inside = (sources[left] >= found.base) & (ends[left] <= found.base + found.size)
            chosen, left = left[inside], left[~inside]
            if found.state is not None:
                chosen = chosen[self._is_there(found, chosen)]
            self._allocation[chosen] = len(self._allocations)
            self._allocations.append(found)

    def _is_there(self, owner: Allocation, chosen: Index) -> npt.NDArray[np.bool_]:
        """Return which loads read nothing outside of an array, and nothing uninitialised."""
        assert owner.state is not None
        right = np.ones(len(chosen), np.bool_)
        for size in np.unique(self._sizes[chosen]):
            which = np.flatnonzero(self._sizes[chosen] == size)
            state = owner.state[self._places(owner, chosen[which], int(size))]
            right[which] = ~(state == OUTSIDE).any(axis=1)
            if self._copy.machine.is_checking:
                unwritten = (state.reshape(len(which), -1, PIECE) == UNWRITTEN).all(axis=2)
                right[which] &= ~unwritten.any(axis=1)
        return right

    def _places(self, owner: Allocation, chosen: Index, size: int) -> Index:
        """Return the places in an allocation that loads of one size read, shape (n, size)."""
        first = (self._sources[chosen] - owner.base).astype(np.intp)
        return first[:, None] + np.arange(size)

    def _overlaps(self) -> Index:
        """Return for each load the last one before it that writes some of the same bytes; or -1."""
        last = np.full(len(self._lanes), -1, np.intp)
        chosen = np.flatnonzero(self._right)
        pieces = self._sizes[chosen] // PIECE
        turn = np.repeat(chosen, pieces)
        within = np.arange(len(turn)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        first = self._rows[chosen] * self._copy.machine.shared.pitch + self._offsets[chosen]
        place = np.repeat(first // PIECE, pieces) + within
        order = np.argsort(place, kind="stable")
        again = np.flatnonzero(place[order][1:] == place[order][:-1])
        np.maximum.at(last, turn[order[again + 1]], turn[order[again]])
        return last

    def take(self, first: int) -> int:
        """Do those loads from ``first`` on that may be done at once.

        Returns
        -------
        int
            The number of loads done; 0 if the first has to be done alone.
        """
        end = int(self._ends[np.searchsorted(self._ends, first, "right")])
        met = np.flatnonzero(self._overlapped[first:end] >= first)
        count = int(met[0]) if len(met) else end - first
        if count < _LEAST or not self._right[first]:
            return 0
        machine, op = self._copy.machine, self._copy.op
        size = int(self._sizes[first])
        count = machine.mbarriers.first_end(self._barrier[first : first + count], size)
        if count < _LEAST:
            return 0
        if machine.ordering is not None:
            some = slice(first, first + count)
            count = machine.ordering.first_late(
                op, self._lanes[some], self._offsets[some], size, self._barrier[some]
            )
            if count < _LEAST:
                return 0
        self._load(np.arange(first, first + count), size)
        return count

    def _load(self, chosen: Index, size: int) -> None:
        """Read global memory, write shared memory, and notify the barriers."""
        machine, op = self._copy.machine, self._copy.op
        lanes, offsets, barrier = self._lanes[chosen], self._offsets[chosen], self._barrier[chosen]
        owner = self._allocations[self._allocation[chosen[0]]]
        for lane, first in zip(lanes.tolist(), self._sources[chosen].tolist(), strict=True):
            self._copy.count(lane, GlobalRows(owner, first - owner.base, (size,), ()))
        if machine.global_races is not None:
            machine.global_races.loaded(op, lanes, self._sources[chosen], size)
        data: Bytes = owner.data[self._places(owner, chosen, size)]
        place = (self._rows[chosen] * machine.shared.pitch + offsets)[:, None] + np.arange(size)
        machine.shared.data[place] = data
        if machine.is_checking:
            assert machine.shared.written is not None
            machine.shared.written[place] = 1
        if machine.ordering is not None:
            machine.ordering.loaded(op, lanes, offsets, size, barrier)
        machine.mbarriers.expect(barrier, np.full(len(barrier), -size, np.int64))
