"""Where lanes of a warp meet: ``.sync`` instructions wait for the lanes that their mask names."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.threads.lanes import Lanes
from tilewise.devices.emulator.threads.op import Groups, Op, Value

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

Mask = npt.NDArray[np.uint64]


def warp_bits(lanes: Lanes) -> Mask:
    """Bit i of a warp's number is set if its lane i is in the set; shape (warps,)."""
    geometry = lanes.geometry
    bits = np.zeros(geometry.warp_count, np.uint64)
    bit = np.uint64(1) << lanes.pick(geometry.lane_id).astype(np.uint64)
    np.bitwise_or.at(bits, lanes.pick(geometry.warp_of), bit)
    return bits


@dataclass
class _Waiting:
    op: Op
    lanes: Lanes
    masks: Mask


class Meetings:
    """Lanes that wait for others of their warp."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.start()

    def start(self) -> None:
        """A new batch begins."""
        self._waiting: dict[Hashable, list[_Waiting]] = {}
        self._meet: dict[Hashable, Callable[[Lanes], None]] = {}

    def arrive(
        self,
        key: Hashable,
        op: Op,
        meet: Callable[[Lanes], None],
        lanes: Lanes,
        mask: Value,
    ) -> Groups:
        """Lanes come to a meeting; ``meet`` runs once for all that go on together."""
        machine = self.machine
        if key not in self._waiting and lanes.count == machine.live_count:
            meet(lanes)
            return [(op.index + 1, lanes)]
        masks = np.broadcast_to(mask, lanes.count).astype(np.uint64)
        self._waiting.setdefault(key, []).append(_Waiting(op, lanes, masks))
        self._meet[key] = meet
        machine.parked += lanes.count
        self._open(key)
        return []

    def lanes_ended(self) -> None:
        """Lanes ended; those that wait for them wait no longer."""
        for key in list(self._waiting):
            self._open(key)

    def _open(self, key: Hashable) -> None:
        machine, geometry = self.machine, self.machine.geometry
        here = np.zeros(geometry.warp_count, np.uint64)
        for waiting in self._waiting[key]:
            here |= warp_bits(waiting.lanes)
        ended = machine.barriers.ended
        alive = warp_bits(
            machine.all if ended is None else Lanes(geometry, np.flatnonzero(~ended), False)
        )
        released: list[tuple[Op, Lanes]] = []
        kept: list[_Waiting] = []
        for waiting in self._waiting.pop(key):
            warp = waiting.lanes.pick(geometry.warp_of)
            goes = (waiting.masks & alive[warp] & ~here[warp]) == 0
            if goes.any():
                lanes = waiting.lanes if goes.all() else waiting.lanes.where(goes)
                released.append((waiting.op, lanes))
            if not goes.all():
                kept.append(_Waiting(waiting.op, waiting.lanes.where(~goes), waiting.masks[~goes]))
        if kept:
            self._waiting[key] = kept
        if not released:
            return
        together = released[0][1]
        for _, lanes in released[1:]:
            together = machine.union(together, lanes)
        self._meet[key](together)
        for op, lanes in released:
            machine.parked -= lanes.count
            machine.add_group(op.index + 1, lanes)

    def report_stuck(self) -> None:
        """Lanes wait for others that never come."""
        for waiting in (w for several in self._waiting.values() for w in several):
            waiting.op.fault(
                "barrier",
                f"waits forever at {waiting.op.instruction} for lanes of its warp that its mask "
                f"{int(waiting.masks[0]):#010x} names",
                int(waiting.lanes.numbers[0]),
                None,
                waiting.lanes.count - 1,
            )
