"""Read an instruction's operands for some lanes: who runs it, where, and with which values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.memory.storage import SHARED_WINDOW, WINDOW_BYTES
from tilewise.devices.emulator.ptx.syntax import Address, Operand, Register, Sink, Vector
from tilewise.devices.emulator.threads.lanes import Lanes
from tilewise.devices.emulator.threads.op import Op

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine


def guard_of(machine: Machine, op: Op) -> Callable[[Lanes], Lanes] | None:
    """Return the function that gives the lanes that a guard lets through; None without a guard."""
    if op.instruction.predicate is None or op.instruction.opcode in ("bra", "brx"):
        return None
    register, is_negated = op.instruction.predicate
    read = machine.registers.reader(op, register, "pred", picked=True)
    return lambda lanes: lanes.where(np.broadcast_to(read(lanes) != is_negated, lanes.count))


def address_of(
    machine: Machine, op: Op, which: int
) -> Callable[[Lanes], npt.NDArray[np.int64]] | None:
    """Return the function that gives the lanes' byte addresses, for one of the addresses."""
    addresses = [x for x in op.instruction.operands if isinstance(x, Address)]
    if which >= len(addresses):
        return None
    found = addresses[which]
    base, offset = found.base, found.offset
    if isinstance(base, Register):
        type_ = "s64" if base.type.endswith("64") else "s32"
        read = machine.registers.reader(op, base, type_, picked=True)
        return lambda lanes: np.broadcast_to(
            np.asarray(read(lanes), np.int64) + offset, lanes.count
        )
    constant = offset
    if base is not None:
        constant += machine.address_of(op, base)
    return lambda lanes: np.full(lanes.count, constant, np.int64)


def values_of(machine: Machine, op: Op, kind: str) -> Callable[[Lanes], npt.NDArray[Any]] | None:
    """Return the function that gives the values in the registers that are stored or written."""
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
    reads = [machine.registers.reader(op, part, shown(type_), picked=True) for part in parts]

    def values(lanes: Lanes) -> npt.NDArray[Any]:
        columns = [np.broadcast_to(read(lanes), lanes.count) for read in reads]
        return columns[0].copy() if len(columns) == 1 else np.stack(columns, axis=1)

    return values


def shown(type_: str) -> str:
    return type_ if type_ not in ("b8", "b16", "b32", "b64") else f"u{type_[1:]}"


def generic(place: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], str]:
    """Return a generic address in shared memory as one there."""
    if len(place) and (place // WINDOW_BYTES == SHARED_WINDOW // WINDOW_BYTES).all():
        return place - SHARED_WINDOW, "shared"
    return place, "global"
