"""The counters of a launch, from the counts of its instructions."""

from __future__ import annotations

from dataclasses import fields
from functools import cache

from tilewise.counted import Counters
from tilewise.devices.emulator.ptx.sources import Sources
from tilewise.devices.emulator.ptx.syntax import Instruction
from tilewise.devices.emulator.threads.op import Op

NAMES = frozenset(field.name for field in fields(Counters))


def count(ops: list[Op], sources: Sources) -> tuple[Counters, dict[int, Counters]]:
    """Return the counters of the whole launch and of each line of the kernel's own file."""
    total = Counters()
    lines: dict[int, Counters] = {}
    for op in ops:
        if not op.lanes_run:
            continue
        counted = [total]
        line = sources.own_line(op.instruction)
        if line is not None:
            if line not in lines:
                lines[line] = Counters()
            counted.append(lines[line])
        mine = _counts(op)
        for each in map(vars, counted):
            for name, number in mine:
                each[name] += number
    return total, lines


def _counts(op: Op) -> list[tuple[str, int]]:
    """Return the counters that one instruction adds to, each with the number added."""
    ran = op.lanes_run - op.lanes_off
    found = [("warp_instructions", op.warps_run), ("thread_instructions", op.lanes_run)]
    if op.barriers:
        found.append(("barriers", op.barriers))
    if op.divergent:
        found.append(("divergent_branches", op.divergent))
    if op.flops_a_lane:
        found.append(("flops", op.flops_a_lane * ran))
    if op.tensor_type:
        found.append((f"tensor_{op.tensor_type}_flops", op.flops_a_lane * ran))
    for tally in (op, *op.others):
        if tally.space:
            found += [(name, getattr(tally, what)) for what, name in _counters_of(tally.space)]
    arithmetic = _arithmetic(op.instruction)
    if arithmetic:
        found.append((arithmetic, ran))
    return found


@cache
def _counters_of(space: str) -> tuple[tuple[str, str], ...]:
    """Return the attributes of a tally that are counted, each with its counter's name."""
    counters = {
        "requests": "requests", "sectors": "sectors", "bytes": "bytes",
        "wavefronts": "wavefronts", "conflicts": "bank_conflicts",
    }  # fmt: skip
    named = [(what, f"{space}_{name}") for what, name in counters.items()]
    return tuple((what, name) for what, name in named if name in NAMES)


_ARITHMETIC = {"add": "add", "sub": "add", "mul": "mul", "fma": "fma", "mad": "fma"}
_LETTERS = {"f32": "f", "f64": "d"}


def _arithmetic(instruction: Instruction) -> str:
    """Return the counter of a float's or a double's addition, multiplication or both; or ``""``."""
    kind = _ARITHMETIC.get(instruction.opcode)
    letter = _LETTERS.get(instruction.modifiers[-1]) if instruction.modifiers else None
    return f"{letter}{kind}" if kind and letter else ""
