"""The registers of a machine, and how an instruction reads its operands and writes its results."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewise.devices.emulator.ptx.syntax import (
    Immediate,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)
from tilewise.devices.emulator.ptx.types import DTYPES, TYPE_BYTES, UNSIGNED
from tilewise.devices.emulator.threads.lanes import Lanes
from tilewise.devices.emulator.threads.op import Op, Reader, Value, Writer
from tilewise.devices.emulator.threads.special import special_reader

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine
    from tilewise.devices.emulator.ptx.program import Program

_ZERO = {width: dtype.type(0) for width, dtype in UNSIGNED.items()}


KEPT = 16
"""The most programs whose registers are kept for the next launch."""

Made = tuple[Callable[[Lanes], None], int]
"""The function that runs an instruction, and the floating-point operations of one lane."""


class Registers:
    """The registers of one machine, and the functions that run instructions on registers alone.

    Making these functions takes half of a small launch, and they are the same in each launch of a
    program. So they are kept, with the registers, for the program's next launch.

    Attributes
    ----------
    values : list
        The value of each register, by its slot.
    slots : dict
        The slot of each register, by its function and its name.
    made : dict
        What runs the instructions that were reached, by their places in the program.
    """

    @classmethod
    def of(cls, machine: Machine) -> Registers:
        """Return those that the last launch of the machine's program left, else new ones."""
        with _lock:
            found = kept.pop(machine.program, None)
        if found is None:
            return cls(machine)
        found.machine = machine
        return found

    def leave(self) -> None:
        """Keep them for the next launch of the program; the machine has let go of them."""
        program = self.machine.program
        del self.machine
        self.clear()
        with _lock:
            kept[program] = self
            kept.move_to_end(program)  # another launch may have left its own meanwhile
            if len(kept) > KEPT:
                kept.popitem(last=False)

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.values: list[Value] = []
        self.slots: dict[tuple[str, str], int] = {}
        self.made: dict[int, Made] = {}
        self._zeros: list[Value] = []

    def clear(self) -> None:
        """Set every register to zero."""
        self.values[:] = self._zeros

    def slot(self, function: str, register: Register) -> int:
        """Return the slot of a function's register; a new one holds zero."""
        key = function, register.name
        slot = self.slots.get(key)
        if slot is None:
            slot = self.slots[key] = len(self.slots)
            zero = np.False_ if register.type == "pred" else _ZERO[TYPE_BYTES[register.type]]
            self._zeros.append(zero)
            self.values.append(zero)
        return slot

    def reader(self, op: Op, operand: Operand, type_: str, picked: bool = False) -> Reader:
        """Return the function that reads a source operand as a PTX type.

        Parameters
        ----------
        picked : bool
            Whether the array has one element for each lane of the set; else, where the set is
            ``whole``, it has one for each lane of the batch.
        """
        dtype = DTYPES[type_]
        if isinstance(operand, Immediate):
            value = immediate(operand, type_)
            return lambda lanes: value
        if isinstance(operand, Symbol):
            value = dtype.type(self.machine.address_of(op, operand) & (1 << 8 * dtype.itemsize) - 1)
            if operand.name in self.machine.program.depots:
                base = self.machine.program.depots[operand.name] + operand.offset
                return self._depot_reader(base, dtype, picked)
            if self.machine.is_shared(op, operand):
                return self._shared_reader(int(value), dtype, picked)
            return lambda lanes: value
        if isinstance(operand, Special):
            return special_reader(self.machine, op, operand.name, dtype, picked)
        negated = isinstance(operand, Negated)
        register = operand.register if isinstance(operand, Negated) else operand
        if not isinstance(register, Register):
            raise op.unsupported(f"operand {operand}")
        values, slot = self.values, self.slot(self.machine.program.function_of(op.index), register)
        width = TYPE_BYTES[register.type]
        narrow = dtype.itemsize < width
        if dtype.itemsize > width:
            raise op.unsupported(f"operand {register.name} is narrower than {type_}")
        unsigned, narrowed = UNSIGNED[width], UNSIGNED[dtype.itemsize]

        def read(lanes: Lanes) -> Value:
            value = values[slot]
            if value.dtype is not dtype:
                if narrow:
                    value = value.view(unsigned).astype(narrowed)
                value = value.view(dtype)
            if lanes.index is not None and (picked or not lanes.whole) and value.ndim:
                value = value[lanes.index]
            return ~value if negated else value

        return read

    def _shared_reader(self, offset: int, dtype: np.dtype[Any], picked: bool) -> Reader:
        """Return the function that reads a shared variable's address, which differs by block."""
        plain = dtype.type(offset)

        def read(lanes: Lanes) -> Value:
            if lanes.geometry.cluster_size == 1:
                return plain
            addresses = (lanes.geometry.first_address_of + offset).astype(dtype)
            if lanes.index is not None and (picked or not lanes.whole):
                addresses = addresses[lanes.index]
            return addresses

        return read

    def _depot_reader(self, base: int, dtype: np.dtype[Any], picked: bool) -> Reader:
        def read(lanes: Lanes) -> Value:
            depth = self.machine.calls.depth
            if depth is None:
                return dtype.type(base)
            where = (base + depth * self.machine.program.frame_bytes).astype(dtype)
            if lanes.index is not None and (picked or not lanes.whole):
                where = where[lanes.index]
            return where

        return read

    def writer(self, op: Op, operand: Operand, type_: str) -> Writer:
        """Return the function that writes a result of a PTX type to a destination."""
        if isinstance(operand, Sink):
            return lambda lanes, value: None
        if not isinstance(operand, Register):
            raise op.unsupported(f"destination {operand}")
        values, slot = self.values, self.slot(self.machine.program.function_of(op.index), operand)
        width, dtype = TYPE_BYTES[operand.type], DTYPES[type_]
        wide = dtype.itemsize < width
        wider = np.dtype(f"{'i' if type_[0] == 's' else 'u'}{width}") if width <= 8 else dtype

        def write(lanes: Lanes, value: Value) -> None:
            if wide:
                value = value.astype(wider)
            if lanes.whole:
                index = lanes.index
                if index is None or not value.ndim or len(value) == lanes.geometry.count:
                    values[slot] = value
                    return
                full = np.zeros(lanes.geometry.count, value.dtype)
                full[index] = value
                values[slot] = full
                return
            old = values[slot]
            if old.ndim:
                new = old.copy()
                if new.dtype is not value.dtype:
                    new = new.view(value.dtype)
            else:
                new = np.full(lanes.geometry.count, old.view(value.dtype))
            new[lanes.index] = value
            values[slot] = new

        return write

    def carry(self, op: Op) -> tuple[Reader, Writer]:
        """Return the functions that read and write the carry flag (PTX ISA 9.7.2)."""
        register = Register("carry", "u32")
        name = self.machine.program.function_of(op.index)
        function = next(f for f in self.machine.program.functions if f.name == name)
        function.registers.setdefault("carry", register)
        return self.reader(op, register, "u32"), self.writer(op, register, "u32")


