"""The fault at which a recorded run ends: who, by which instruction, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.recording.events import Attempt, Fault
from tilewise.devices.emulator.recording.operands import generic
from tilewise.devices.emulator.threads.faults import IMMEDIATE, Place, Site
from tilewise.devices.emulator.threads.lanes import Geometry, Lanes
from tilewise.devices.emulator.threads.op import Op
from tilewise.errors import CheckError

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine


class Noted:
    """Notes the instruction and the lane of the fault that a check finds.

    Parameters
    ----------
    machine : Machine
        New; its faults are wrapped.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._last: tuple[int, int] | None = None  # an instruction and a lane
        self._place: Place | None = None
        self._attempt: Attempt | None = None
        add = machine.faults.add

        def noted(
            kind: str, site: Site, message: str, geometry: Geometry, lane: int,
            place: Place | None = None, others: int = 0,
        ) -> None:  # fmt: skip
            self._last, self._attempt = (site.instruction, lane), None
            self._place = None if place is None or place.array is None else place
            add(kind, site, message, geometry, lane, place, others)

        machine.faults.add = noted  # type: ignore[method-assign]

    def attempted(
        self, op: Op, kind: str, space: str, lanes: Lanes, address: npt.NDArray[np.int64]
    ) -> None:
        """Take note of an access that was not made because a check found a fault in it."""
        if self._last is None or op.index != self._last[0]:
            return
        block_of = self.machine.geometry.block_of
        chosen = lanes.where(lanes.pick(block_of) == block_of[self._last[1]])
        where = address[np.isin(lanes.numbers, chosen.numbers)]
        if space == "global":
            where, space = generic(where)
        if space == "shared":
            where = chosen.in_own_block(where)
        threads = self.machine.geometry.threads
        self._attempt = Attempt(
            op.index, kind, space, op.width, chosen.numbers % threads, np.array(where, np.int64)
        )

    def fault(self, error: CheckError) -> tuple[Fault | None, int]:
        """Return the fault of an error and the row of its block; None and -1 if no block has it."""
        if self._last is None:
            return None, -1
        index, lane = self._last
        finding, machine = error.findings[-1], self.machine
        row = int(machine.geometry.block_of[lane])
        attempt = self._attempt if finding.kind in IMMEDIATE else None
        place = self._place
        space, address = ("", 0) if place is None else (place.space, place.address)
        fault = Fault(
            error, finding, index, machine.setup.sources.own_line(machine.ops[index].instruction),
            lane - row * machine.geometry.threads, space, address,
            machine.ops[index].element, attempt,
        )  # fmt: skip
        return fault, row
