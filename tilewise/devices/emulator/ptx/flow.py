"""Find where a thread may continue after each instruction of a program."""

from __future__ import annotations

from tilewise.devices.emulator.ptx.program import Program
from tilewise.devices.emulator.ptx.syntax import Symbol

ENDS = ("ret", "exit")


def following(program: Program) -> list[list[int]]:
    """Return for each instruction those that may come next; a call continues behind itself."""
    return [_following(program, at) for at in range(len(program.instructions))]


def _following(program: Program, at: int) -> list[int]:
    instruction = program.instructions[at]
    is_left = instruction.opcode in (*ENDS, "bra", "brx") and instruction.predicate is None
    found = [] if is_left else [at + 1]
    symbols = [x.name for x in instruction.operands if isinstance(x, Symbol)]
    if instruction.opcode == "bra":
        found.append(program.target(at, symbols[0]))
    elif instruction.opcode == "brx":
        name = program.function_of(at)
        function = next(f for f in program.functions if f.name == name)
        found += [program.target(at, label) for label in function.tables[symbols[-1]]]
    return [place for place in found if place < len(program.instructions)]
