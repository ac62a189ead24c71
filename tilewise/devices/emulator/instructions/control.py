"""Run branches and exits (PTX ISA 9.7.12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewise.devices.emulator.ptx.parser import UNREADABLE
from tilewise.devices.emulator.ptx.syntax import Symbol
from tilewise.devices.emulator.threads.lanes import Lanes
from tilewise.devices.emulator.threads.op import Groups, Op
from tilewise.errors import KernelAssertError, LaunchError, UnsupportedInstructionError

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine


def _branch(machine: Machine, op: Op) -> None:
    instruction = op.instruction
    if set(instruction.modifiers) - {"uni"}:
        raise op.unsupported()
    label = instruction.operands[0]
    assert isinstance(label, Symbol)
    target, following = machine.program.target(op.index, label.name), op.index + 1
    if instruction.predicate is None:
        op.control = lambda lanes: [(target, lanes)]
        return
    register, is_negated = instruction.predicate
    read = machine.registers.reader(op, register, "pred", picked=True)

    def control(lanes: Lanes) -> Groups:
        taken = read(lanes)
        if not taken.ndim:
            return [(target if bool(taken) != is_negated else following, lanes)]
        if is_negated:
            taken = ~taken
        count = int(np.count_nonzero(taken))
        if count == lanes.count:
            return [(target, lanes)]
        if count == 0:
            return [(following, lanes)]
        jump, stay = lanes.where(taken), lanes.where(~taken)
        op.divergent += jump.warps + stay.warps - lanes.warps
        return [(following, stay), (target, jump)]

    op.control = control


def _indexed_branch(machine: Machine, op: Op) -> None:
    """Build ``brx.idx``, which is a switch."""
    if set(op.instruction.modifiers) - {"uni", "idx"}:
        raise op.unsupported()
    index, table = op.instruction.operands
    assert isinstance(table, Symbol)
    function = next(
        f for f in machine.program.functions if f.name == machine.program.function_of(op.index)
    )
    places = [machine.program.target(op.index, label) for label in function.tables[table.name]]
    read = machine.registers.reader(op, index, "u32", picked=True)

    def jump(lanes: Lanes) -> Groups:
        chosen = read(lanes)
        if not chosen.ndim:
            return [(places[int(chosen)], lanes)]
        values = np.unique(chosen)
        if len(values) == 1:
            return [(places[int(values[0])], lanes)]
        went = [(places[int(v)], lanes.where(chosen == v)) for v in values]
        op.divergent += sum(who.warps for _, who in went) - lanes.warps
        return went

    if op.instruction.predicate is None:
        op.control = jump
        return
    register, is_negated = op.instruction.predicate
    holds = machine.registers.reader(op, register, "pred", picked=True)

    def control(lanes: Lanes) -> Groups:
        taken = np.broadcast_to(holds(lanes) != is_negated, lanes.count)
        if taken.all():
            return jump(lanes)
        rest = [(op.index + 1, lanes.where(~taken))]
        return rest if not taken.any() else [*rest, *jump(lanes.where(taken))]

    op.control = control


def _exit(machine: Machine, op: Op) -> None:
    def control(lanes: Lanes) -> Groups:
        machine.retire(lanes)
        return []

    op.control = control


def _return(machine: Machine, op: Op) -> None:
    if set(op.instruction.modifiers) - {"uni"}:
        raise op.unsupported()
    if machine.program.function_of(op.index) == machine.program.kernel.name:
        _exit(machine, op)
    else:
        op.control = lambda lanes: machine.calls.leave(op, lanes)


def _trap(machine: Machine, op: Op) -> None:
    def run(lanes: Lanes) -> None:
        lane = int(lanes.numbers[0])
        geometry = machine.geometry
        who = f"thread {geometry.thread_index(lane)} of block {geometry.block_index(lane)}"
        if not machine.setup.workspace and "grid_group" in op.source.function:
            line = op.source.own_calls[0] if op.source.own_calls else op.line
            raise LaunchError(
                f"{machine.setup.sources.own}:{line}: {who} waits for the whole grid, in a launch "
                "that is not cooperative; launch it with cooperative=True"
            )
        raise KernelAssertError(f"{op.file}:{op.line}: {who} reached a trap")

    op.run = run


def _unreadable(machine: Machine, op: Op) -> None:
    raise UnsupportedInstructionError(op.instruction.modifiers[0])


BUILDERS: dict[str, Callable[[Any, Any], None]] = {
    "bra": _branch,
    "brx": _indexed_branch,
    "ret": _return,
    "exit": _exit,
    "trap": _trap,
    UNREADABLE: _unreadable,
    "brkpt": lambda machine, op: None,
}
