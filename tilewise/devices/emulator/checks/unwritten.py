"""Find reads of uninitialised memory, except for copies of the holes in a structure.

A structure has holes between its members. A copy of the whole structure reads these holes too, and
writes them. So a value that is only copied, or not used at all, may have uninitialised bytes, as
long as something in the structure was written. A value that the kernel computes with may not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.memory.global_memory import WRITTEN
from tilewise.devices.emulator.memory.storage import Bytes
from tilewise.devices.emulator.ptx.program import Program
from tilewise.devices.emulator.ptx.syntax import (
    Instruction,
    Operand,
    Pair,
    Register,
    Vector,
    registers_of,
)
from tilewise.devices.emulator.threads.lanes import Index

_NEIGHBOURHOOD = 16
"""The bytes around a hole: no member has a larger alignment, so no hole is as long."""


def _names(operand: Operand) -> Iterator[str]:
    return (register.name for register in registers_of(operand))


def _used(instruction: Instruction) -> Iterator[str]:
    """Yield the registers that an instruction reads, except for the values of stores."""
    if instruction.predicate is not None:
        yield instruction.predicate[0].name
    operands = instruction.operands
    if instruction.opcode == "st":
        yield from _names(operands[0])
        return
    # The first operand is a target, unless it is an address, or belongs to a call or a branch.
    for place, operand in enumerate(operands):
        if place or not isinstance(operand, (Register, Vector, Pair)):
            yield from _names(operand)


@lru_cache(maxsize=32)
def only_copied(program: Program) -> Mapping[int, tuple[bool, ...]]:
    """Return for each load which of its elements only stores read."""
    used: dict[str, set[str]] = {}
    for index, instruction in enumerate(program.instructions):
        used.setdefault(program.function_of(index), set()).update(_used(instruction))
    found: dict[int, tuple[bool, ...]] = {}
    for index, instruction in enumerate(program.instructions):
        if instruction.opcode == "cp":
            found[index] = (True,)
        elif instruction.opcode == "ld":
            target = instruction.operands[0]
            parts = target.elements if isinstance(target, Vector) else (target,)
            busy = used[program.function_of(index)]
            found[index] = tuple(busy.isdisjoint(_names(part)) for part in parts)
    return found


def faulty(
    written: npt.NDArray[np.bool_],
    size: int,
    copied: tuple[bool, ...],
    states: Bytes,
    starts: Index,
) -> Index:
    """Find the lanes that read uninitialised bytes.

    Parameters
    ----------
    written : ndarray of bool, shape (lanes, width)
        Whether each byte that is read was written.
    size : int
        The bytes of an element.
    copied : tuple of bool
        For each element, the result of :func:`only_copied`; one value may stand for all.
    states : ndarray of uint8
        For each byte of the memory, ``WRITTEN`` if it was written; in whole 16-byte pieces.
    starts : ndarray of int, shape (lanes,)
        The places at which the lanes read.
    """
    if written.all():
        return np.empty(0, np.intp)
    lacks = ~written.reshape(len(written), -1, size).all(axis=2)
    spare = np.broadcast_to(np.array(copied or (False,)), lacks.shape[1:])
    lost = (lacks & ~spare).any(axis=1)
    missing = (lacks & spare).any(axis=1) & ~lost
    if missing.any():
        has_some = written.any(axis=1)
        # A hole that is copied on its own is copied byte by byte, as it has no type.
        if size == 1:
            some = (states.reshape(-1, _NEIGHBOURHOOD) == WRITTEN).any(axis=1)
            has_some |= np.asarray(some)[starts // _NEIGHBOURHOOD]
        lost |= missing & ~has_some
    return np.flatnonzero(lost)
