"""A SIMT machine made of NumPy.

A register is an array with one element a lane, over a batch of whole blocks, or one NumPy scalar
where all lanes hold the same. Lanes that stand at the same instruction form a group; each step
takes the group at the lowest place in the program and runs it up to where the next group
stands, so that groups that part at a branch meet again behind it. Arrays in registers are never
changed in place, so that they may be shared.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np

from tilewise.devices.emulator.access.roots import roots_of
from tilewise.devices.emulator.checks.global_races import GlobalRaces
from tilewise.devices.emulator.checks.ordering import Ordering, needed
from tilewise.devices.emulator.checks.races import Races
from tilewise.devices.emulator.checks.undefined import Undefined
from tilewise.devices.emulator.checks.unwritten import only_copied
from tilewise.devices.emulator.copies.cp_async import Copies
from tilewise.devices.emulator.copies.transfers import Watcher
from tilewise.devices.emulator.instructions.build import build
from tilewise.devices.emulator.instructions.calls import Calls
from tilewise.devices.emulator.memory.global_memory import Allocation
from tilewise.devices.emulator.memory.storage import Storage
from tilewise.devices.emulator.ptx.program import Program
from tilewise.devices.emulator.ptx.syntax import Symbol
from tilewise.devices.emulator.sampling.footprint import Footprints
from tilewise.devices.emulator.sampling.tracker import Tracker
from tilewise.devices.emulator.setup import Setup
from tilewise.devices.emulator.synchronisation.barriers import Barriers
from tilewise.devices.emulator.synchronisation.bypasses import Bypasses
from tilewise.devices.emulator.synchronisation.clusters import Clusters
from tilewise.devices.emulator.synchronisation.mbarriers import Mbarriers
from tilewise.devices.emulator.synchronisation.meetings import Meetings
from tilewise.devices.emulator.synchronisation.spinning import Spinning
from tilewise.devices.emulator.synchronisation.warpgroups import Warpgroups
from tilewise.devices.emulator.threads.budget import STRETCH
from tilewise.devices.emulator.threads.faults import Place
from tilewise.devices.emulator.threads.lanes import Geometry, Index, Lanes
from tilewise.devices.emulator.threads.op import Op
from tilewise.devices.emulator.threads.registers import Registers
from tilewise.errors import BarrierError, CheckError, TilewiseError

PATIENCE = 256
"""The polls (atomics, volatile and acquiring loads) of one group, while others wait, after which
one of them gets a turn: a thread that spins on a lock must not keep its holder from running. Loops
that don't poll run to their end, so that their lanes meet behind them.
"""
LEAST_PATIENCE = 8
"""The polls after which other blocks get a turn, if they had turns and nobody ended."""


PATTERN_BYTES = 1 << 27
"""The bytes of the patterns of shared addresses that are kept because they are shifts of
another's.
"""


class Machine:
    """Run the batches of one launch.

    Parameters
    ----------
    program : Program
    setup : Setup
    """

    def __init__(self, program: Program, setup: Setup) -> None:
        self.program, self.setup = program, setup
        self.memory, self.faults = setup.memory, setup.faults
        self.is_checking = setup.is_checking
        self.rules = setup.rules
        self.is_counting = setup.rules is not None
        self.generation = 0
        # Where dependences are mapped, some instructions are left out as needless.
        self.is_lasting = not setup.is_mapping and not program.recursive
        self.registers = Registers.of(self) if self.is_lasting else Registers(self)
        self.roots = roots_of(program)
        self.shared_bytes = program.static_shared + setup.dynamic_shared
        self.geometry: Geometry
        self.shared: Storage
        self.local: Storage
        self.all: Lanes
        self.forgetters: list[Callable[[], None]] = []
        self.pattern_room = PATTERN_BYTES
        # A program that synchronises by more than barriers of the block needs the exact, slower
        # checker.
        is_ordered = self.is_checking and needed(program)
        self.ordering = Ordering(self) if is_ordered else None
        self.races: Races | Ordering = self.ordering or Races(self)
        self.undefined = Undefined(self)
        self.global_races = (
            GlobalRaces(self, setup.whole) if self.is_checking and setup.whole else None
        )
        self.race_checks: tuple[Races | Ordering | GlobalRaces, ...] = ()
        if self.is_checking:
            self.race_checks = tuple(
                check for check in (self.races, self.global_races) if check is not None
            )
        self.calls = Calls(self)
        self.barriers = Barriers(self)
        self.bypasses = Bypasses(self)
        self.meetings = Meetings(self)
        self.warpgroups = Warpgroups(self)
        self.copies = Copies(self)
        self.clusters = Clusters(self)
        self.mbarriers = Mbarriers(self)
        self.spinning = Spinning(self)
        self.ops: list[Op] = []
        self.parked = 0
        # Counts what may help a waiting thread: arrivals, barriers passed, threads ended.
        self.progress = 0
        self.patience = PATIENCE
        self.live_count = 0
        self.live_in_block: Index

        for index, instruction in enumerate(program.instructions):
            self.ops.append(Op(self, instruction, index))
        for index, copied in only_copied(program).items():
            self.ops[index].copied = copied
        for op in self.ops:
            build(self, op)
        self.footprints = Footprints(self) if setup.is_mapping else None
        self.tracker: Tracker | None = None
        # The recorders, if there are any, are told of the bulk copies that reach shared memory.
        self.watcher: Watcher | None = None

    def release(self) -> None:
        """Let go of everything; the machine can't be used afterwards.

        Its parts and its ops refer to one another: without this, all of their memory would wait
        for the garbage collector.
        """
        for op in self.ops:
            vars(op).clear()
        if self.is_lasting:
            self.registers.leave()
        vars(self).clear()

    # Symbols

    def address_of(self, op: Op, symbol: Symbol) -> int:
        """Return the address of a variable or function."""
        for name in (symbol.name, f"{self.program.function_of(op.index)}:{symbol.name}"):
            for table in (self.program.shared_offsets, self.setup.symbols, self.program.entries):
                if name in table:
                    return table[name] + symbol.offset
            if name in self.program.depots:
                return self.program.depots[name]
        unread = self.program.module.unread.get(symbol.name)
        raise op.unsupported(unread or f"{symbol.name} is no variable that it knows")

    def is_shared(self, op: Op, symbol: Symbol) -> bool:
        """Return whether a variable is in shared memory."""
        names = symbol.name, f"{self.program.function_of(op.index)}:{symbol.name}"
        return any(name in self.program.shared_offsets for name in names)

    def counted_as(self, op: Op, width: int) -> tuple[int, int] | None:
        """Return the width and offset of the counted access; None if a neighbour is counted.

        It is None also if nothing is counted.
        """
        return None if self.rules is None else self.rules.accesses.get(op.index, (width, 0))

    def parameter_storage(self, function: str, name: str) -> Storage:
        """Return the rows of a parameter, an argument or a result of a device function."""
        return self.calls.storage(function, name)

    def global_place(self, owner: Allocation | None, address: int) -> Place:
        """Return an address as an element of an allocation, in bounds or not."""
        if owner is None:
            return Place(None)
        return Place(
            owner.name, owner.place(address), address=address, in_python=self.setup.in_python
        )

    def shared_place(
        self, offset: int, element: int, width: int = 0, *, start: int | None = None
    ) -> Place:
        """Return an offset in the block's shared memory as an element of a variable.

        Parameters
        ----------
        offset : int
        element, width : int
            The bytes of an accessed element, and of the whole access if it has several.
        start : int, optional
            An offset in the variable of which it is an element, in bounds or not; by default the
            variable is the one that ``offset`` is in or behind.
        """
        symbol, first = self.program.shared_variable(offset if start is None else start)
        name, component = "shared memory", ""
        index: int | tuple[int, ...] = (offset - first) // element
        if symbol:
            name = self.program.shared_names[symbol]
            index, component = self.setup.shapes.place(
                symbol, offset - first, element, max(element, width)
            )
        return Place(name, index, component, "shared", offset, self.setup.in_python)

    # Running

    def run(self, geometry: Geometry) -> None:
        """Run one batch of blocks from beginning to end."""
        previous = getattr(self, "geometry", None)
        self.geometry = geometry
        if previous is None or previous.block_count != geometry.block_count:
            for forget in self.forgetters:
                forget()
            self.pattern_room = PATTERN_BYTES
            self.races.forget()
        self.generation += 1
        self.all = Lanes(geometry, None, True)
        budget = self.setup.budget
        if budget is not None:
            rows = geometry.block_count * self.shared_bytes
            rows += geometry.count * self.program.frame_bytes
            budget.take(self, rows * (1 + self.is_checking), self.program.start)
        self.shared = Storage(geometry.block_count, self.shared_bytes, self.is_checking)
        if reserved := self.program.reserved_shared:
            # Cooperative groups take the barriers there for zero, and write none of them before.
            self.shared.set_written(slice(reserved["begin"], reserved["end"]))
        self.local = Storage(geometry.count, self.program.frame_bytes, self.is_checking)
        self.registers.clear()
        self.live_count = geometry.count
        self.live_in_block = np.full(geometry.block_count, geometry.threads, np.intp)
        self.parked = 0
        self.groups: dict[int, Lanes] = {self.program.start: self.all}
        for part in (
            self.undefined, self.calls, self.barriers, self.bypasses, self.meetings,
            self.warpgroups, self.copies, self.races, self.clusters, self.mbarriers,
            self.spinning,
        ):  # fmt: skip
            part.start()
        self._steps()
        if budget is not None:
            budget.count(self)
        if self.is_checking:
            self.races.end()

    def raise_found(self, error: TilewiseError) -> None:
        """Raise all findings, if there are any, of a launch that an error ended before its end.

        Races among what was done since the last barriers have not been looked for then, nor those
        in global memory.
        """
        with suppress(CheckError, MemoryError):
            for check in self.race_checks:
                check.cut()
        self.faults.raise_found(error)

    def _steps(self) -> None:
        # Polls since other blocks had a turn, how many they may be, and how many lanes ran then.
        polls, allowed, live = 0, PATIENCE, self.live_count
        while self.groups or self.parked:
            if not self.groups:
                if self.mbarriers.ask_again():
                    continue
                self.meetings.report_stuck()
                self.warpgroups.report_stuck()
                self.barriers.report_stuck()
                self.clusters.report_stuck()
                self.mbarriers.report_stuck()
                self._give_up()
                return
            at = min(self.groups)
            lanes = self.groups.pop(at)
            is_patient = self._run_group(at, lanes, in_turn=True)
            polls += PATIENCE - self.patience
            if polls >= allowed:
                self._run_other_blocks(lanes)
                allowed = max(LEAST_PATIENCE, allowed // 2) if self.live_count == live else PATIENCE
                polls, live = 0, self.live_count
            if not is_patient:
                self.mbarriers.resume_all()
                if self.spinning.is_forever():
                    self.spinning.report()
                    self._give_up()
                    return
                turn = self.spinning.next_turn(self.groups)
                if turn is not None:
                    went = self._run_group(turn, self.groups.pop(turn), in_turn=False)
                    self.spinning.had_turn(turn, went)

    def _give_up(self) -> None:
        """End the batch, whose threads would wait forever; the findings say for what."""
        if not self.faults.continues:
            raise BarrierError(self.faults.findings)

    def _run_group(self, at: int, lanes: Lanes, in_turn: bool) -> bool:
        """Run a group until it parts, waits, ends, or another stands lower (``in_turn``).

        Returns
        -------
        bool
            False if it polled more often than ``PATIENCE``.
        """
        ops, groups, bypasses = self.ops, self.groups, self.bypasses
        undefined, budget = self.undefined, self.setup.budget
        shadows = undefined.shadows
        self.patience = PATIENCE
        while self.patience > 0:
            if at in groups:
                lanes = self.union(lanes, groups.pop(at))
            if not lanes.whole and lanes.count == self.live_count:
                lanes = Lanes(lanes.geometry, lanes.index, True)
            stop = min(groups, default=len(ops)) if in_turn else len(ops)
            if at > stop:
                groups[at] = lanes
                return True
            if budget is not None:
                budget.look(self, at)
                stop = min(stop, at + STRETCH)
            count, warps, first = lanes.count, lanes.warps, at
            while at != stop:
                op = ops[at]
                op.lanes_run += count
                op.warps_run += warps
                if op.control is not None:
                    if shadows:
                        undefined.check(op, lanes)
                    if bypasses.is_watching:
                        bypasses.ran(first, at, lanes)
                    went = op.control(lanes)
                    if len(went) != 1:
                        for where, who in went:
                            self.add_group(where, who)
                        return True
                    at, lanes = went[0]
                    break
                if shadows:
                    undefined.run(op, lanes)
                else:
                    op.run(lanes)
                at += 1
            else:
                if bypasses.is_watching and at > first:
                    bypasses.ran(first, at - 1, lanes)
        self.add_group(at, lanes)
        return False

    def _run_other_blocks(self, polling: Lanes) -> None:
        """Give a turn to the blocks that have none of these lanes.

        A whole block that waits for another, its threads meeting at a barrier between two polls,
        stands lower than the block that it waits for each time. In which order blocks run changes
        no count.
        """
        if self.geometry.block_count == 1:
            return
        block_of = self.geometry.block_of
        is_polling = np.zeros(self.geometry.block_count, bool)
        is_polling[block_of[polling.numbers]] = True
        for at in sorted(self.groups, reverse=True):
            lanes = self.groups.pop(at, None)
            if lanes is None:
                continue
            stays = is_polling[block_of[lanes.numbers]]
            self.add_group(at, lanes.where(stays))
            others = lanes.where(~stays)
            if others.count:
                self._run_group(at, others, in_turn=False)

    def add_group(self, at: int, lanes: Lanes) -> None:
        """Let lanes wait at an instruction, with those that stand there."""
        if lanes.count == 0:
            return
        there = self.groups.get(at)
        self.groups[at] = lanes if there is None else self.union(there, lanes)

    def union(self, one: Lanes, other: Lanes) -> Lanes:
        """Return the union of two sets, which have no lane in common."""
        count = one.count + other.count
        if count == self.geometry.count:
            return self.all
        index = np.concatenate((one.numbers, other.numbers))
        index.sort()
        return Lanes(self.geometry, index, count == self.live_count)

    def together(self, sets: Sequence[Lanes]) -> Lanes:
        """Return the union of some sets, which have no lane in common."""
        if not sets:
            return Lanes(self.geometry, np.empty(0, np.intp), False)
        return functools.reduce(self.union, sets)

    def retire(self, lanes: Lanes) -> None:
        """Retire lanes that have ended."""
        self.live_count -= lanes.count
        self.progress += 1
        geometry = self.geometry
        if lanes.index is None:
            self.live_in_block[:] = 0
        else:
            self.live_in_block -= np.bincount(
                geometry.block_of[lanes.index], minlength=geometry.block_count
            )
        if self.live_count:
            self.barriers.lanes_ended(lanes)
            self.meetings.lanes_ended()
            self.clusters.lanes_ended()
