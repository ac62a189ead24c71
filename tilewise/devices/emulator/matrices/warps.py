"""Read and write registers of all lanes at once, for instructions that whole warps run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.ptx.syntax import Operand, Register, Vector
from tilewise.devices.emulator.synchronisation.meetings import Mask
from tilewise.devices.emulator.threads.lanes import WARP, Lanes
from tilewise.devices.emulator.threads.op import Op, Reader, Writer

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

Values = npt.NDArray[Any]
ALL_LANES = np.uint32(0xFFFFFFFF)


def elements(op: Op, operand: Operand) -> tuple[Operand, ...]:
    if isinstance(operand, Vector):
        return operand.elements
    if isinstance(operand, Register):
        return (operand,)
    raise op.unsupported("operands")


def readers_of(machine: Machine, op: Op, operand: Operand, type_: str) -> list[Reader]:
    return [machine.registers.reader(op, x, type_, picked=True) for x in elements(op, operand)]


def writers_of(machine: Machine, op: Op, operand: Operand, type_: str) -> list[Writer]:
    return [machine.registers.writer(op, x, type_) for x in elements(op, operand)]


def read_all(readers: list[Reader], lanes: Lanes) -> Values:
    """Return the registers of the lanes, of shape (registers, lanes)."""
    return np.stack([np.broadcast_to(read(lanes), lanes.count) for read in readers])


def of_warps(machine: Machine, op: Op, run: Callable[[Lanes], None]) -> None:
    """Let an aligned instruction run for whole warps."""

    def meet(lanes: Lanes, masks: Mask) -> None:
        warp = lanes.pick(lanes.geometry.warp_of)
        there = np.bincount(warp)[warp]
        lacking = np.flatnonzero(there != WARP)
        if len(lacking):
            op.fault(
                "barrier",
                f"runs {op.instruction}, which only {there[lacking[0]]} of the warp's {WARP} "
                "threads reach",
                int(lanes.numbers[lacking[0]]),
                None,
                lanes.geometry.of_one_block(lanes.numbers[lacking]) - 1,
            )
            lanes = lanes.where(there == WARP)
        if lanes.count:
            run(lanes)

    op.control = lambda lanes: machine.meetings.arrive(op.index, op, meet, lanes, ALL_LANES)
