"""What some blocks of a launch do, instruction by instruction, for whoever wants to watch.

A recorder wraps the machine's instructions; where nobody records, nothing is wrapped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.access.spaces import Shared
from tilewise.devices.emulator.memory.storage import SHARED_WINDOW, WINDOW_BYTES
from tilewise.devices.emulator.ptx.syntax import Address, Immediate, Operand, Register, Sink, Vector
from tilewise.devices.emulator.ptx.types import DTYPES
from tilewise.devices.emulator.recording.events import MOST_LANES, Event, Recording
from tilewise.devices.emulator.threads.lanes import Geometry, Lanes
from tilewise.devices.emulator.threads.op import Op

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

_BARRIERS = ("bar", "barrier")
_FLOATS = ("f32", "f64")
_ARITHMETIC = ("add", "sub", "mul", "fma", "mad", "div", "max", "min")


class _EnoughError(Exception):
    """No more events are kept: the run may end."""


class _Arriving(Shared):
    """Where an asynchronous copy goes; it tells when it arrives."""

    def __init__(self, shared: Shared, tell: Callable[[Shared, Any, Lanes, Any], None]) -> None:
        vars(self).update(vars(shared))
        self._tell = tell

    def arrive_at(self, address: Any, lanes: Lanes, values: Any) -> None:
        super().arrive_at(address, lanes, values)
        self._tell(self, address, lanes, values)


class Recorder:
    """Records blocks that a machine runs, one by one.

    Parameters
    ----------
    machine : Machine
        New. Its batches are to be of one block.
    most : int
        Events of a block; where there are more, or more than :data:`MOST_LANES`, its run ends.
    """

    def __init__(self, machine: Machine, most: int) -> None:
        self.machine, self.most = machine, most
        self.recording = Recording(machine.program)
        self._lanes = 0
        self._running: Op
        self._copied: tuple[npt.NDArray[Any], npt.NDArray[np.bool_]] | None = None
        # Then threads that don't wait may be among those that a barrier counts.
        self._has_arrive = any(
            op.instruction.opcode in _BARRIERS and "arrive" in op.instruction.modifiers
            for op in machine.ops
        )
        for op in machine.ops:
            self._wrap(op)
        self._watch_copies()

    def run(self, geometry: Geometry) -> Recording:
        """Run one block, to its end or until enough is recorded."""
        self.recording, self._lanes = Recording(self.machine.program), 0
        try:
            self.machine.run(geometry)
        except _EnoughError:
            self.recording.is_cut = True
        return self.recording

    def _add(self, event: Event) -> None:
        events = self.recording.events
        if len(events) >= self.most or self._lanes + len(event.threads) > MOST_LANES:
            raise _EnoughError
        self._lanes += len(event.threads)
        events.append(event)

    def _wrap(self, op: Op) -> None:
        note = self._noter(op)
        run, control = op.run, op.control

        def recorded(lanes: Lanes) -> None:
            note(lanes, lambda: run(lanes))

        op.run = recorded
        if control is not None:
            jump = control

            def recorded_jump(lanes: Lanes) -> list[tuple[int, Lanes]]:
                went: list[tuple[int, Lanes]] = []
                note(lanes, lambda: went.extend(jump(lanes)))
                return went

            op.control = recorded_jump

    def _noter(self, op: Op) -> Callable[[Lanes, Callable[[], None]], None]:
        """Runs the instruction, and notes what it did."""
        kind, space = _kind(op)
        line = self.machine.setup.sources.own_line(op.instruction)
        is_copy = op.instruction.opcode == "cp"
        scope, wanted = _scope(op) if kind == "barrier" else ("", None)
        wanted = None if self._has_arrive else wanted
        holds = self._guard(op)
        address = self._address(op, int(is_copy)) if space else None
        values = self._values(op, kind)

        def note(lanes: Lanes, run: Callable[[], None]) -> None:
            self._running = op
            counts = op.requests, op.sectors, op.conflicts
            chosen = lanes if holds is None else holds(lanes)
            place = None if address is None or not chosen.count else address(chosen)
            found = values(chosen) if values and kind == "store" and chosen.count else None
            self._copied = None
            run()
            if not chosen.count:
                return
            if values and kind != "store":
                found = values(chosen)
            where, left, what = space, None, kind
            if self._copied is not None and place is not None:
                # A copy of no bytes has an address, and reads nothing there: it brings zeros.
                found, reads = self._copied
                chosen, place, found = chosen.where(reads), place[reads], found[reads]
                if not chosen.count:
                    chosen, place, found, what, where = lanes, None, None, "other", ""
            if place is not None and space == "global" and not is_copy:
                place, where = _generic(place)
            if place is not None and where == "shared":
                place = chosen.in_own_block(place)
            if place is not None and kind == "atomic":
                left = self._standing(op, where, place)
            requests, sectors, conflicts = op.requests, op.sectors, op.conflicts
            self._add(
                Event(
                    op.index, line, chosen.numbers.copy(), what, where, place, op.width, found,
                    left,
                    "block" if wanted == self.machine.geometry.threads else scope, is_copy,
                    requests - counts[0], sectors - counts[1], conflicts - counts[2],
                )
            )  # fmt: skip

        return note

    def _watch_copies(self) -> None:
        """Note what asynchronous copies bring, where they begin and where they arrive."""
        copies = self.machine.copies
        issue = copies.issue

        def issued(shared: Shared, lanes: Lanes, address: Any, values: Any, sizes: Any) -> None:
            self._copied = np.array(values), np.broadcast_to(np.asarray(sizes) > 0, lanes.count)
            issue(_Arriving(shared, self._arrived), lanes, address, values, sizes)

        copies.issue = issued  # type: ignore[method-assign]

    def _arrived(self, shared: Shared, address: Any, lanes: Lanes, values: Any) -> None:
        op = self._running  # the one that waits for them
        self._add(
            Event(
                op.index, self.machine.setup.sources.own_line(op.instruction),
                lanes.numbers.copy(), "store", "shared",
                np.array(lanes.in_own_block(address), np.int64),
                shared.dtype.itemsize * shared.count, np.array(values), is_copy=True,
            )
        )  # fmt: skip

    def _standing(
        self, op: Op, space: str, place: npt.NDArray[np.int64]
    ) -> npt.NDArray[Any] | None:
        """What stands in memory at these addresses; None where that is no memory."""
        dtype = DTYPES[_shown(op.instruction.modifiers[-1])]
        addresses, inverse = np.unique(place, return_inverse=True)
        found = []
        for address in addresses.tolist():
            data, start = self.machine.shared.data, address
            if space == "global":
                allocation = self.machine.memory.find(address, address + op.width)
                if allocation is None:
                    return None
                data, start = allocation.data, address - allocation.base
            found.append(np.frombuffer(data[start : start + op.width].tobytes(), dtype))
        rows: npt.NDArray[Any] = np.stack(found)[inverse]
        return rows[:, 0] if rows.shape[1] == 1 else rows

    def _guard(self, op: Op) -> Callable[[Lanes], Lanes] | None:
        """The lanes that an instruction's guard lets through; None where it has none."""
        if op.instruction.predicate is None or op.instruction.opcode in ("bra", "brx"):
            return None
        register, is_negated = op.instruction.predicate
        read = self.machine.registers.reader(op, register, "pred", picked=True)
        return lambda lanes: lanes.where(np.broadcast_to(read(lanes) != is_negated, lanes.count))

    def _address(self, op: Op, which: int) -> Callable[[Lanes], npt.NDArray[np.int64]] | None:
        """Byte addresses of the lanes, by one of the instruction's addresses."""
        addresses = [x for x in op.instruction.operands if isinstance(x, Address)]
        if which >= len(addresses):
            return None
        found = addresses[which]
        base, offset = found.base, found.offset
        if isinstance(base, Register):
            type_ = "s64" if base.type.endswith("64") else "s32"
            read = self.machine.registers.reader(op, base, type_, picked=True)
            return lambda lanes: np.broadcast_to(
                np.asarray(read(lanes), np.int64) + offset, lanes.count
            )
        constant = offset
        if base is not None:
            constant += self.machine.address_of(op, base)
        return lambda lanes: np.full(lanes.count, constant, np.int64)

    def _values(self, op: Op, kind: str) -> Callable[[Lanes], npt.NDArray[Any]] | None:
        """What is in the registers that are stored, or that were written."""
        operands = op.instruction.operands
        at = 1 if kind == "store" else 0
        is_told = kind in ("load", "store", "compute") or op.instruction.opcode == "atom"
        if not is_told or at >= len(operands):
            return None
        operand = operands[at]
        parts: tuple[Operand, ...] = operand.elements if isinstance(operand, Vector) else (operand,)
        type_ = op.instruction.modifiers[-1]
        if any(isinstance(part, Address | Sink) for part in parts):
            return None
        reads = [
            self.machine.registers.reader(op, part, _shown(type_), picked=True) for part in parts
        ]

        def values(lanes: Lanes) -> npt.NDArray[Any]:
            columns = [np.broadcast_to(read(lanes), lanes.count) for read in reads]
            return columns[0].copy() if len(columns) == 1 else np.stack(columns, axis=1)

        return values


