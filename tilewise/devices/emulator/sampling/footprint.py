"""Which sectors of global memory the blocks reach, each counted once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.counting.transactions import SECTOR
from tilewise.devices.emulator.memory.global_memory import Allocation
from tilewise.devices.emulator.sampling.affine import ZERO, Affine
from tilewise.devices.emulator.sampling.regions import Box
from tilewise.devices.emulator.threads.lanes import Lanes
from tilewise.launch import Footprint

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

Sectors = npt.NDArray[np.bool_]
_Move = tuple[Affine, int]
"""How the address of an access depends on ``blockIdx``; and where in a sector it begins, if all
lanes reach one place: all other accesses move by whole sectors."""
CELLS = 1 << 26  # that a batch's table may have


class Footprints:
    """The sectors that one batch of blocks reaches, and those of all batches before.

    Parameters
    ----------
    machine : Machine
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.block_loads = 0
        self._batch: dict[tuple[int, bool, _Move], Sectors] = {}
        self._all: dict[tuple[int, bool], Sectors] = {}
        self._allocations: dict[int, Allocation] = {}

    def blocks_at_once(self) -> int:
        """How many blocks a batch may have, so that its tables are not too large."""
        return CELLS // max(1, self.machine.memory.sectors())

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
        key = owner.base, writes, move
        table = self._batch.get(key)
        if table is None:
            self._allocations[owner.base] = owner
            table = np.zeros((self.machine.geometry.block_count, sectors_of(owner)), np.bool_)
            self._batch[key] = table
        rows = lanes.pick(self.machine.geometry.block_of)
        table[rows, address // SECTOR - owner.base // SECTOR] = True

    def end(self, box: Box | None = None) -> None:
        """The batch has ended; with ``box``, it was one block that stands for these."""
        loads: dict[int, dict[_Move, Sectors]] = {}
        for (base, writes, (affine, start)), table in self._batch.items():
            if not writes:
                loads.setdefault(base, {})[affine, start] = table
            everything = self._all.setdefault(
                (base, writes), np.zeros(sectors_of(self._allocations[base]), np.bool_)
            )
            reached = np.flatnonzero(table.any(axis=0))
            if box is None or affine == ZERO:
                everything[reached] = True
                continue
            moves = (box.moved(affine) + start) // SECTOR
            for some in np.array_split(moves, _parts(len(moves) * len(reached))):
                everything[(some[:, None] + reached).reshape(-1)] = True
        for tables in loads.values():
            if box is None or len(tables) == 1:
                count = 1 if box is None else box.count
                self.block_loads += count * sum(int(np.count_nonzero(t)) for t in tables.values())
            else:
                self.block_loads += _of_each(tables, box)
        self._batch.clear()

    def result(self) -> Footprint:
        """The footprint of all that was run."""
        loads, stores = (
            sum(int(np.count_nonzero(x)) for (_, w), x in self._all.items() if w is writes)
            for writes in (False, True)
        )
        return Footprint(self.block_loads, loads, stores)


def sectors_of(allocation: Allocation) -> int:
    """How many sectors an allocation lies in."""
    return (allocation.base + allocation.size - 1) // SECTOR - allocation.base // SECTOR + 1


def _of_each(tables: dict[_Move, Sectors], box: Box) -> int:
    """Distinct sectors that each block of a box reaches, all together.

    Accesses that move otherwise from block to block meet in some blocks and not in others.
    """
    rows = [np.flatnonzero(table) for table in tables.values()]
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
    """Into how many pieces a table is split, so that none is too large."""
    return max(1, cells // (1 << 22))
