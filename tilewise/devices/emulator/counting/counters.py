"""The counters of a launch, from the counts of its instructions."""

from __future__ import annotations

from dataclasses import fields

from tilewise.counted import Counters
from tilewise.devices.emulator.ptx.sources import Sources
from tilewise.devices.emulator.ptx.syntax import Instruction
from tilewise.devices.emulator.threads.op import Op

NAMES = frozenset(field.name for field in fields(Counters))


def count(ops: list[Op], sources: Sources) -> tuple[Counters, dict[int, Counters]]:
    """Counters of the whole launch and of each line of the kernel's own file."""
    total = Counters()
    lines: dict[int, Counters] = {}
    for op in ops:
        if not op.lanes_run:
            continue
        mine = Counters(
            barriers=op.barriers,
            divergent_branches=op.divergent,
            flops=op.flops_a_lane * (op.lanes_run - op.lanes_off),
            warp_instructions=op.warps_run,
            thread_instructions=op.lanes_run,
        )
        for tally in (op, *op.others):
            for counter, value in (
                ("requests", tally.requests),
                ("sectors", tally.sectors),
                ("bytes", tally.bytes),
                ("wavefronts", tally.wavefronts),
                ("bank_conflicts", tally.conflicts),
            ):
                name = f"{tally.space}_{counter}"
                if value and name in NAMES:
                    setattr(mine, name, value)
        arithmetic = _arithmetic(op.instruction)
        if arithmetic:
            setattr(mine, arithmetic, op.lanes_run - op.lanes_off)
        total += mine
        line = sources.own_line(op.instruction)
        if line is not None:
            lines.setdefault(line, Counters()).__iadd__(mine)
    return total, lines


_ARITHMETIC = {"add": "add", "sub": "add", "mul": "mul", "fma": "fma", "mad": "fma"}
_LETTERS = {"f32": "f", "f64": "d"}


def _arithmetic(instruction: Instruction) -> str:
    """The counter of a float's or a double's addition, multiplication or both; or ``""``."""
    kind = _ARITHMETIC.get(instruction.opcode)
    letter = _LETTERS.get(instruction.modifiers[-1]) if instruction.modifiers else None
    return f"{letter}{kind}" if kind and letter else ""
