"""Let lanes of a warp meet: ``.sync`` instructions wait for the lanes that their mask names."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.threads.lanes import WARP, Lanes
from tilewise.devices.emulator.threads.op import Groups, Op, Value
from tilewise.shown import plural

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

Mask = npt.NDArray[np.uint64]
Meet = Callable[[Lanes, Mask], None]
ALL_LANES, ONE = 0xFFFFFFFF, np.uint64(1)


def warp_bits(lanes: Lanes) -> Mask:
    """Return a number for each warp, whose bit i is set if lane i is in the set; shape (warps,)."""
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
    is_watched: bool = False


class Meetings:
    """The lanes that wait for others of their warp."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.start()

    def start(self) -> None:
        """Start a new batch."""
        self._waiting: dict[Hashable, list[_Waiting]] = {}
        self._meet: dict[Hashable, Meet] = {}

    def arrive(self, key: Hashable, op: Op, meet: Meet, lanes: Lanes, mask: Value) -> Groups:
        """Let lanes come to a meeting, and go on if all that they wait for are there.

        ``meet`` runs once for all that go on together, with their masks.
        """
        machine = self.machine
        masks = np.broadcast_to(mask, lanes.count).astype(np.uint64)
        if key not in self._waiting and lanes.count == machine.live_count:
            is_plain = not np.ndim(mask) and int(mask) == ALL_LANES and lanes.index is None
            if machine.is_checking and not is_plain:
                self._check([_Waiting(op, lanes, masks)])
            meet(lanes, masks)
            return [(op.index + 1, lanes)]
        self._waiting.setdefault(key, []).append(_Waiting(op, lanes, masks))
        self._meet[key] = meet
        machine.parked += lanes.count
        self._open(key)
        for waiting in self._waiting.get(key, ()) if machine.is_checking else ():
            if not waiting.is_watched:
                machine.bypasses.waits(waiting.op, waiting.lanes, machine.geometry.warp_of)
                waiting.is_watched = True
        return []

    def lanes_ended(self) -> None:
        """Let lanes go on that waited for lanes which have ended."""
        for key in list(self._waiting):
            self._open(key)

    def _open(self, key: Hashable) -> None:
        machine, geometry = self.machine, self.machine.geometry
        here = np.zeros(geometry.warp_count, np.uint64)
        for waiting in self._waiting[key]:
            here |= warp_bits(waiting.lanes)
        alive = self._alive()
        released: list[_Waiting] = []
        kept: list[_Waiting] = []
        for waiting in self._waiting.pop(key):
            warp = waiting.lanes.pick(geometry.warp_of)
            goes = (waiting.masks & alive[warp] & ~here[warp]) == 0
            for chosen, pile in ((goes, released), (~goes, kept)):
                if chosen.all():
                    pile.append(waiting)
                elif chosen.any():
                    lanes = waiting.lanes.where(chosen)
                    masks = waiting.masks[chosen]
                    pile.append(_Waiting(waiting.op, lanes, masks, waiting.is_watched))
        if kept:
            self._waiting[key] = kept
        if not released:
            return
        if machine.is_checking:
            self._check(released)
        together = machine.together([waiting.lanes for waiting in released])
        masks = np.zeros(geometry.count, np.uint64)
        for waiting in released:
            masks[waiting.lanes.numbers] = waiting.masks
        self._meet[key](together, together.pick(masks))
        for waiting in released:
            machine.parked -= waiting.lanes.count
            if waiting.is_watched:
                machine.bypasses.goes_on(waiting.op, waiting.lanes)
            machine.add_group(waiting.op.index + 1, waiting.lanes)

    def _alive(self) -> Mask:
        """Return for each warp the lanes that have not ended."""
        ended = self.machine.barriers.ended
        if ended is None:
            return warp_bits(self.machine.all)
        return warp_bits(Lanes(self.machine.geometry, np.flatnonzero(~ended), False))

    # The faults of the masks

    def _check(self, released: list[_Waiting]) -> None:
        """Check that lanes go on together with all that their masks name, which have that mask."""
        geometry = self.machine.geometry
        named = np.zeros(geometry.warp_count * WARP, np.uint64)
        for waiting in released:
            named[waiting.lanes.pick(geometry.slot_of)] = waiting.masks
        table = named.reshape(-1, WARP)
        for waiting in released:
            lanes, masks = waiting.lanes, waiting.masks
            lane = lanes.pick(geometry.lane_id).astype(np.uint64)
            self._report(
                waiting, (masks >> lane) & ONE == 0, "with a mask, {mask}, that lacks its own lane"
            )
            warp = lanes.pick(geometry.warp_of)
            others = table[warp]
            is_named = (masks[:, None] >> np.arange(WARP, dtype=np.uint64)) & ONE != 0
            differs = is_named & (others != masks[:, None]) & (others != 0)
            self._report(
                waiting, differs.any(axis=1), "with the mask {mask}, and a lane that it names with "
                "another"
            )  # fmt: skip
            if self.machine.barriers.ended is not None:
                self._check_ended(waiting, is_named & (others == 0))

    def _report(self, waiting: _Waiting, wrong: npt.NDArray[np.bool_], what: str) -> None:
        which = np.flatnonzero(wrong)
        if len(which):
            op, lane = waiting.op, waiting.lanes.numbers[which]
            mask = f"{int(waiting.masks[which[0]]):#010x}"
            others = self.machine.geometry.of_one_block(lane) - 1
            words = f"runs {op.instruction.opcode} {what.format(mask=mask)}"
            op.fault("barrier", words, int(lane[0]), None, others)

    def _check_ended(self, waiting: _Waiting, missing: npt.NDArray[np.bool_]) -> None:
        """Report lanes that masks name and that ended; only those that went around are a fault."""
        machine, geometry = self.machine, self.machine.geometry
        who, lane = np.nonzero(missing)
        first = waiting.lanes.numbers[who]
        absent = first - geometry.lane_id[first] + lane
        exists = geometry.thread_of[first] // WARP * WARP + lane < geometry.threads
        absent, who = absent[exists], who[exists]
        if not len(absent):
            return
        op = waiting.op
        around = machine.bypasses.went_around(op, absent)
        if around.any():
            gone = np.unique(absent[around])
            count = geometry.of_one_block(gone)
            first_gone = geometry.thread_index(int(gone[0]))
            op.fault(
                "barrier",
                f"waits at {op.instruction} for {plural(count, 'thread')} that its mask names and "
                f"that {'goes' if count == 1 else 'go'} around it, thread {first_gone} the first",
                int(waiting.lanes.numbers[who[around][0]]),
            )
        else:
            gone = np.unique(absent)
            op.note(
                "barrier",
                f"ended before {op.instruction}, whose mask names it, as "
                f"{plural(geometry.of_one_block(gone), 'thread')} of its block did",
                int(gone[0]),
            )

    def report_stuck(self) -> None:
        """Report lanes that wait for others which never come."""
        for waiting in (w for several in self._waiting.values() for w in several):
            waiting.op.fault(
                "barrier",
                f"waits forever at {waiting.op.instruction} for lanes of its warp that its mask "
                f"{int(waiting.masks[0]):#010x} names",
                int(waiting.lanes.numbers[0]),
                None,
                self.machine.geometry.of_one_block(waiting.lanes.numbers) - 1,
            )
