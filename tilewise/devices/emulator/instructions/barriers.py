"""Run the barriers of a block and of a warp: ``bar``, ``barrier`` (PTX ISA 9.7.13.1, 9.7.13.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewise.devices.emulator.ptx.modifiers import Words
from tilewise.devices.emulator.synchronisation.meetings import Mask
from tilewise.devices.emulator.threads.lanes import Index, Lanes
from tilewise.devices.emulator.threads.op import Groups, Op

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine


def _sync(machine: Machine, op: Op) -> None:
    """Build ``bar`` and ``barrier`` (sync, arrive, red), and ``bar.warp.sync``."""
    instruction = op.instruction
    words = Words(instruction.opcode, instruction.modifiers)
    if words.flag("warp"):
        words.flag("sync")
        words.done(instruction.opcode == "bar")
        _warp_sync(machine, op)
        return
    if words.flag("cluster"):
        raise words.unknown()
    words.flag("cta")
    action = words.one_of(("sync", "arrive", "red"))
    operation = words.one_of(("popc", "and", "or"))
    type_ = words.type("u32", "pred") if action == "red" else ""
    words.flag("aligned")
    words.done(bool(action) and bool(operation) == (action == "red"))
    operands = list(instruction.operands)
    write = machine.registers.writer(op, operands.pop(0), type_) if action == "red" else None
    predicate = machine.registers.reader(op, operands.pop(), "pred", picked=True) if write else None
    numbers = [machine.registers.reader(op, operand, "u32", picked=True) for operand in operands]
    if write is not None:

        def reduce(lanes: Lanes, brought: Any, block: Index, mine: Index) -> None:
            count = machine.geometry.block_count
            trues = np.bincount(block[brought], minlength=count)
            total = np.bincount(block, minlength=count)
            per_block = {"popc": trues.astype(np.uint32), "and": trues == total,
                         "or": trues > 0}[operation]  # fmt: skip
            write(lanes, per_block[mine])

        op.reduce = reduce

    def control(lanes: Lanes) -> Groups:
        values = [read(lanes) for read in numbers]
        brought = None
        if predicate is not None:
            brought = np.broadcast_to(predicate(lanes), lanes.count)
        if all(not value.ndim or (value == value.flat[0]).all() for value in values):
            number, wanted = (*(int(np.ravel(value)[0]) for value in values), 0)[:2]
            return machine.barriers.arrive(op, number, lanes, wanted, action != "arrive", brought)
        went: Groups = []
        spread = np.broadcast_to(values[0], lanes.count)
        for number in np.unique(spread):
            chosen = spread == number
            wanted = int(np.broadcast_to(values[1], lanes.count)[chosen][0]) if values[1:] else 0
            went += machine.barriers.arrive(
                op, int(number), lanes.where(chosen), wanted, action != "arrive",
                None if brought is None else brought[chosen],
            )  # fmt: skip
        return went

    op.control = control


def _warp_sync(machine: Machine, op: Op) -> None:
    """Build ``__syncwarp``: the lanes of a warp that the mask names wait for each other, wherever
    in the program they call it.
    """
    read = machine.registers.reader(op, op.instruction.operands[0], "u32", picked=True)

    def meet(lanes: Lanes, masks: Mask) -> None:
        for check in machine.race_checks:
            check.warp_barrier(lanes, masks)

    op.control = lambda lanes: machine.meetings.arrive("syncwarp", op, meet, lanes, read(lanes))


BUILDERS: dict[str, Callable[[Machine, Op], None]] = {"bar": _sync, "barrier": _sync}
