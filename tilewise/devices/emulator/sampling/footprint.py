"""Count the sectors of global memory that the blocks reach, each of them once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewise.counted import Footprint
from tilewise.devices.emulator.counting.transactions import SECTOR
from tilewise.devices.emulator.memory.global_memory import Allocation
from tilewise.devices.emulator.sampling.affine import ZERO, Affine
from tilewise.devices.emulator.sampling.intervals import Collected, Integers, Union
from tilewise.devices.emulator.sampling.regions import Box
from tilewise.devices.emulator.threads.lanes import Lanes

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

_Move = tuple[Affine, int]
"""How the address of an access depends on ``blockIdx``; and where in a sector it begins, if all
lanes reach one place: all other accesses move by whole sectors."""


class Footprints:
    """The sectors that one batch of blocks reaches, and those of all batches before.

    It takes memory for the sectors that are reached, and none for the arrays that they are in.

    Parameters
    ----------
    machine : Machine
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.block_loads = 0
        self._batch: dict[tuple[int, bool, _Move], Collected] = {}
        self._all: dict[tuple[int, bool], Union] = {}
        self._allocations: dict[int, Allocation] = {}

    def add(self, address: Any, lanes: Lanes, width: int, writes: bool) -> None:
        """Note an access of some lanes: ``address`` an int, or one a lane."""
        tracker = self.machine.tracker
        affine = ZERO if tracker is None else tracker.affine
        low, high = (address, address) if isinstance(address, int) else (
            int(address.min()), int(address.max())
        )  # fmt: skip
        found = self.machine.memory.find(low, high + width)
        if found is not None:
            start = low % SECTOR if low == high and affine != ZERO else 0
            self._add(found, address, lanes, writes, (affine, start))
            return
        for start in np.unique(address):
            owner = self.machine.memory.find(int(start), int(start) + width)
            if owner is not None:
                self._add(owner, int(start), lanes.where(address == start), writes, (affine, 0))

    def _add(
        self, owner: Allocation, address: Any, lanes: Lanes, writes: bool, move: _Move
    ) -> None:
        collected = self._collected(owner, writes, move)
        sectors = address // SECTOR - owner.base // SECTOR
        if self.machine.geometry.block_count > 1:
            # A sector of each block is one of its own, until the batch ends.
            sectors = sectors + sectors_of(owner) * lanes.pick(self.machine.geometry.block_of)
        collected.add(np.atleast_1d(sectors))

    def _collected(self, owner: Allocation, writes: bool, move: _Move) -> Collected:
        key = owner.base, writes, move
        collected = self._batch.get(key)
        if collected is None:
            self._allocations[owner.base] = owner
            end = self.machine.geometry.block_count * sectors_of(owner)
            collected = self._batch[key] = Collected(end)
        return collected

    def add_sectors(self, owner: Allocation, sectors: Integers, block: int, writes: bool) -> None:
        """Note sectors of an allocation, by their numbers in memory, that a block reaches.

        To other blocks they move by whole sectors.
        """
        tracker = self.machine.tracker
        affine = ZERO if tracker is None else tracker.affine
        collected = self._collected(owner, writes, (affine, 0))
        own = sectors - owner.base // SECTOR
        if self.machine.geometry.block_count > 1:
            own = own + sectors_of(owner) * block
        collected.add(own)

    def end(self, box: Box | None = None) -> None:
        """End a batch; with ``box``, it was one cluster that stands for the clusters of the box."""
        loads: dict[int, dict[_Move, Integers]] = {}
        for (base, writes, (affine, start)), collected in self._batch.items():
            reached = collected.sorted()
            if not writes:
                loads.setdefault(base, {})[affine, start] = reached
            everything = self._all.setdefault((base, writes), Union())
            if self.machine.geometry.block_count > 1:
                reached = np.unique(reached % sectors_of(self._allocations[base]))
            if box is None or affine == ZERO:
                everything.add(reached, [])
            else:
                everything.add(reached, box.sectors_moved(affine, start))
        for tables in loads.values():
            if box is None or len(tables) == 1:
                count = 1 if box is None else box.count
                self.block_loads += count * sum(map(len, tables.values()))
            else:
                self.block_loads += _of_each(tables, box)
        self._batch.clear()

    def result(self) -> Footprint:
        """Return the footprint of all that was run."""
        loads, stores = (
            sum(x.count() for (_, w), x in self._all.items() if w is writes)
            for writes in (False, True)
        )
        return Footprint(self.block_loads, loads, stores)


def sectors_of(allocation: Allocation) -> int:
    """Return the number of sectors that an allocation lies in."""
    return (allocation.base + allocation.size - 1) // SECTOR - allocation.base // SECTOR + 1


def _of_each(tables: dict[_Move, Integers], box: Box) -> int:
    """Return the distinct sectors that each block of a box reaches, all together.

    Accesses that move differently from block to block meet in some blocks and not in others.
    """
    rows = list(tables.values())
    moves, counts = box.moves([affine for affine, _ in tables])
    moves = (moves + np.array([start for _, start in tables])) // SECTOR
    moves, place = np.unique(moves - moves[:, :1], axis=0, return_inverse=True)
    counts = np.bincount(place.reshape(-1), counts).astype(np.int64)
    total, parts = 0, _parts(len(moves) * sum(map(len, rows)))
    for some, blocks in zip(
        np.array_split(moves, parts), np.array_split(counts, parts), strict=True
    ):
        at = np.concatenate([some[:, [i]] + row for i, row in enumerate(rows)], axis=1)
        at.sort(axis=1)
        total += int(blocks @ (1 + np.count_nonzero(at[:, 1:] != at[:, :-1], axis=1)))
    return total


def _parts(cells: int) -> int:
    """Return the number of pieces that a table is split into, so that none is too large."""
    return max(1, cells // (1 << 22))
