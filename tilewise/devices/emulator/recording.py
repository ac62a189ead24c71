"""What some blocks of a launch do, instruction by instruction, for whoever wants to watch.

A recorder wraps the machine's instructions; where nobody records, nothing is wrapped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.lanes import Lanes
from tilewise.devices.emulator.memory import SHARED_WINDOW, WINDOW_BYTES
from tilewise.devices.emulator.ptx import Address, Operand, Register, Vector

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine, Op

_FLOATS = ("f32", "f64")
_ARITHMETIC = ("add", "sub", "mul", "fma", "mad", "div", "max", "min")


@dataclass
class Event:
    """One instruction, run by some threads of a block at once.

    Attributes
    ----------
    op : int
        Its number among the program's.
    line : int or None
        Of the kernel's own file; None for what is a header's, or nobody's.
    threads : ndarray of intp
        Which, by their linear number in the block.
    kind : str
        ``"load"``, ``"store"`` or ``"atomic"`` of memory, ``"compute"`` of floats, ``"barrier"``,
        ``"branch"``, ``"end"``, or ``"other"``.
    space : str
        Of memory: ``"global"``, ``"shared"`` or ``"local"``; else empty.
    address : ndarray of int64 or None
        Of memory, bytes, a thread: in the device's memory, or in the block's shared memory.
    width : int
        Of memory, bytes a thread.
    values : ndarray or None
        What was loaded or stored, or the result, of shape (threads,) or (threads, elements).
    requests, sectors, conflicts : int
        That this one time made.
    """

    op: int
    line: int | None
    threads: npt.NDArray[np.intp]
    kind: str
    space: str = ""
    address: npt.NDArray[np.int64] | None = None
    width: int = 0
    values: npt.NDArray[Any] | None = None
    requests: int = 0
    sectors: int = 0
    conflicts: int = 0


@dataclass
class Recording:
    """One block's events, in order; cut short where there are too many."""

    events: list[Event] = field(default_factory=list)
    is_cut: bool = False


class Recorder:
    """Records the block that a machine runs.

    Parameters
    ----------
    machine : Machine
        New. Its batches are to be of one block.
    most : int
        Events of a block; what comes after is left out.
    """

    def __init__(self, machine: Machine, most: int) -> None:
        self.machine, self.most = machine, most
        self.recording = Recording()
        for op in machine.ops:
            self._wrap(op)

    def start(self) -> Recording:
        """A block begins; its recording fills while it runs."""
        self.recording = Recording()
        return self.recording

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
        holds = self._guard(op)
        address = self._address(op) if space else None
        is_source = kind in ("store", "atomic")
        values = self._values(op, kind) if kind in ("load", "store", "atomic", "compute") else None

        def note(lanes: Lanes, run: Callable[[], None]) -> None:
            counts = op.requests, op.sectors, op.conflicts
            chosen = lanes if holds is None else holds(lanes)
            place = None if address is None or not chosen.count else address(chosen)
            before = values(chosen) if values and is_source and chosen.count else None
            run()
            if not chosen.count:
                return
            if len(self.recording.events) >= self.most:
                self.recording.is_cut = True
                return
            after = before if is_source else values(chosen) if values else None
            where = space
            if place is not None and space == "global" and op.instruction.opcode in ("ld", "st"):
                place, where = _generic(place)
            requests, sectors, conflicts = op.requests, op.sectors, op.conflicts
            self.recording.events.append(
                Event(
                    op.index, line, chosen.numbers.copy(), kind, where, place, op.width, after,
                    requests - counts[0], sectors - counts[1], conflicts - counts[2],
                )
            )  # fmt: skip

        return note

    def _guard(self, op: Op) -> Callable[[Lanes], Lanes] | None:
        """The lanes that an instruction's guard lets through; None where it has none."""
        if op.instruction.predicate is None or op.instruction.opcode in ("bra", "brx"):
            return None
        register, is_negated = op.instruction.predicate
        read = self.machine.reader(op, register, "pred", picked=True)
        return lambda lanes: lanes.where(np.broadcast_to(read(lanes) != is_negated, lanes.count))

    def _address(self, op: Op) -> Callable[[Lanes], npt.NDArray[np.int64]] | None:
        """Byte addresses of the lanes."""
        found = next((x for x in op.instruction.operands if isinstance(x, Address)), None)
        if found is None:
            return None
        base, offset = found.base, found.offset
        if isinstance(base, Register):
            read = self.machine.reader(op, base, "s64" if base.type.endswith("64") else "s32",
                                       picked=True)  # fmt: skip
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
        at = {"store": 1, "atomic": 1 + (op.instruction.opcode == "atom")}.get(kind, 0)
        if at >= len(operands):
            return None
        operand = operands[at]
        parts: tuple[Operand, ...] = operand.elements if isinstance(operand, Vector) else (operand,)
        type_ = op.instruction.modifiers[-1]
        if any(isinstance(part, Address) for part in parts):
            return None
        reads = [self.machine.reader(op, part, _shown(type_), picked=True) for part in parts]

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
    if opcode in ("bar", "barrier"):
        return "barrier", ""
    if opcode in ("bra", "brx"):
        return "branch", ""
    if opcode in ("ret", "exit"):
        return "end", ""
    if opcode in _ARITHMETIC and modifiers and modifiers[-1] in _FLOATS:
        return "compute", ""
    return "other", ""


def _shown(type_: str) -> str:
    return type_ if type_ not in ("b8", "b16", "b32", "b64") else f"u{type_[1:]}"


def _generic(place: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], str]:
    """A generic address in shared memory as one there."""
    if len(place) and (place // WINDOW_BYTES == SHARED_WINDOW // WINDOW_BYTES).all():
        return place - SHARED_WINDOW, "shared"
    return place, "global"
