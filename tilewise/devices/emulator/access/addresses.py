"""The address operand of an instruction (PTX ISA 6.4.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewise.devices.emulator.ptx.syntax import Address, Register, Symbol
from tilewise.devices.emulator.ptx.types import TYPE_BYTES
from tilewise.devices.emulator.threads.lanes import Lanes
from tilewise.devices.emulator.threads.op import Op
from tilewise.shown import plural

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

_NEAR_NULL = 1 << 16
"""The end of the addresses that count as a null pointer plus an offset."""


def of_no_array(address: int) -> str:
    """Return in words that an address of global memory belongs to no array."""
    near = "a null pointer" if address == 0 else "near a null pointer"
    told = f"address {address:#x}" + (f", {near}" if 0 <= address < _NEAR_NULL else "")
    return f"that belongs to no array ({told})"


def beside_multiple(address: int, width: int) -> str:
    """Return in words how far an address is past a multiple of ``width`` bytes."""
    return f"its address is {plural(address % width, 'byte')} past a multiple of {width}"


class Where:
    """The address operand of one instruction."""

    def __init__(self, machine: Machine, op: Op, address: Address) -> None:
        self.address, self.offset = address, address.offset
        self._constant: int | None = None
        self._is_shared = False
        self._is_short = False
        base = address.base
        if base is None:
            self._constant = address.offset
        elif isinstance(base, Symbol) and base.name not in machine.program.depots:
            self._constant = machine.address_of(op, base) + address.offset
            self._is_shared = machine.is_shared(op, base)
        else:
            type_ = "s64"
            if isinstance(base, Register):
                self._is_short = TYPE_BYTES[base.type] == 4
                type_ = "s32" if self._is_short else "s64"
                self._slot = machine.registers.slot(machine.program.function_of(op.index), base)
                self._regs = machine.registers.values
            self._read = machine.registers.reader(op, base, type_, picked=True)
        self._is_register = isinstance(base, Register)

    def source(self) -> Any:
        """Return an object that stays the same as long as the addresses do."""
        return self._regs[self._slot] if self._is_register else self

    def __call__(self, lanes: Lanes) -> Any:
        """Return the byte addresses of the lanes, or one address for all of them."""
        if self._constant is not None:
            return lanes.of_own_block(self._constant) if self._is_shared else self._constant
        value = self._read(lanes)
        if not value.ndim:
            address: Any = int(value) + self.offset
        else:
            address = value.astype(np.int64, copy=False)
            if self.offset:
                address = address + self.offset
        # Addresses of 32 bits wrap around.
        return (address + (1 << 31)) % (1 << 32) - (1 << 31) if self._is_short else address
