"""Let the four warps of a warpgroup meet: ``wgmma`` is one instruction of 128 threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tilewise.devices.emulator.threads.lanes import WARPGROUP, Index, Lanes
from tilewise.devices.emulator.threads.op import Groups, Op

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine


class Warpgroups:
    """The lanes that wait for the others of their warpgroup."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.start()

    def start(self) -> None:
        """Start a new batch."""
        self._waiting: dict[Op, Lanes] = {}

    def arrive(self, op: Op, meet: Callable[[Lanes], None], lanes: Lanes) -> Groups:
        """Let lanes arrive at an instruction; ``meet`` runs it for each complete warpgroup."""
        machine = self.machine
        before = self._waiting.pop(op, None)
        if before is not None:
            machine.parked -= before.count
            lanes = machine.union(lanes, before)
        number = self._number(lanes)
        complete = np.bincount(number)[number] == WARPGROUP
        if complete.all():
            ready = lanes
        else:
            ready, rest = lanes.where(complete), lanes.where(~complete)
            self._waiting[op] = rest
            machine.parked += rest.count
            if not ready.count:
                return []
        meet(ready)
        return [(op.index + 1, ready)]

    def _number(self, lanes: Lanes) -> Index:
        """Return the lanes' warpgroups, numbered through the batch."""
        geometry = self.machine.geometry
        each = -(-geometry.threads // WARPGROUP)
        number: Index = geometry.block_of * each + geometry.thread_of // WARPGROUP
        return lanes.pick(number)

    def report_stuck(self) -> None:
        """Report lanes that wait for others which never come."""
        for op, lanes in self._waiting.items():
            number = self._number(lanes)
            there = np.count_nonzero(number == number[0])
            op.fault(
                "barrier",
                f"waits forever at {op.instruction}: {there} of the {WARPGROUP} threads of its "
                "warpgroup reach it",
                int(lanes.numbers[0]),
                None,
                self.machine.geometry.of_one_block(lanes.numbers) - 1,
            )
