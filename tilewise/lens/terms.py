"""Find where an instruction's operands come from: the steps that wrote them to registers.

Each thread's registers are followed by name, from the loads and the arithmetic that write them,
through plain moves, to the instructions that read them. Other sources are unknown.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.ptx.program import Program
from tilewise.devices.emulator.ptx.syntax import (
    Immediate,
    Instruction,
    Operand,
    Pair,
    Register,
    Vector,
    registers_of,
)
from tilewise.devices.emulator.recording.events import Event

UNKNOWN = -1
MOST_THREADS = 1 << 20  # registers that are followed, counted for each thread of the block
Term = list[int] | float | None


class Terms:
    """The sources of operands in one block's events, which are followed in order.

    Parameters
    ----------
    program : Program
    threads : int
        The number of threads of the block.
    """

    def __init__(self, program: Program, threads: int) -> None:
        self._program, self._threads = program, threads
        # By register and thread, the source of its value, as an index of ``_sources``.
        self._registers: dict[str, npt.NDArray[np.int32]] = {}
        self._sources: list[Term] = []
        self._numbers: dict[Any, int] = {}

    def see(self, event: Event, step: int) -> list[Term]:
        """Return the sources of an event's operands; the event's own results are followed, too.

        Parameters
        ----------
        event : Event
        step : int
            The step of the event.

        Returns
        -------
        list
            One term for each operand of arithmetic, or for each value of a store to shared memory;
            empty for other events, and if nothing is known. A term is ``[step, i]`` if the operand
            is value i of that step for all threads, a number if the instruction or a move gives
            it, and otherwise None.
        """
        instruction = self._program.instructions[event.op]
        terms: list[Term] = []
        if event.kind == "compute":
            terms = [self._term(each, event) for each in instruction.operands[1:]]
        elif (event.kind, event.space) == ("store", "shared") and not event.is_copy:
            terms = [self._term(each, event) for each in _parts(instruction.operands[-1])]
        self._writes(instruction, event, step)
        return terms if any(isinstance(each, list) for each in terms) else []

    def _term(self, operand: Operand, event: Event) -> Term:
        if isinstance(operand, Immediate):
            return _number(operand)
        if not isinstance(operand, Register) or operand.name not in self._registers:
            return None
        found = self._registers[operand.name][event.threads]
        first = int(found[0]) if len(found) else UNKNOWN
        return self._sources[first] if first != UNKNOWN and (found == first).all() else None

    def _writes(self, instruction: Instruction, event: Event, step: int) -> None:
        if event.kind == "store" or not instruction.operands:
            return
        target = instruction.operands[0]
        if instruction.opcode == "mov" and isinstance(target, Register):
            source = instruction.operands[1]
            if isinstance(source, Register) and source.name in self._registers:
                self._set(target, event, self._registers[source.name][event.threads])
                return
            number = _number(source) if isinstance(source, Immediate) else None
            self._set(target, event, UNKNOWN if number is None else self._source(number))
            return
        is_told = event.kind in ("load", "compute", "atomic") and event.values is not None
        for place, register in enumerate(_parts(target)):
            if isinstance(register, Register):
                made = self._source([step, place]) if is_told else UNKNOWN
                self._set(register, event, made)
            elif isinstance(register, Pair):
                for each in registers_of(register):
                    self._set(each, event, UNKNOWN)

    def _set(self, register: Register, event: Event, source: Any) -> None:
        of = self._registers.get(register.name)
        if of is None:
            if isinstance(source, int) and source == UNKNOWN:
                return
            if (len(self._registers) + 1) * self._threads > MOST_THREADS:
                return
            of = self._registers[register.name] = np.full(self._threads, UNKNOWN, np.int32)
        of[event.threads] = source

    def _source(self, term: Term) -> int:
        key = tuple(term) if isinstance(term, list) else repr(term)
        number = self._numbers.setdefault(key, len(self._sources))
        if number == len(self._sources):
            self._sources.append(term)
        return number


def _parts(operand: Operand) -> tuple[Operand, ...]:
    return operand.elements if isinstance(operand, Vector) else (operand,)


def _number(constant: Immediate) -> float | None:
    """Return a floating-point constant as a number; None for an integer, whose type is unknown."""
    if constant.bits is None:
        return None
    bits, width = constant.bits
    value: float = struct.unpack(
        "<f" if width == 32 else "<d", bits.to_bytes(width // 8, "little")
    )[0]
    return value if np.isfinite(value) else None
