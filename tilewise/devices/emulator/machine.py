"""A SIMT machine made of NumPy.

A register is an array with one element a lane, over a batch of whole blocks, or one NumPy scalar
where all lanes hold the same. Lanes that stand at the same instruction form a group; each step
takes the group at the lowest place in the program and runs it up to where the next group
stands, so that groups that part at a branch meet again behind it. Arrays in registers are never
changed in place, so that they may be shared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.barriers import Barriers
from tilewise.devices.emulator.blockwise import Blockwise
from tilewise.devices.emulator.calls import Calls
from tilewise.devices.emulator.clusters import Clusters
from tilewise.devices.emulator.copies import Copies
from tilewise.devices.emulator.faults import Faults, Place
from tilewise.devices.emulator.footprint import Footprints
from tilewise.devices.emulator.lanes import Geometry, Index, Lanes
from tilewise.devices.emulator.meetings import Meetings
from tilewise.devices.emulator.memory import GlobalMemory, Storage
from tilewise.devices.emulator.ordering import Ordering, needed
from tilewise.devices.emulator.phases import Mbarriers
from tilewise.devices.emulator.program import Program
from tilewise.devices.emulator.ptx import (
    TYPE_BYTES,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Register,
    Sink,
    Special,
    Symbol,
)
from tilewise.devices.emulator.races import Races
from tilewise.devices.emulator.semantics import DTYPES
from tilewise.devices.emulator.sources import Sources
from tilewise.devices.emulator.special import special_reader
from tilewise.devices.emulator.unwritten import only_copied
from tilewise.devices.emulator.warpgroups import Warpgroups
from tilewise.errors import BarrierError, UnsupportedInstructionError

Value = Any
"""What a register holds: an array of shape (lanes,) or a NumPy scalar."""
Reader = Callable[[Lanes], Value]
Writer = Callable[[Lanes, Value], None]
Groups = list[tuple[int, Lanes]]
Reduce = Callable[[Lanes, npt.NDArray[Any], Index, Index], None]
"""A barrier's reduction: the lanes that take the result, what all lanes brought, their blocks,
and the blocks of the lanes that take it."""

PATIENCE = 256
"""Polls (atomics, volatile and acquiring loads) of one group while others wait, after which one
of them gets a turn: a thread that spins on a lock must not keep its holder from running. Loops
that don't poll run to their end, so that their lanes meet behind them."""

_UNSIGNED: dict[int, np.dtype[Any]] = {
    1: np.dtype("u1"),
    2: np.dtype("u2"),
    4: np.dtype("u4"),
    8: np.dtype("u8"),
}
_ZERO = {width: dtype.type(0) for width, dtype in _UNSIGNED.items()}


class Op:
    """One instruction, ready to run, with its counts.

    Attributes
    ----------
    run : callable
        Runs it for some lanes.
    control : callable or None
        For instructions after which lanes may stand elsewhere: runs it and returns where.
    copied : tuple of bool
        Of a load, which elements are only stored again.
    """

    def __init__(self, machine: Machine, instruction: Instruction, index: int) -> None:
        self.machine, self.instruction, self.index = machine, instruction, index
        self.file, self.line = machine.setup.sources.name(instruction), instruction.line
        self.run: Callable[[Lanes], None] = _nothing
        self.control: Callable[[Lanes], Groups] | None = None
        self.width = self.element = 4
        self.copied: tuple[bool, ...] = ()
        self.flops_a_lane = 0
        self.space = ""
        self.lanes_run = self.warps_run = 0
        self.lanes_off = 0  # of those, by the instruction's guard
        self.requests = self.sectors = self.bytes = self.wavefronts = self.conflicts = 0
        self.divergent = self.barriers = 0
        self.reduce: Reduce | None = None

    def fault(
        self, kind: str, message: str, lane: int, place: Place | None = None, others: int = 0
    ) -> None:
        """Report a fault of one lane at this instruction."""
        machine = self.machine
        machine.faults.add(
            kind, self.index, self.file, self.line, message, machine.geometry, lane, place, others
        )

    def where(self, file: str) -> str:
        """Its line; with its file, where that is not ``file``."""
        return f"line {self.line}" + ("" if self.file == file else f" of {self.file}")

    def unsupported(self, why: str = "") -> UnsupportedInstructionError:
        """The error that names this instruction."""
        tail = f": {why}" if why else ""
        return UnsupportedInstructionError(
            f"the emulator does not know the instruction {self.instruction} "
            f"(source {self.where(self.machine.setup.sources.own)}){tail}"
        )


