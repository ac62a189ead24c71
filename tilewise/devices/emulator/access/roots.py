"""Find the shared variables that the address of an instruction is computed from.

Variables in shared memory follow one another, and a wrong index into one of them reaches the next.
The program tells which variable was meant, because an address is the sum of a variable's address
and of numbers. Nothing is known if an address comes from anything else (memory, a call, another
block), or if a register holds a variable's address on one path and a number on another.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from tilewise.devices.emulator.counting.symbolic import results
from tilewise.devices.emulator.ptx.program import Program
from tilewise.devices.emulator.ptx.syntax import (
    Address,
    Function,
    Operand,
    Register,
    Symbol,
    registers_of,
)

_Root = frozenset[str] | None
"""The variables that a value may be an address in: empty for a number, None if unknown."""
_NUMBER: frozenset[str] = frozenset()
_FLOATING = frozenset(("f16", "bf16", "f16x2", "bf16x2", "f32", "f64", "f32x2"))


@dataclass(frozen=True)
class _Writer:
    """An instruction that writes a register.

    Attributes
    ----------
    opcode : str
    operands : tuple of Operand
        The operands that it reads.
    registers : tuple of str
        The registers among them.
    """

    opcode: str
    operands: tuple[Operand, ...]
    registers: tuple[str, ...]


class _Registers:
    """The roots of the registers of one function, which are computed on demand."""

    def __init__(self, function: Function, variables: Collection[str]) -> None:
        self._variables = variables
        self._known: dict[str, _Root] = {}
        self._writers: dict[str, list[_Writer]] = {}
        for instruction in function.instructions:
            # These instructions compute no address, and are most of a program.
            if not instruction.modifiers or instruction.modifiers[-1] in _FLOATING:
                continue
            operands = instruction.operands[1:]
            if instruction.opcode in ("ld", "ldu", "atom"):
                operands = ()  # a value from memory counts as a number
            read = tuple(r.name for operand in operands for r in registers_of(operand))
            writer = _Writer(instruction.opcode, operands, read)
            for name in results(instruction):
                self._writers.setdefault(name, []).append(writer)

    def root(self, operand: Operand) -> _Root:
        """Return the root of an operand."""
        for register in registers_of(operand):
            if register.name not in self._known:
                self._solve(register.name)
        return self._of(operand, self._known)

    def _solve(self, wanted: str) -> None:
        """Find the roots of a register and of all registers that it depends on."""
        found: dict[str, _Root] = {}
        parts = self._parts(wanted)
        is_changed = True
        while is_changed:
            is_changed = False
            for name in parts:
                for writer in self._writers.get(name, ()):
                    # A register of a loop waits for the values that enter the loop from outside.
                    if not all(r in found or r in self._known for r in writer.registers):
                        continue
                    given = [self._of(operand, found) for operand in writer.operands]
                    root = _made(writer.opcode, given)
                    if name in found:
                        root = _join(found[name], root)
                    if name not in found or found[name] != root:
                        found[name] = root
                        is_changed = True
        self._known |= {name: found.get(name) for name in parts}

    def _parts(self, wanted: str) -> list[str]:
        """Return the unknown registers that a register depends on, roughly in their order."""
        seen: dict[str, None] = {}
        waiting = [wanted]
        while waiting:
            name = waiting.pop()
            if name not in seen and name not in self._known:
                seen[name] = None
                for writer in self._writers.get(name, ()):
                    waiting += writer.registers
        return list(reversed(seen))

    def _of(self, operand: Operand, found: dict[str, _Root]) -> _Root:
        if isinstance(operand, Register):
            name = operand.name
            return found[name] if name in found else self._known.get(name)
        if isinstance(operand, Symbol) and operand.name in self._variables:
            return frozenset((operand.name,))
        inner = [self._of(register, found) for register in registers_of(operand)]
        return _NUMBER if all(root == _NUMBER for root in inner) else None


class Roots:
    """The shared variables that the addresses of a program are computed from.

    Parameters
    ----------
    program : Program
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._functions: dict[str, _Registers] = {}

    def of(self, index: int, address: Address) -> frozenset[str]:
        """Return the variables that an instruction's address may be meant for.

        Parameters
        ----------
        index : int
            The index of the instruction in the program.
        address : Address
            The address operand.

        Returns
        -------
        frozenset of str
            The variables; empty if nothing is known, or if no other variable can be reached.
        """
        program = self._program
        if len(program.shared_offsets) < 2 or address.base is None:
            return _NUMBER
        name = program.function_of(index)
        if name not in self._functions:
            owner = next(f for f in program.functions if f.name == name)
            self._functions[name] = _Registers(owner, program.shared_offsets)
        return self._functions[name].root(address.base) or _NUMBER


@lru_cache(maxsize=32)
def roots_of(program: Program) -> Roots:
    """Return the roots of a program, which are kept for all its launches."""
    return Roots(program)


def _made(opcode: str, given: list[_Root]) -> _Root:
    """Return the root of an instruction's result."""
    if all(root == _NUMBER for root in given):
        return _NUMBER
    if opcode in ("mov", "cvt", "cvta") and len(given) == 1:
        return given[0]
    if opcode == "selp":
        return _join(given[0], given[1])
    if opcode in ("add", "or"):
        return given[0] if given[1] == _NUMBER else given[1] if given[0] == _NUMBER else None
    if opcode == "sub" and given[1] == _NUMBER:
        return given[0]
    if opcode == "mad" and given[0] == given[1] == _NUMBER:
        return given[2]
    return None


def _join(one: _Root, other: _Root) -> _Root:
    """Return the root of a register that holds one value or the other."""
    if one == other:
        return one
    return one | other if one and other else None
