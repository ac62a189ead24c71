"""Which shared variables the address of an instruction is computed from.

Variables in shared memory lie one behind the other, and a wrong index into one of them reaches
the next. What was meant is in the program: an address is the sum of a variable's own and of
numbers. Where an address comes from anything else (memory, a call, another block), or where a
variable's address and a number meet in one register, nothing is known of it.
"""

from __future__ import annotations

from collections.abc import Iterator

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
"""The variables that a value may be an address in; none for a number, None if unknown."""
_NUMBER: frozenset[str] = frozenset()
_Writer = tuple[str, str, tuple[Operand, ...]]
"""A register, the opcode of an instruction that writes it, and what that reads."""


class Roots:
    """The shared variables that the addresses of a program are computed from.

    Parameters
    ----------
    program : Program
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._known: dict[str, dict[str, _Root]] = {}

    def of(self, index: int, address: Address) -> frozenset[str]:
        """The variables that an instruction's address may be meant for.

        Parameters
        ----------
        index : int
            Of the instruction in the program.
        address : Address
            Its operand.

        Returns
        -------
        frozenset of str
            Empty where nothing is known, or where no other variable can be reached.
        """
        if len(self._program.shared_offsets) < 2 or address.base is None:
            return _NUMBER
        name = self._program.function_of(index)
        if name not in self._known:
            owner = next(f for f in self._program.functions if f.name == name)
            self._known[name] = self._solve(owner)
        return self._root(address.base, self._known[name]) or _NUMBER

    def _solve(self, function: Function) -> dict[str, _Root]:
        """What each register is, by all of its writers."""
        known: dict[str, _Root] = {}
        waiting = list(_writers(function))
        is_changed = True
        while is_changed:
            is_changed = False
            for name, opcode, operands in waiting:
                # A register of a loop waits for what goes into it from outside.
                if any(r.name not in known for o in operands for r in registers_of(o)):
                    continue
                root = _made(opcode, [self._root(operand, known) for operand in operands])
                if name in known:
                    root = _join(known[name], root)
                if name not in known or known[name] != root:
                    known[name] = root
                    is_changed = True
        return known

    def _root(self, operand: Operand, known: dict[str, _Root]) -> _Root:
        if isinstance(operand, Register):
            return known.get(operand.name)
        if isinstance(operand, Symbol) and operand.name in self._program.shared_offsets:
            return frozenset((operand.name,))
        inner = [known.get(register.name) for register in registers_of(operand)]
        return _NUMBER if all(root == _NUMBER for root in inner) else None


def _writers(function: Function) -> Iterator[_Writer]:
    for instruction in function.instructions:
        operands = instruction.operands[1:]
        if instruction.opcode in ("ld", "ldu", "atom"):
            operands = ()  # whatever comes from memory is taken for a number
        for name in results(instruction):
            yield name, instruction.opcode, operands


def _made(opcode: str, given: list[_Root]) -> _Root:
    """What an instruction makes of its operands."""
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
    """What a register is that has the one value or the other."""
    if one == other:
        return one
    return one | other if one and other else None
