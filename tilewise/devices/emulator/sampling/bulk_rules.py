"""Find the conditions of bulk copies and mbarriers on the blocks that do the same.

A bulk copy reaches shared memory and a barrier in the same places in all of them, and moves as many
bytes; where it reaches global memory may move by whole sectors, as long as it stays in its array
or, of a box that an edge cuts, at that edge. Then an mbarrier, whose threads arrive and whose bytes
come as they do here, is no loaded value: it lets the same threads pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tilewise.devices.emulator.copies.tensor_maps import BYTES, Tiled, decode
from tilewise.devices.emulator.copies.transfers import BulkCopy
from tilewise.devices.emulator.counting.transactions import SECTOR
from tilewise.devices.emulator.ptx.syntax import Address, Operand
from tilewise.devices.emulator.sampling.affine import ZERO, Dependence, added, extremes, scaled
from tilewise.devices.emulator.sampling.evaluation import Rule
from tilewise.devices.emulator.sampling.tracker import Tracker
from tilewise.devices.emulator.threads.lanes import Lanes
from tilewise.devices.emulator.threads.op import Op

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

_ELSEWHERE = "a bulk copy's places are not followed"


class BulkRules:
    """The rule of one instruction that copies in bulk, or of mbarriers.

    Parameters
    ----------
    tracker : Tracker
    op : Op
    """

    def __init__(self, tracker: Tracker, op: Op) -> None:
        self.tracker, self.op = tracker, op
        self.machine: Machine = tracker.machine
        self.modifiers = op.instruction.modifiers
        self.operands = op.instruction.operands
        self.copy = BulkCopy(self.machine, op)
        # A load's pairs of sectors come together if it goes to several blocks.
        self.step = 2 * SECTOR if "multicast::cluster" in self.modifiers else SECTOR

    def rule(self) -> Rule | None:
        """Return the rule, or None if there is nothing to follow."""
        if "mbarrier" in (self.op.instruction.opcode, *self.modifiers):
            return self._same_everywhere(self.operands)
        addresses = [x for x in self.operands if isinstance(x, Address)]
        if not addresses or "prefetch" in self.modifiers:
            return None
        box = next((x for x in addresses if x.coordinates), None)
        if box is not None:
            return self._box(box)
        places = [word.partition("::")[0] for word in self.modifiers]
        if "global" not in places:
            return self._same_everywhere(self.operands)
        is_store = places.index("global") < places.index("shared")
        return self._bytes(addresses[not is_store], self.operands[2])

    def _same_everywhere(self, operands: tuple[Operand, ...]) -> Rule:
        """Return the rule of an instruction that does the same if it has the same operands."""
        op, tracker = self.op, self.tracker
        dependences = self._dependences(operands)

        def rule(lanes: Lanes) -> Dependence:
            for dependence in dependences:
                if (found := dependence()) != ZERO:
                    tracker.decide(op, found)
            return ZERO

        return rule

    def _dependences(self, operands: tuple[Operand, ...]) -> list[Callable[[], Dependence]]:
        return [
            self.tracker.dependence_of(self.op, x.base if isinstance(x, Address) else x)
            for x in operands
        ]

    def _bytes(self, place: Address, length: Operand) -> Rule:
        """Return the rule of a copy of consecutive bytes at a place in global memory."""
        op, tracker, memory = self.op, self.tracker, self.machine.memory
        rest = self._same_everywhere(tuple(x for x in self.operands if x is not place))
        dependence = tracker.dependence_of(op, place.base)
        addresses, sizes = self.copy.addresses(place), self.copy.numbers(length, "u32")

        def rule(lanes: Lanes) -> Dependence:
            rest(lanes)
            found = dependence()
            tracker.reach(op, found, self.step)
            if found != ZERO:
                first = addresses(lanes)
                low, high = int(first.min()), int((first + sizes(lanes)).max())
                owner = memory.find(low, high)
                least, most = (
                    (high, low) if owner is None else (owner.base, owner.base + owner.size)
                )
                tracker.keep_inside(found, low, high, least, most)
            return ZERO

        return rule

    def _box(self, tensor: Address) -> Rule:
        """Return the rule of a copy of a box: it moves as its corner does."""
        op, tracker = self.op, self.tracker
        others = (*(x for x in self.operands if x is not tensor), Address(tensor.base))
        rest = self._same_everywhere(others)
        dependences = self._dependences(tensor.coordinates)
        corners = [self.copy.numbers(x, "s32") for x in tensor.coordinates]
        maps = self.copy.addresses(tensor)

        def rule(lanes: Lanes) -> Dependence:
            rest(lanes)
            found = [dependence() for dependence in dependences]
            moved: Dependence = ZERO
            if any(each != ZERO for each in found):
                tiled = self._map(maps(lanes))
                if tiled is None or len(tiled.extents) != len(found):
                    tracker.lose(op, _ELSEWHERE)
                    return ZERO
                for axis, (each, corner) in enumerate(zip(found, corners, strict=True)):
                    self._keep_in(tiled, axis, each, *extremes(corner(lanes)))
                    moved = added(moved, scaled(each, tiled.strides[axis]))
            tracker.reach(op, moved, self.step)
            return ZERO

        return rule

    def _map(self, addresses: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Tiled | None:
        """Return the tensor map that all lanes have; None if they have several, or none."""
        address = int(addresses[0])
        owner = self.machine.memory.find(address, address + BYTES)
        if owner is None or (addresses != address).any():
            return None
        first = address - owner.base
        return decode(owner.data[first : first + BYTES].tobytes())

    def _keep_in(
        self, tiled: Tiled, axis: int, dependence: Dependence, low: int, high: int
    ) -> None:
        """The boxes from coordinate ``low`` to ``high`` lie in the array along an axis in all
        blocks; or where one of them does not here, it is at the same coordinate in all."""
        if dependence == ZERO:
            return
        end, extent = high + tiled.box[axis], tiled.extents[axis]
        if low >= 0 and end <= extent:
            self.tracker.keep_inside(dependence, low, end, 0, extent)
        else:
            self.tracker.decide(self.op, dependence)
