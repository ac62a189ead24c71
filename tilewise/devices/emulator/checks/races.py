"""Races in shared memory: two threads, one place, neither ordered behind the other, one writing.

Every access is logged, and everything that orders threads, until the block's next whole barrier,
which orders all behind all; then the whole log is gone through
(:mod:`~tilewise.devices.emulator.checks.replay`). Most logs repeat (each phase of a tiled kernel is
like the last), and a log that was found clean is known by the items in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.checks.flags import (
    addresses,
    is_strong,
    orders_by_flags,
    spins,
    syncs,
)
from tilewise.devices.emulator.checks.log import (
    ACQUIRE,
    ATOMIC,
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


def note_same_value(later: Op, earlier: Op, place: Place, lane: int) -> None:
    """Two threads write the same value: their order does not matter, as far as this run shows."""
    later.note(
        "race",
        f"writes {place} in shared memory with no barrier after the write of another thread "
        f"({earlier.where(later.file)}), and the same value: here their order does not matter",
        lane,
    )


class Races:
    """The log of one batch of blocks."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._items = Items()
        self._clean: set[tuple[Item, ...]] = set()
        program = machine.program
        self._spins = spins(program) if orders_by_flags(program) else frozenset()
        self.start()

    def start(self) -> None:
        """A new batch begins."""
        self._log: list[Item] = []
        self._same: dict[int, Same] = {}

    def forget(self) -> None:
        """Forget the items, which belong to another geometry."""
        self._items.forget()
        self._clean.clear()

    # What happens

    def note(self, pattern: SharedPattern, kind: str, op: Op, same: Same | None = None) -> None:
        """An access happened.

        Parameters
        ----------
        same : ndarray of bool, optional
            Of a write, which lanes wrote what was there already; none of them if None.
        """
        if self._spins and is_strong(op):
            kind = {READ: POLL, WRITE: FLAG}.get(kind, kind)
        if same is not None:
            self._same[len(self._log)] = same
        self._log.append(self._items.access(pattern, kind, op))

    def warp_barrier(self, lanes: Lanes, masks: npt.NDArray[np.uint64]) -> None:
        """Lanes that name each other in their masks waited for one another."""
        names = warp_names(lanes, masks)
        self._sync(RELEASE, lanes, names)
        self._sync(ACQUIRE, lanes, names)

    def arrived(self, lanes: Lanes, number: int) -> None:
        """Lanes came to a barrier of their blocks that not all of the block wait at."""
        self._sync(RELEASE, lanes, block_names(lanes, number))

    def opened(self, lanes: Lanes, number: int) -> None:
        """A barrier opened for lanes that waited there, and were not all of their block."""
        self._sync(ACQUIRE, lanes, block_names(lanes, number))

    def memory_fence(self, lanes: Lanes) -> None:
        """Lanes pass a fence."""
        if self._spins:
            self._sync(FENCE, lanes, np.zeros(lanes.count, np.int64))

    def _sync(self, kind: str, lanes: Lanes, names: Names) -> None:
        self._log.append(self._items.sync(kind, lanes.numbers, names))

    def block_barrier(self, blocks: npt.NDArray[np.bool_] | None, lanes: Lanes) -> None:
        """The lanes, all of their blocks (of all if None), waited for each other: look at what
        they did before."""
        if blocks is None or blocks.all():
            log, self._log = self._log, []
            same, self._same = self._same, {}
            self._look(log, same)
        else:
            self._part(blocks)
        for pattern, op in self.machine.copies.on_the_way(blocks):
            self.note(pattern, ISSUE, op)

    def _part(self, blocks: npt.NDArray[np.bool_]) -> None:
        """Look at some blocks' part of the log, and keep the rest."""
        geometry = self.machine.geometry
        done: list[Item] = []
        rest: list[Item] = []
        same_done: dict[int, Same] = {}
        same_rest: dict[int, Same] = {}
        for number, item in enumerate(self._log):
            is_done = blocks[self._items.blocks(item, geometry)]
            same = self._same.get(number)
            if is_done.all() or not is_done.any():
                piles = [(done, same_done, item, same)] if is_done.all() else []
                piles = piles or [(rest, same_rest, item, same)]
            else:
                mine = blocks[geometry.block_of[item.lanes]]
                piles = [
                    (pile, sames, item.part(chosen), None if same is None else same[chosen])
                    for pile, sames, chosen in ((done, same_done, mine), (rest, same_rest, ~mine))
                ]
            for pile, sames, some, equal in piles:
                if equal is not None:
                    sames[len(pile)] = equal
                pile.append(some)
        self._log, self._same = rest, same_rest
        self._look(done, same_done)

    def end(self) -> None:
        """The batch ended."""
        log, self._log = self._log, []
        same, self._same = self._same, {}
        self._look(log, same)

    # What is found

    def _look(self, log: Sequence[Item], same: dict[int, Same]) -> None:
        kinds = {item.kind for item in log if isinstance(item, Access)}
        if kinds <= {READ, POLL} or kinds <= {ATOMIC, POLL}:
            return
        key = tuple(log)
        if key in self._clean:
            return
        if self._spins:
            log, same = self._ordered(log, same)
        granule = granule_of(log)
        size = len(self.machine.shared.data) // granule

        def report(conflict: Conflict) -> None:
            self._report(conflict, granule)

        if Replay(log, same, granule, size, self.machine.geometry.block_of, report).run():
            if len(self._clean) > 256:
                self._clean.clear()
            self._clean.add(key)

    def _ordered(
        self, log: Sequence[Item], same: dict[int, Same]
    ) -> tuple[list[Item], dict[int, Same]]:
        """The log with what flags and locks order: places that loops wait by."""
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
        place = machine.shared_place(offset, later.element)
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
        )
