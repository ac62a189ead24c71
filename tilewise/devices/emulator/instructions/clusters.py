"""The barrier of a cluster, and addresses in its blocks (PTX ISA 9.7.9.23, 9.7.13.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tilewise.devices.emulator.ptx.modifiers import Words
from tilewise.devices.emulator.threads.lanes import RANK_SHIFT, Lanes
from tilewise.devices.emulator.threads.op import Op

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

_RANKS = 0x7F


def _barrier(machine: Machine, op: Op) -> None:
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    words.flag("cluster")
    action = words.one_of(("arrive", "wait"))
    # A relaxed arrival goes with a fence of its own; both together order memory as a releasing
    # arrival does.
    words.one_of(("release", "relaxed") if action == "arrive" else ("acquire",))
    words.flag("aligned")
    words.done(bool(action))
    if action == "arrive":
        op.run = lambda lanes: machine.clusters.arrive(op, lanes)
    else:
        op.control = lambda lanes: machine.clusters.wait(op, lanes)


def _map(machine: Machine, op: Op) -> None:
    """Build ``mapa``: an address in the own block becomes the same address in another block."""
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    words.flag("shared::cluster")
    type_ = words.type("u32", "u64")
    words.done()
    target, source, rank = op.instruction.operands
    write = machine.registers.writer(op, target, type_)
    read = machine.registers.reader(op, source, type_, picked=True)
    read_rank = machine.registers.reader(op, rank, "u32", picked=True)

    def run(lanes: Lanes) -> None:
        address = np.broadcast_to(read(lanes), lanes.count)
        wanted = np.broadcast_to(read_rank(lanes), lanes.count).astype(np.int64)
        # An address of no block is no fault before it is used.
        above = np.minimum(wanted, _RANKS) << RANK_SHIFT
        plain = address & ~address.dtype.type(_RANKS << RANK_SHIFT)
        write(lanes, plain | above.astype(address.dtype))

    op.run = run


def _rank_of(machine: Machine, op: Op) -> None:
    """Build ``getctarank``: the rank of the block that an address belongs to."""
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    words.flag("shared::cluster")
    type_ = words.type("u32", "u64")
    words.done()
    target, source = op.instruction.operands
    write = machine.registers.writer(op, target, "u32")
    read = machine.registers.reader(op, source, type_, picked=True)

    def run(lanes: Lanes) -> None:
        address = np.broadcast_to(read(lanes), lanes.count).astype(np.int64)
        write(lanes, (address >> RANK_SHIFT & _RANKS).astype(np.uint32))

    op.run = run


def _nothing(machine: Machine, op: Op) -> None:
    """Build ``setmaxnreg`` and ``griddepcontrol``, which have no effect here."""


BUILDERS: dict[str, Callable[[Machine, Op], None]] = {
    "barrier.cluster": _barrier,
    "mapa": _map,
    "getctarank": _rank_of,
    "setmaxnreg": _nothing,
    "griddepcontrol": _nothing,
}
