"""Find races in shared memory: unordered accesses of two threads to one place, one a write.

Every access is logged, and so is everything that orders threads, up to the block's next whole
barrier, which orders every thread after every other. Then the log is replayed
(:mod:`~tilewise.devices.emulator.checks.replay`). Most logs repeat, because the phases of a tiled
kernel are alike; a log that was found clean is recognised by its items and not replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.checks.clocks import TooManyClassesError
from tilewise.devices.emulator.checks.flags import (
    addresses,
    orders_by_flags,
    spins,
    syncs,
)
from tilewise.devices.emulator.checks.log import (
    ACQUIRE,
    ATOMIC,
    CLEAR,
    FENCE,
    FLAG,
    ISSUE,
    POLL,
    READ,
    RELEASE,
    VERBS,
    WRITE,
    Access,
    Item,
    Items,
    Names,
    beginning,
    block_names,
    granule_of,
    warp_names,
)
from tilewise.devices.emulator.checks.replay import Conflict, Replay
from tilewise.devices.emulator.memory.patterns import SharedPattern
from tilewise.devices.emulator.threads.faults import Place
from tilewise.devices.emulator.threads.lanes import Lanes
from tilewise.devices.emulator.threads.op import Op

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

Same = npt.NDArray[np.bool_]
_Log = tuple[list[Item], dict[int, Same]]


def note_same_value(later: Op, earlier: Op, place: Place, lane: int) -> None:
    """Note that two threads write the same value, so that here their order does not matter."""
    later.note(
        "race",
        f"writes {place} in shared memory with no barrier after the write of another thread "
        f"({earlier.where(later.file)}), and the same value: here their order does not matter",
        lane,
        earlier,
    )


class Races:
    """The log of a batch of blocks' accesses to shared memory, and the search for races in it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._items = Items()
        self._clean: set[tuple[Item, ...]] = set()
        program = machine.program
        self._spins = spins(program) if orders_by_flags(program) else frozenset()
        self.start()

    def start(self) -> None:
        """Begin a new batch."""
        self._log: list[Item] = []
        self._same: dict[int, Same] = {}

    def forget(self) -> None:
        """Forget the items, which belong to another geometry."""
        self._items.forget()
        self._clean.clear()

    # What happens

    def note(self, pattern: SharedPattern, kind: str, op: Op, same: Same | None = None) -> None:
        """Log an access.

        Parameters
        ----------
        same : ndarray of bool, optional
            For a write, the lanes that wrote the value that was there already; None for no lane.
        """
        if self._spins and op.instruction.is_strong:
            kind = {READ: POLL, WRITE: FLAG}.get(kind, kind)
        if same is not None:
            self._same[len(self._log)] = same
        self._log.append(self._items.access(pattern, kind, op))

    def warp_barrier(self, lanes: Lanes, masks: npt.NDArray[np.uint64]) -> None:
        """Log that lanes that name each other in their masks waited for one another."""
        names = warp_names(lanes.pick(self.machine.geometry.warp_of), masks)
        self._sync(RELEASE, lanes, names)
        self._sync(ACQUIRE, lanes, names)

    def arrived(self, lanes: Lanes, number: int) -> None:
        """Log that lanes arrived at a barrier at which not all of their blocks wait."""
        self._sync(RELEASE, lanes, self._block_names(lanes, number))

    def opened(self, lanes: Lanes, number: int) -> None:
        """Log that a barrier opened for lanes that waited there."""
        self._sync(ACQUIRE, lanes, self._block_names(lanes, number))

    def unused(self, lanes: Lanes, number: int) -> None:
        """Log that a barrier opened by the arrival of lanes, without any lanes that waited."""
        self._sync(CLEAR, lanes, self._block_names(lanes, number))

    def memory_fence(self, lanes: Lanes) -> None:
        """Log that lanes pass a fence."""
        if self._spins:
            self._sync(FENCE, lanes, np.zeros(lanes.count, np.int64))

    def _block_names(self, lanes: Lanes, number: int) -> Names:
        return block_names(lanes.pick(self.machine.geometry.block_of), number)

    def _sync(self, kind: str, lanes: Lanes, names: Names) -> None:
        self._log.append(self._items.sync(kind, lanes.numbers, names))

    def block_barrier(self, blocks: npt.NDArray[np.bool_] | None, lanes: Lanes) -> None:
        """Check what the lanes, all of their blocks (or of all for None), did before a barrier.

        They waited for each other there.
        """
        if blocks is None or blocks.all():
            log, self._log = self._log, []
            same, self._same = self._same, {}
            self._look(log, same)
        else:
            (log, same), (self._log, self._same) = self._parted(self._log, self._same, blocks)
            self._look(log, same)
        for pattern, op in self.machine.copies.on_the_way(blocks):
            self.note(pattern, ISSUE, op)

    def _parted(
        self, log: Sequence[Item], same: dict[int, Same], blocks: npt.NDArray[np.bool_]
    ) -> tuple[_Log, _Log]:
        """Return the part of a log that belongs to some blocks, and the rest."""
        geometry = self.machine.geometry
        mine: _Log = ([], {})
        rest: _Log = ([], {})
        for number, item in enumerate(log):
            is_mine = blocks[self._items.blocks(item, geometry)]
            equal = same.get(number)
            if is_mine.all() or not is_mine.any():
                pieces = [(mine if is_mine.all() else rest, item, equal)]
            else:
                chosen = blocks[geometry.block_of[item.lanes]]
                pieces = [
                    (pile, item.part(which), None if equal is None else equal[which])
                    for pile, which in ((mine, chosen), (rest, ~chosen))
                ]
            for (items, sames), piece, equals in pieces:
                if equals is not None:
                    sames[len(items)] = equals
                items.append(piece)
        return mine, rest

    def end(self) -> None:
        """End the batch."""
        log, self._log = self._log, []
        same, self._same = self._same, {}
        self._look(log, same)

    def cut(self) -> None:
        """Look for races in what was done since the last barriers, where the launch is cut."""
        self._log = beginning(self._log)
        self.end()

    # What is found

    def _look(self, log: Sequence[Item], same: dict[int, Same]) -> None:
        kinds = {item.kind for item in log if isinstance(item, Access)}
        if kinds <= {READ, POLL} or kinds <= {ATOMIC, POLL}:
            return
        key = tuple(log)
        if key in self._clean:
            return
        ordered, same_ordered = self._ordered(log, same) if self._spins else (log, same)
        granule = granule_of(ordered)
        size = len(self.machine.shared.data) // granule

        def report(conflict: Conflict) -> None:
            self._report(conflict, granule)

        block_of = self.machine.geometry.block_of
        try:
            replay = Replay(ordered, same_ordered, granule, size, block_of, report)
        except TooManyClassesError as error:
            self._look_by_halves(log, same, error)
            return
        if replay.run():
            if len(self._clean) > 256:
                self._clean.clear()
            self._clean.add(key)

    def _look_by_halves(
        self, log: Sequence[Item], same: dict[int, Same], error: TooManyClassesError
    ) -> None:
        """Check one half of the log's blocks and then the other; blocks are never ordered."""
        geometry = self.machine.geometry
        present = np.unique(np.concatenate([self._items.blocks(item, geometry) for item in log]))
        if len(present) < 2:
            note = f"some races in shared memory were not looked for: {error}"
            if note not in self.machine.faults.notes:
                self.machine.faults.remark(note)
            return
        chosen = np.zeros(geometry.block_count, np.bool_)
        chosen[present[: len(present) // 2]] = True
        for items, sames in self._parted(log, same, chosen):
            self._look(items, sames)

    def _ordered(
        self, log: Sequence[Item], same: dict[int, Same]
    ) -> tuple[list[Item], dict[int, Same]]:
        """Return the log with the order of flags and locks, at places that loops wait by."""
        accesses = [item for item in log if isinstance(item, Access)]
        flags = addresses([item for item in accesses if item.op.index in self._spins])
        found: list[Item] = []
        some: dict[int, Same] = {}
        for number, item in enumerate(log):
            if number in same:
                some[len(found)] = same[number]
            if not isinstance(item, Access) or item.kind not in (POLL, FLAG, ATOMIC):
                found.append(item)
                continue
            is_flag = np.isin(item.units * item.width, flags)
            if item.kind != ATOMIC and not is_flag.all():
                item = replace(item, kind=READ if item.kind == POLL else WRITE)
            found.append(item)
            if is_flag.all():
                found += syncs(item, flags)
        return found, some

    def _report(self, conflict: Conflict, granule: int) -> None:
        later, earlier, machine = conflict.later.op, conflict.earlier.op, self.machine
        offset = conflict.granule * granule % machine.shared.pitch
        place = machine.shared_place(offset, later.element, later.width)
        where = earlier.where(later.file)
        if conflict.is_same:
            if later is not earlier:
                note_same_value(later, earlier, place, conflict.lane)
            return
        missing = f"no barrier after the {conflict.earlier.kind} of another thread ({where})"
        if conflict.earlier.kind == ISSUE:
            missing = f"no wait for the {ISSUE} that is on its way there ({where})"
        later.fault(
            "race",
            f"{VERBS[conflict.later.kind]} {place} in shared memory with {missing}",
            conflict.lane,
            place,
            conflict.others,
            earlier,
        )
