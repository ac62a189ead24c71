"""Wrap the instructions of a machine, so that dependences are followed before each of them runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewise.devices.emulator.ptx.syntax import Instruction, Operand, Pair, Register, Vector
from tilewise.devices.emulator.sampling.affine import ZERO
from tilewise.devices.emulator.sampling.rules import QUIET, Rules
from tilewise.devices.emulator.sampling.tracker import Tracker
from tilewise.devices.emulator.threads.lanes import Lanes
from tilewise.devices.emulator.threads.op import Op


def follow(tracker: Tracker) -> None:
    """Follow every instruction of the tracker's machine."""
    for op in tracker.machine.ops:
        _wrap(tracker, op)


def _wrap(tracker: Tracker, op: Op) -> None:
    if op.is_needless:
        return
    before = _step(tracker, op)
    if before is None:
        return
    run, control = op.run, op.control

    def followed(lanes: Lanes) -> None:
        before(lanes)
        run(lanes)

    op.run = followed
    if control is not None:
        jump = control

        def followed_jump(lanes: Lanes) -> list[tuple[int, Lanes]]:
            before(lanes)
            return jump(lanes)

        op.control = followed_jump


def _step(tracker: Tracker, op: Op) -> Callable[[Lanes], None] | None:
    """Return the step to be done before an op runs, or None."""
    instruction = op.instruction
    guard = None
    if instruction.predicate is not None:
        guard = tracker.dependence_of(op, instruction.predicate[0])
    if instruction.opcode == "call":
        return lambda lanes: tracker.lose(op, "a call is not followed")
    rule = Rules(tracker, op).rule()
    targets = [tracker.slot(op, register) for register in _targets(instruction)]
    if rule is None and guard is None and not targets:
        return None
    is_partial = guard is not None

    def step(lanes: Lanes) -> None:
        tracker.dependences.lanes = lanes
        if guard is not None:
            tracker.decide(op, guard())
        tracker.settles = False
        dependence = ZERO if rule is None else rule(lanes)
        for slot in targets:
            tracker.put(slot, dependence, lanes, is_partial)

    return step


def _targets(instruction: Instruction) -> list[Register]:
    """Return the registers that an instruction writes."""
    is_reduction = instruction.opcode in ("bar", "barrier") and "red" in instruction.modifiers
    if instruction.opcode in ("st", "brx", "red", *QUIET) and not is_reduction:
        return []
    found = []
    for operand in instruction.operands[:1]:
        parts: Sequence[Operand | None] = (operand,)
        if isinstance(operand, Vector):
            parts = operand.elements
        elif isinstance(operand, Pair):
            parts = (operand.first, operand.second)
        found += [part for part in parts if isinstance(part, Register)]
    return found
