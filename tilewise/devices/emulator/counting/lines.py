"""The line of each instruction of a program in the machine code, and its name in messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from tilewise.compiler import Compiled
from tilewise.compiler.ptx.lines import ENDS_BLOCK
from tilewise.devices.emulator.ptx.program import Program
from tilewise.devices.emulator.ptx.sources import Sources


def machine_lines(program: Program, compiled: Compiled) -> list[int]:
    """Return the source line that the machine code records for each instruction.

    If the lines are lines of the PTX itself, an instruction has the first line of its basic block
    (:mod:`tilewise.compiler.ptx.lines`).
    """
    lines = [instruction.line for instruction in program.instructions]
    if not compiled.ptx_file:
        return lines
    base = 0
    for function in program.functions:
        labels = set(function.labels.values())
        first, begins = 0, True
        for at, instruction in enumerate(function.instructions):
            if instruction.file != compiled.ptx_file:
                break
            if begins or at in labels:
                first = instruction.line
            lines[base + at] = first
            begins = instruction.opcode in ENDS_BLOCK
        base += len(function.instructions)
    return lines


def names(
    program: Program, compiled: Compiled, lines: Sequence[int], indices: Iterable[int]
) -> dict[int, str]:
    """Return the names of some instructions' lines in messages; a header's with its file."""
    sources = Sources(program.module.files, compiled.file)
    found: dict[int, set[str]] = defaultdict(set)
    for index in indices:
        line, name = lines[index], sources.name(program.instructions[index])
        found[line].add(f"line {line}" if name == sources.own else f"line {line} of {name}")
    return {line: " and ".join(sorted(each)) for line, each in found.items()}