def _nothing(lanes: Lanes) -> None:
    pass


@dataclass
class Setup:
    """What a machine works on, of one launch."""

    memory: GlobalMemory
    parameters: bytes
    symbols: dict[str, int]
    dynamic_shared: int
    joins: Mapping[int, tuple[int, int] | None]
    faults: Faults
    sources: Sources
    is_checking: bool
    print: Callable[[str], None]
    is_mapping: bool = False


class Machine:
    """Runs the batches of one launch.

    Parameters
    ----------
    program : Program
    setup : Setup
    build : callable
        Makes an op runnable (:mod:`tilewise.devices.emulator.build`).
    """

    def __init__(
        self, program: Program, setup: Setup, build: Callable[[Machine, Op], None]
    ) -> None:
        self.program, self.setup = program, setup
        self.memory, self.faults = setup.memory, setup.faults
        self.is_checking = setup.is_checking
        self.generation = 0
        self.regs: list[Value] = []
        self.numbers: dict[tuple[str, str], int] = {}
        self.geometry: Geometry
        self.shared: Storage
        self.local: Storage
        self.all: Lanes
        self.forgetters: list[Callable[[], None]] = []
        # What synchronises by more than barriers of the block needs the exact, slower checker.
        is_ordered = self.is_checking and needed(program)
        self.ordering = Ordering(self) if is_ordered else None
        self.races: Races | Ordering = self.ordering or Races(self)
        self.calls = Calls(self)
        self.barriers = Barriers(self)
        self.meetings = Meetings(self)
        self.warpgroups = Warpgroups(self)
        self.copies = Copies(self)
        self.clusters = Clusters(self)
        self.mbarriers = Mbarriers(self)
        self.shared_bytes = program.static_shared + setup.dynamic_shared
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
        self.blockwise: Blockwise | None = None

    # Registers and operands

    def number(self, function: str, register: Register) -> int:
        """The slot of a function's register."""
        return self.numbers.setdefault((function, register.name), len(self.numbers))

    def reader(self, op: Op, operand: Operand, type_: str, picked: bool = False) -> Reader:
        """How to read a source operand as a PTX type.

        Parameters
        ----------
        picked : bool
            Whether the array has one element a lane of the set, rather than one a lane of the
            batch where the set is ``whole``.
        """
        dtype = DTYPES[type_]
        if isinstance(operand, Immediate):
            value = immediate(operand, type_)
            return lambda lanes: value
        if isinstance(operand, Symbol):
            value = dtype.type(self.address_of(op, operand) & (1 << 8 * dtype.itemsize) - 1)
            if operand.name in self.program.depots:
                base = self.program.depots[operand.name] + operand.offset
                return self._depot_reader(base, dtype, picked)
            return lambda lanes: value
        if isinstance(operand, Special):
            return special_reader(self, op, operand.name, dtype, picked)
        negated = isinstance(operand, Negated)
        register = operand.register if isinstance(operand, Negated) else operand
        if not isinstance(register, Register):
            raise op.unsupported(f"operand {operand}")
        regs, slot = self.regs, self.number(self.program.function_of(op.index), register)
        width = TYPE_BYTES[register.type]
        narrow = dtype.itemsize < width
        if dtype.itemsize > width:
            raise op.unsupported(f"operand {register.name} is narrower than {type_}")
        unsigned, narrowed = _UNSIGNED[width], _UNSIGNED[dtype.itemsize]

        def read(lanes: Lanes) -> Value:
            value = regs[slot]
            if value.dtype is not dtype:
                if narrow:
                    value = value.view(unsigned).astype(narrowed)
                value = value.view(dtype)
            if lanes.index is not None and (picked or not lanes.whole) and value.ndim:
                value = value[lanes.index]
            return ~value if negated else value

        return read

    def _depot_reader(self, base: int, dtype: np.dtype[Any], picked: bool) -> Reader:
        def read(lanes: Lanes) -> Value:
            depth = self.calls.depth
            if depth is None:
                return dtype.type(base)
            where = (base + depth * self.program.frame_bytes).astype(dtype)
            if lanes.index is not None and (picked or not lanes.whole):
                where = where[lanes.index]
            return where

        return read

    def writer(self, op: Op, operand: Operand, type_: str) -> Writer:
        """How to write a result of a PTX type to a destination."""
        if isinstance(operand, Sink):
            return lambda lanes, value: None
        if not isinstance(operand, Register):
            raise op.unsupported(f"destination {operand}")
        return self.register_writer(
            self.number(self.program.function_of(op.index), operand), operand, type_
        )

    def register_writer(self, slot: int, register: Register, type_: str) -> Writer:
        regs, geometry_of = self.regs, self
        width, dtype = TYPE_BYTES[register.type], DTYPES[type_]
        wide = dtype.itemsize < width
        wider = np.dtype(f"{'i' if type_[0] == 's' else 'u'}{width}") if width <= 8 else dtype

        def write(lanes: Lanes, value: Value) -> None:
            if wide:
                value = value.astype(wider)
            if lanes.whole:
                index = lanes.index
                if index is None or not value.ndim or len(value) == geometry_of.geometry.count:
                    regs[slot] = value
                    return
                full = np.zeros(geometry_of.geometry.count, value.dtype)
                full[index] = value
                regs[slot] = full
                return
            old = regs[slot]
            if old.ndim:
                new = old.copy()
                if new.dtype is not value.dtype:
                    new = new.view(value.dtype)
            else:
                new = np.full(geometry_of.geometry.count, old.view(value.dtype))
            new[lanes.index] = value
            regs[slot] = new

        return write

    def carry(self, op: Op) -> tuple[Reader, Writer]:
        """How to read and write the carry flag (PTX ISA 9.7.2)."""
        register = Register("carry", "u32")
        name = self.program.function_of(op.index)
        function = next(f for f in self.program.functions if f.name == name)
        function.registers.setdefault("carry", register)
        return self.reader(op, register, "u32"), self.writer(op, register, "u32")

    def address_of(self, op: Op, symbol: Symbol) -> int:
        """The address of a variable or function."""
        for name in (symbol.name, f"{self.program.function_of(op.index)}:{symbol.name}"):
            for table in (self.program.shared_offsets, self.setup.symbols, self.program.entries):
                if name in table:
                    return table[name] + symbol.offset
            if name in self.program.depots:
                return self.program.depots[name]
        raise op.unsupported(f"{symbol.name} is no variable that it knows")

    def counted_as(self, op: Op, width: int) -> tuple[int, int] | None:
        """Width and offset at which a shared access is counted; None if a neighbour's is."""
        return self.setup.joins.get(op.index, (width, 0))

    def parameter_storage(self, function: str, name: str) -> Storage:
        """The rows of a parameter, an argument or a result of a device function."""
        return self.calls.storage(function, name)

    def shared_place(self, offset: int, element: int) -> Place:
        """The shared variable and element at an offset in the block's shared memory."""
        name, start = self.program.shared_variable(offset)
        return Place(name, (offset - start) // element)

    # Running

    def run(self, geometry: Geometry) -> None:
        """Run one batch of blocks from beginning to end."""
        previous = getattr(self, "geometry", None)
        self.geometry = geometry
        if previous is None or previous.block_count != geometry.block_count:
            for forget in self.forgetters:
                forget()
            self.races.forget()
        self.generation += 1
        self.all = Lanes(geometry, None, True)
        self.shared = Storage(geometry.block_count, self.shared_bytes, self.is_checking)
        self.local = Storage(geometry.count, self.program.frame_bytes, self.is_checking)
        self.regs[:] = self._fresh_registers()
        self.live_count = geometry.count
        self.live_in_block = np.full(geometry.block_count, geometry.threads, np.intp)
        self.parked = 0
        self.groups: dict[int, Lanes] = {self.program.start: self.all}
        for part in (
            self.calls, self.barriers, self.meetings, self.warpgroups, self.copies, self.races,
            self.clusters, self.mbarriers,
        ):  # fmt: skip
            part.start()
        self._steps()
        if self.is_checking:
            self.races.end()

    def _fresh_registers(self) -> list[Value]:
        values: list[Value] = [None] * len(self.numbers)
        for slot, width in enumerate(self.program.register_widths(self.numbers)):
            values[slot] = _ZERO[width] if width else np.False_
        return values

    def _steps(self) -> None:
        while self.groups or self.parked:
            if not self.groups:
                if self.mbarriers.ask_again():
                    continue
                self.meetings.report_stuck()
                self.warpgroups.report_stuck()
                self.barriers.report_stuck()
                self.clusters.report_stuck()
                self.mbarriers.report_stuck()
                if self.faults.mode == "collect":
                    return  # the batch ends here: its threads would wait forever
                raise BarrierError(tuple(self.faults.findings))
            at = min(self.groups)
            is_patient = self._run_group(at, self.groups.pop(at), in_turn=True)
            if not is_patient:
                self.mbarriers.resume_all()
                if len(self.groups) > 1:
                    at = max(self.groups)
                    self._run_group(at, self.groups.pop(at), in_turn=False)

    def _run_group(self, at: int, lanes: Lanes, in_turn: bool) -> bool:
        """Run a group until it parts, waits, ends, or another stands lower (``in_turn``).

        Returns
        -------
        bool
            False if it polled more often than ``PATIENCE``.
        """
        ops, groups = self.ops, self.groups
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
            count, warps = lanes.count, lanes.warps
            while at != stop:
                op = ops[at]
                op.lanes_run += count
                op.warps_run += warps
                if op.control is not None:
                    went = op.control(lanes)
                    if len(went) != 1:
                        for where, who in went:
                            self.add_group(where, who)
                        return True
                    at, lanes = went[0]
                    break
                op.run(lanes)
                at += 1
        self.add_group(at, lanes)
        return False

    def add_group(self, at: int, lanes: Lanes) -> None:
        """Let lanes wait at an instruction, with those that stand there."""
        if lanes.count == 0:
            return
        there = self.groups.get(at)
        self.groups[at] = lanes if there is None else self.union(there, lanes)

    def union(self, one: Lanes, other: Lanes) -> Lanes:
        """Both sets; they have no lane in common."""
        count = one.count + other.count
        if count == self.geometry.count:
            return self.all
        index = np.concatenate((one.numbers, other.numbers))
        index.sort()
        return Lanes(self.geometry, index, count == self.live_count)

    def retire(self, lanes: Lanes) -> None:
        """Lanes end."""
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


def immediate(operand: Immediate, type_: str) -> Value:
    """A literal as a NumPy scalar of a PTX type."""
    dtype = DTYPES[type_]
    if type_ == "pred":
        return np.bool_(operand.value)
    if operand.bits is not None:
        bits, width = operand.bits
        exact = _UNSIGNED[width // 8].type(bits)
        if width == 8 * dtype.itemsize:
            return exact.view(dtype)
        number = exact.view(np.float64 if width == 64 else np.float32)
        if type_ in ("f32", "f64", "f16"):
            return dtype.type(number)
        return _UNSIGNED[dtype.itemsize].type(bits & (1 << 8 * dtype.itemsize) - 1)
    if type_ in ("f16", "f32", "f64"):
        if isinstance(operand.value, int) and type_ == "f16":
            return np.uint16(operand.value & 0xFFFF).view(np.float16)
        return dtype.type(operand.value)
    mask = (1 << 8 * dtype.itemsize) - 1
    return _UNSIGNED[dtype.itemsize].type(int(operand.value) & mask).view(dtype)