def _kind(op: Op) -> tuple[str, str]:
    """What an instruction is to a watcher, and the space that it reaches."""
    opcode, modifiers = op.instruction.opcode, op.instruction.modifiers
    memory, _, what = op.space.partition("_")
    if what in ("load", "store", "atomic") and memory in ("global", "shared", "local"):
        return what, memory
    if opcode in _BARRIERS:
        return "barrier", ""
    if opcode in ("bra", "brx"):
        return "branch", ""
    if opcode in ("ret", "exit"):
        return "end", ""
    if opcode in _ARITHMETIC and modifiers and modifiers[-1] in _FLOATS:
        return "compute", ""
    return "other", ""


def _scope(op: Op) -> tuple[str, int | None]:
    """Whom a barrier holds, and how many threads, where it says so."""
    modifiers, operands = op.instruction.modifiers, op.instruction.operands
    if "warp" in modifiers:
        return "warp", None
    # A reduction has its result before the barrier's number, and what it reduces behind.
    rest = operands[2:-1] if "red" in modifiers else operands[1:]
    if not rest:
        return "block", None
    count = rest[0]
    waits = isinstance(count, Immediate) and "arrive" not in modifiers
    return "part", int(count.value) if waits and isinstance(count, Immediate) else None


def _shown(type_: str) -> str:
    return type_ if type_ not in ("b8", "b16", "b32", "b64") else f"u{type_[1:]}"


def _generic(place: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], str]:
    """A generic address in shared memory as one there."""
    if len(place) and (place // WINDOW_BYTES == SHARED_WINDOW // WINDOW_BYTES).all():
        return place - SHARED_WINDOW, "shared"
    return place, "global"
