"""Which sectors of global memory the blocks reach, each counted once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.counting import SECTOR
from tilewise.devices.emulator.lanes import Lanes
from tilewise.devices.emulator.memory import Allocation
from tilewise.devices.emulator.regions import ZERO, Box, Shift
from tilewise.launch import Footprint

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

Sectors = npt.NDArray[np.bool_]
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
        self._batch: dict[tuple[int, bool, Shift], Sectors] = {}
        self._all: dict[tuple[int, bool], Sectors] = {}
        self._allocations: dict[int, Allocation] = {}

    def blocks_at_once(self) -> int:
        """How many blocks a batch may have, so that its tables are not too large."""
        return CELLS // max(1, self.machine.memory.sectors())

    def add(self, address: Any, lanes: Lanes, width: int, writes: bool) -> None:
        """Note an access of some lanes: ``address`` an int, or one a lane."""
        blockwise = self.machine.blockwise
        shift = ZERO if blockwise is None else blockwise.shift
        low, high = (address, address) if isinstance(address, int) else (
            int(address.min()), int(address.max())
        )  # fmt: skip
        found = self.machine.memory.find(low, high + width)
        if found is not None:
            self._add(found, address, lanes, writes, shift)
            return
        for start in np.unique(address):
            owner = self.machine.memory.find(int(start), int(start) + width)
            if owner is not None:
                self._add(owner, int(start), lanes.where(address == start), writes, shift)

    def _add(
        self, owner: Allocation, address: Any, lanes: Lanes, writes: bool, shift: Shift
    ) -> None:
        key = owner.base, writes, shift
        table = self._batch.get(key)
        if table is None:
            self._allocations[owner.base] = owner
            table = np.zeros((self.machine.geometry.block_count, sectors_of(owner)), np.bool_)
            self._batch[key] = table
        rows = lanes.pick(self.machine.geometry.block_of)
        table[rows, address // SECTOR - owner.base // SECTOR] = True

    def end(self, box: Box | None = None) -> None:
        """The batch is done; with ``box``, it was one block that stands for these."""
        count = 1 if box is None else box.count
        loads: dict[int, Sectors] = {}
        for (base, writes, shift), table in self._batch.items():
            if not writes:
                known = loads.get(base)
                loads[base] = table if known is None else known | table
            everything = self._all.setdefault(
                (base, writes), np.zeros(sectors_of(self._allocations[base]), np.bool_)
            )
            reached = np.flatnonzero(table.any(axis=0))
            if box is None or shift == ZERO:
                everything[reached] = True
                continue
            for moved in np.array_split(box.moved(shift) // SECTOR, _parts(box, len(reached))):
                at = (moved[:, None] + reached).reshape(-1)
                everything[at[(at >= 0) & (at < len(everything))]] = True
        self.block_loads += count * sum(int(np.count_nonzero(table)) for table in loads.values())
        self._batch.clear()

    def result(self) -> Footprint:
        """Of all that was run."""
        loads, stores = (
            sum(int(np.count_nonzero(x)) for (_, w), x in self._all.items() if w is writes)
            for writes in (False, True)
        )
        return Footprint(self.block_loads, loads, stores)


def sectors_of(allocation: Allocation) -> int:
    """Sectors that an allocation has a part in."""
    return (allocation.base + allocation.size - 1) // SECTOR - allocation.base // SECTOR + 1


def _parts(box: Box, reached: int) -> int:
    """Into how many pieces the moves are taken, so that none is too large."""
    return max(1, box.inside.size * max(reached, 1) // (1 << 22))