kept: OrderedDict[Program, Registers] = OrderedDict()
"""What the last launches left, the latest last; all registers hold zero."""
_lock = threading.Lock()


def is_of_registers(instruction: Instruction) -> bool:
    """Return whether its operands, but for its guard, are registers and literals alone."""
    return all(map(_is_register, instruction.operands))


def _is_register(operand: Operand | None) -> bool:
    if isinstance(operand, Vector):
        return all(map(_is_register, operand.elements))
    if isinstance(operand, Pair):
        return _is_register(operand.first) and _is_register(operand.second)
    return operand is None or isinstance(operand, (Register, Negated, Immediate, Sink))


def immediate(operand: Immediate, type_: str) -> Value:
    """Return a literal as a NumPy scalar of a PTX type."""
    dtype = DTYPES[type_]
    if type_ == "pred":
        return np.bool_(operand.value)
    if operand.bits is not None:
        bits, width = operand.bits
        exact = UNSIGNED[width // 8].type(bits)
        if width == 8 * dtype.itemsize:
            return exact.view(dtype)
        number = exact.view(np.float64 if width == 64 else np.float32)
        if type_ in ("f32", "f64", "f16"):
            return dtype.type(number)
        return UNSIGNED[dtype.itemsize].type(bits & (1 << 8 * dtype.itemsize) - 1)
    if type_ in ("f16", "f32", "f64"):
        if isinstance(operand.value, int) and type_ == "f16":
            return np.uint16(operand.value & 0xFFFF).view(np.float16)
        return dtype.type(operand.value)
    mask = (1 << 8 * dtype.itemsize) - 1
    return UNSIGNED[dtype.itemsize].type(int(operand.value) & mask).view(dtype)
