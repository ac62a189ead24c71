"""Record what some blocks of a launch do, instruction by instruction.

A recorder wraps the machine's instructions; without a recorder, nothing is wrapped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.access.spaces import Shared
from tilewise.devices.emulator.copies.transfers import Moved
from tilewise.devices.emulator.memory.storage import SHARED_WINDOW, WINDOW_BYTES
from tilewise.devices.emulator.ptx.types import DTYPES
from tilewise.devices.emulator.recording.events import (
    MOST_LANES,
    Event,
    Move,
    Recording,
    Sync,
)
from tilewise.devices.emulator.recording.faults import Noted
from tilewise.devices.emulator.recording.kinds import BARRIERS, ROWS, kind_of, scope_of, sync_of
from tilewise.devices.emulator.recording.matrices import Matrices
from tilewise.devices.emulator.recording.operands import (
    address_of,
    generic,
    guard_of,
    shown,
    values_of,
)
from tilewise.devices.emulator.threads.lanes import Geometry, Lanes
from tilewise.devices.emulator.threads.op import Groups, Op
from tilewise.errors import CheckError
from tilewise.places import Dim3

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

Run = Callable[[], Groups]


class _EnoughError(Exception):
    """Raised when no more events are kept, so that the run may end."""


class _Arriving(Shared):
    """The destination of an asynchronous copy, which reports when the copy arrives."""

    def __init__(self, shared: Shared, tell: Callable[[Shared, Any, Lanes, Any], None]) -> None:
        vars(self).update(vars(shared))
        self._tell = tell

    def arrive_at(self, address: Any, lanes: Lanes, values: Any) -> None:
        super().arrive_at(address, lanes, values)
        self._tell(self, address, lanes, values)


class Recorder:
    """Record blocks of the batches that a machine runs.

    Parameters
    ----------
    machine : Machine
        A new machine.
    most : int
        Events of a block; where there are more, or more than :data:`MOST_LANES`, no more are kept,
        and the run ends once that is so of each block.
    stops_at_fault : bool
        Whether a fault of a block that is recorded ends the run, and its recording tells of it;
        else the error is raised.
    """

    def __init__(self, machine: Machine, most: int, stops_at_fault: bool = False) -> None:
        self.machine, self.most = machine, most
        self._noted = Noted(machine) if stops_at_fault else None
        self._recordings: dict[int, Recording] = {}
        self._lanes: dict[int, int] = {}
        self._running: Op
        self._row = 0  # the row of the block whose lanes run
        # What copies that begin now bring, which of them read anything, and where they go to.
        self._copied: tuple[npt.NDArray[Any], npt.NDArray[np.bool_], npt.NDArray[Any]] | None = None
        self._matrices = Matrices(machine)
        # Then threads that don't wait may be among those that a barrier counts.
        self._has_arrive = any(
            op.instruction.opcode in BARRIERS and "arrive" in op.instruction.modifiers
            for op in machine.ops
        )
        for op in machine.ops:
            self._wrap(op)
        self._watch_copies()
        machine.watcher = self._moved

    def run(self, geometry: Geometry, rows: Mapping[int, Dim3]) -> list[Recording]:
        """Run a batch, to its end or until enough is recorded.

        Parameters
        ----------
        geometry : Geometry
        rows : mapping of int to (int, int, int)
            The blocks to record, by their rows in the batch.

        Returns
        -------
        list of Recording
            Of each block; only of the one with a fault where that ended the run.

        Raises
        ------
        CheckError
            If a check found a fault, unless this is to end with it.
        """
        found = {row: Recording(self.machine.program, block) for row, block in rows.items()}
        self._recordings, self._lanes = found, dict.fromkeys(rows, 0)
        try:
            try:
                self.machine.run(geometry)
            except _EnoughError:
                self.machine.races.cut()
        except CheckError as error:
            fault, row = (None, -1) if self._noted is None else self._noted.fault(error)
            if row not in found:
                raise
            found[row].fault = fault
            return [found[row]]
        return list(found.values())

    def _add(self, row: int, event: Event) -> None:
        recording = self._recordings[row]
        if recording.is_cut:
            return
        lanes = self._lanes[row] + len(event.threads)
        if len(recording.events) < self.most and lanes <= MOST_LANES:
            self._lanes[row] = lanes
            recording.events.append(event)
            return
        recording.is_cut = True
        if all(each.is_cut for each in self._recordings.values()):
            raise _EnoughError

    def _parts(self, lanes: Lanes) -> Iterator[tuple[int | None, Lanes]]:
        """Yield the lanes of each recorded block with its row, and with None all others."""
        if self.machine.geometry.block_count == 1:
            yield 0, lanes
            return
        block = lanes.pick(self.machine.geometry.block_of)
        others = np.ones(lanes.count, np.bool_)
        for row in self._recordings:
            mine = block == row
            others &= ~mine
            if mine.any():
                yield row, lanes.where(mine)
        if others.any():
            yield None, lanes.where(others)

    def _wrap(self, op: Op) -> None:
        note = self._noter(op)
        run, control = op.run, op.control

        def recorded(lanes: Lanes) -> None:
            for row, part in self._parts(lanes):
                if row is None:
                    run(part)
                else:
                    note(row, part, lambda part=part: run(part) or [])  # type: ignore[misc]

        op.run = recorded
        if control is not None:
            jump = control

            def recorded_jump(lanes: Lanes) -> Groups:
                went: Groups = []
                for row, part in self._parts(lanes):
                    went += (
                        jump(part) if row is None else note(row, part, partial(jump, part))
                    )  # fmt: skip
                return went

            op.control = recorded_jump

    def _noter(self, op: Op) -> Callable[[int, Lanes, Run], Groups]:
        """Return a function that runs the instruction and notes what it did."""
        machine = self.machine
        kind, space = kind_of(op)
        line = self.machine.setup.sources.own_line(op.instruction)
        is_copy = op.instruction.opcode == "cp"
        scope, wanted = scope_of(op) if kind == "barrier" else ("", None)
        wanted = None if self._has_arrive else wanted
        sync = sync_of(op) if kind == "sync" else None
        holds = guard_of(machine, op)
        is_rows = op.instruction.opcode in ROWS
        address = address_of(machine, op, int(is_copy)) if space and not is_rows else None
        of_barrier = (
            address_of(machine, op, 0) if sync is not None and sync.on == "mbarrier" else None
        )
        values = None if op.held is not None else values_of(machine, op, kind)

        def note(row: int, lanes: Lanes, run: Run) -> Groups:
            self._running, self._row = op, row
            counts = op.requests, op.sectors, op.conflicts
            chosen = lanes if holds is None else holds(lanes)
            place = None if address is None or not chosen.count else address(chosen)
            told = None if of_barrier is None or not chosen.count else of_barrier(chosen)
            found = values(chosen) if values and kind == "store" and chosen.count else None
            self._copied = self._matrices.met = None
            before = len(self._recordings[row].events)
            try:
                went = run()
            except CheckError:
                if self._noted is not None and place is not None:
                    self._noted.attempted(op, kind, space, chosen, place)
                if kind == "barrier" and chosen.count:  # who comes is what is wrong
                    came = chosen.numbers - row * self.machine.geometry.threads
                    self._add(row, Event(op.index, line, came, kind, scope=scope))
                raise
            if not chosen.count:
                return went
            if values and kind != "store":
                found = values(chosen)
            where, left, what, target = space, None, kind, None
            if self._copied is not None and place is not None:
                # A copy of no bytes has an address, and reads nothing there: it brings zeros.
                found, reads, goes = self._copied
                target = chosen.numbers - row * machine.geometry.threads, goes
                chosen, place, found = chosen.where(reads), place[reads], found[reads]
                if not chosen.count:
                    chosen, place, found = lanes, None, None
                    what, where = "other", ""
            if place is not None and space == "global" and not is_copy:
                place, where = generic(place)
            if place is not None and where == "shared":
                place = chosen.in_own_block(place)
            if place is not None and kind == "atomic":
                left = self._standing(op, where, place, row)
            requests, sectors, conflicts = op.requests, op.sectors, op.conflicts
            threads = self.machine.geometry.threads
            event = Event(
                op.index, line, chosen.numbers - row * threads, what, where, place, op.width, found,
                left, "block" if wanted == threads else scope, is_copy, target,
                requests - counts[0], sectors - counts[1], conflicts - counts[2],
            )  # fmt: skip
            if sync is not None:
                event.sync = self._sync(sync, lanes, told, went)
            if kind == "copy" and len(self._recordings[row].events) > before:
                # The copies themselves were noted; the first of them tells what all of them moved.
                self._recordings[row].events[before].sectors = event.sectors
                return went
            for each in [event] if op.held is None else self._matrices.events(op, event, row):
                self._add(row, each)
            return went

        return note

    def _sync(self, sync: Sync, lanes: Lanes, told: Any, went: Groups) -> Sync:
        """Return the synchronisation with its mbarriers and whether threads continue at once."""
        at: list[int] = []
        is_remote = False
        if told is not None:
            is_generic = told // WINDOW_BYTES == SHARED_WINDOW // WINDOW_BYTES
            own = lanes.in_own_block(np.where(is_generic, told - SHARED_WINDOW, told))
            inside = (own >= 0) & (own < self.machine.shared.size)
            at, is_remote = np.unique(own[inside]).tolist(), not inside.all()
        is_held = sync.action == "wait" and sync.on in ("mbarrier", "cluster")
        passes = not is_held or sum(x.count for _, x in went) == lanes.count
        return replace(sync, at=tuple(at), is_remote=is_remote, passes=passes)

    # Copies

    def _watch_copies(self) -> None:
        """Note what asynchronous copies bring, where they begin and where they arrive."""
        copies = self.machine.copies
        issue = copies.issue

        def issued(shared: Shared, lanes: Lanes, address: Any, values: Any, sizes: Any) -> None:
            own = np.broadcast_to(np.asarray(lanes.in_own_block(address), np.int64), lanes.count)
            reads = np.broadcast_to(np.asarray(sizes) > 0, lanes.count)
            self._copied = np.array(values), reads, own
            issue(_Arriving(shared, self._arrived), lanes, address, values, sizes)

        copies.issue = issued  # type: ignore[method-assign]

    def _arrived(self, shared: Shared, address: Any, lanes: Lanes, values: Any) -> None:
        op = self._running  # the one that waits for them
        at = np.array(lanes.in_own_block(address), np.int64)
        for row, part in self._parts(lanes):
            if row is None:
                continue
            mine = np.isin(lanes.numbers, part.numbers)
            self._add(
                row,
                Event(
                    op.index, self.machine.setup.sources.own_line(op.instruction),
                    part.numbers - row * self.machine.geometry.threads, "store", "shared",
                    at[mine], shared.dtype.itemsize * shared.count, np.array(values)[mine],
                    is_copy=True,
                ),
            )  # fmt: skip

    def _moved(self, moved: Moved) -> None:
        """Note a bulk copy, in the recording of the block whose shared memory it reaches."""
        if moved.row not in self._recordings:
            return
        geometry = self.machine.geometry
        is_own = geometry.block_of[moved.lane] == moved.row
        thread = np.array([moved.lane - moved.row * geometry.threads] if is_own else [], np.intp)
        mbarriers, number = self.machine.mbarriers, -1
        if moved.barrier is not None:
            number = mbarriers.number_at(moved.row, moved.barrier)
        move = Move(
            moved.offset, moved.size, moved.is_store, moved.barrier, moved.origin, not is_own,
            -1 if number < 0 else int(mbarriers.phase[number]),
        )  # fmt: skip
        line = self.machine.setup.sources.own_line(moved.op.instruction)
        self._add(moved.row, Event(moved.op.index, line, thread, "copy", move=move))

    def _standing(
        self, op: Op, space: str, place: npt.NDArray[np.int64], row: int
    ) -> npt.NDArray[Any] | None:
        """Return the values in memory at these addresses; None if that is no memory."""
        dtype = DTYPES[shown(op.instruction.modifiers[-1])]
        addresses, inverse = np.unique(place, return_inverse=True)
        found = []
        for address in addresses.tolist():
            shared = self.machine.shared
            data, start = shared.data, row * shared.pitch + address
            if space == "shared" and not 0 <= address <= shared.size - op.width:
                return None  # the place is in another block of the cluster
            if space == "global":
                allocation = self.machine.memory.find(address, address + op.width)
                if allocation is None:
                    return None
                data, start = allocation.data, address - allocation.base
            found.append(np.frombuffer(data[start : start + op.width].tobytes(), dtype))
        rows: npt.NDArray[Any] = np.stack(found)[inverse]
        return rows[:, 0] if rows.shape[1] == 1 else rows
