"""Find the atomics that one lane executes for its whole warp, because ptxas elects one.

Where the lanes of a warp change one place in global memory, ptxas may let one of them do it for all
(:mod:`tilewise.compiler.elections`): the place's sector is then reached once, and not once a lane.
For which atomics it does that depends on what it can prove about their addresses and values. So it
is read in the machine code of the same compilation, by source line, operation and width.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewise.compiler import Compiled, elections
from tilewise.compiler import machine_code as sass
from tilewise.devices.emulator.counting.lines import machine_lines, names
from tilewise.devices.emulator.ptx.program import Program
from tilewise.devices.emulator.ptx.syntax import Instruction
from tilewise.devices.emulator.ptx.types import TYPE_BYTES

# Elected atomics are integer ones only: the sum of floats depends on their order. An exchange keeps
# one lane's value.
_OPERATIONS = frozenset(("add", "min", "max", "and", "or", "xor"))
_INTEGERS = frozenset(("u32", "s32", "b32", "u64", "s64", "b64"))
_SHARED = frozenset(("shared", "shared::cta", "shared::cluster"))
_SAID = {
    elections.EACH: "by each lane", elections.ONE: "by one lane of a warp",
    elections.WHOLE: "by one lane of a whole warp",
    elections.UNKNOWN: "by unknown lanes",
}  # fmt: skip

_Key = tuple[int, str, int]
"""A line, an operation, and its width in bits."""


@dataclass(frozen=True)
class Elected:
    """The atomics that one lane executes for its whole warp.

    Attributes
    ----------
    lanes : mapping of int to str
        Instruction index to ``elections.ONE`` or ``elections.WHOLE``. Each lane executes all other
        atomics.
    reason : str
        Why the machine code does not decide all atomics; empty if it does.
    """

    lanes: Mapping[int, str] = field(default_factory=dict)
    reason: str = ""


def elected(program: Program, compiled: Compiled) -> Elected:
    """Find the atomics of a program that one lane executes for its warp.

    Parameters
    ----------
    program : Program
        The indices in the result are those of ``program.instructions``.
    compiled : Compiled
        The same kernel.
    """
    lines = machine_lines(program, compiled)
    asked: dict[_Key, list[int]] = defaultdict(list)
    for index, instruction in enumerate(program.instructions):
        if operation := _operation(instruction):
            width = 8 * TYPE_BYTES[instruction.modifiers[-1]]
            asked[lines[index], operation, width].append(index)
    if not asked:
        return Elected()
    if missing := compiled.resources.missing:
        return Elected(reason=f"there is no machine code: {missing}")
    read = sass.disassemble(compiled)
    if read.instructions is None:
        return Elected(reason=read.reason)
    machine: dict[_Key, list[str]] = defaultdict(list)
    for each in read.instructions:
        # An atomic that each lane of an incomplete warp executes is a part of a WHOLE one.
        if each.opcode in sass.ATOMICS and each.lanes != elections.REST:
            machine[each.line, each.operation, each.width].append(each.lanes)
    lanes: dict[int, str] = {}
    doubts: list[_Key] = []
    starts = _starts(program)
    for key, indices in asked.items():
        said = _matched(indices, machine[key], starts)
        if said is None:
            doubts.append(key)
        else:
            lanes.update((at, who) for at, who in zip(indices, said, strict=True) if who)
    if not doubts:
        return Elected(lanes)
    key = min(doubts)
    place = names(program, compiled, lines, asked[key])[key[0]]
    return Elected(lanes, _doubt(place, key, asked[key], machine[key]))


def _operation(instruction: Instruction) -> str:
    """Return the operation that one lane may execute, as ``"ADD"``; empty for others."""
    words = instruction.modifiers
    if (
        instruction.opcode not in ("atom", "red")
        or words[-1] not in _INTEGERS
        or _SHARED.intersection(words)
    ):
        return ""
    return next((word.upper() for word in words if word in _OPERATIONS), "")


def _starts(program: Program) -> list[int]:
    """Return the number of the basic block that each instruction is in."""
    found: list[int] = []
    number = 0
    for function in program.functions:
        labels = set(function.labels.values())
        for at, instruction in enumerate(function.instructions):
            number += at in labels or at == 0
            found.append(number)
            number += instruction.opcode in ("bra", "brx", "ret", "exit")
    return found


def _matched(
    indices: Sequence[int], machine: Sequence[str], blocks: Sequence[int]
) -> Sequence[str] | None:
    """Return which lanes execute each atomic of a line, or None if that is not known.

    There may be more in the machine code: ptxas may unroll a loop, which changes no count.
    """
    if elections.UNKNOWN in machine or len(machine) < len(indices):
        return None
    if len(set(machine)) == 1:
        return [machine[0]] * len(indices)
    # Within one basic block, the machine code keeps the PTX's order.
    if len(machine) == len(indices) and len({blocks[index] for index in indices}) == 1:
        return machine
    return None


def _doubt(place: str, key: _Key, indices: Sequence[int], machine: Sequence[str]) -> str:
    _, operation, width = key
    counts = Counter(_SAID[each] for each in machine)
    shown = " and ".join(f"{number} {who}" for who, number in counts.items()) or "none"
    return (
        f"the {width}-bit atomic operations {operation} of {place} are {shown} in the machine "
        f"code, and {len(indices)} in the PTX: their sectors are counted as the PTX has them"
    )
