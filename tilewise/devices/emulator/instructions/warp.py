"""Run the instructions that exchange values between a warp's lanes (PTX ISA 9.7.9.6, 9.7.13)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.ptx.modifiers import Words
from tilewise.devices.emulator.ptx.syntax import Operand, Pair
from tilewise.devices.emulator.ptx.types import DTYPES
from tilewise.devices.emulator.synchronisation.meetings import (
    ALL_LANES,
    ONE,
    Mask,
    Meet,
    warp_bits,
)
from tilewise.devices.emulator.threads.lanes import WARP, Index, Lanes
from tilewise.devices.emulator.threads.op import Op, Writer

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

Slots = npt.NDArray[Any]


def _slots(values: Any, lanes: Lanes) -> Slots:
    """Return the lanes' values in 32 slots a warp; zero in a slot without a lane."""
    geometry = lanes.geometry
    slots = np.zeros(geometry.warp_count * WARP, values.dtype)
    slots[lanes.pick(geometry.slot_of)] = values
    return slots


def _meeting(machine: Machine, op: Op, mask: Operand, meet: Meet) -> None:
    read = machine.registers.reader(op, mask, "u32", picked=True)
    op.control = lambda lanes: machine.meetings.arrive(op.index, op, meet, lanes, read(lanes))


def _targets(machine: Machine, op: Op, type_: str) -> tuple[Writer | None, Writer | None]:
    """Return the writers of a ``d`` or ``d|p`` destination."""
    target = op.instruction.operands[0]
    if not isinstance(target, Pair):
        return machine.registers.writer(op, target, type_), None
    value = machine.registers.writer(op, target.first, type_) if target.first else None
    return value, machine.registers.writer(op, target.second, "pred") if target.second else None


def _shuffle(machine: Machine, op: Op) -> None:
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    is_sync = words.flag("sync")
    mode = words.one_of(("up", "down", "bfly", "idx"))
    type_ = words.type("b32")
    words.done(is_sync and bool(mode))
    write, write_found = _targets(machine, op, type_)
    value, b, c, mask = op.instruction.operands[1:]
    read = machine.registers.reader(op, value, type_, picked=True)
    read_b, read_c = (machine.registers.reader(op, x, "s32", picked=True) for x in (b, c))

    def meet(lanes: Lanes, masks: Mask) -> None:
        geometry = lanes.geometry
        lane = lanes.pick(geometry.lane_id).astype(np.int32)
        offset, bounds = read_b(lanes) & 31, read_c(lanes)
        segment, clamp = (bounds >> 8) & 31, bounds & 31
        first = lane & segment
        last = first | (clamp & ~segment & 31)
        if mode == "up":
            source = lane - offset
            found = source >= last
        elif mode == "down":
            source = lane + offset
            found = source <= last
        elif mode == "bfly":
            source = lane ^ offset
            found = source <= last
        else:
            source = first | (offset & ~segment)
            found = source <= last
        source = np.where(found, source, lane)
        if machine.is_checking:
            _check_sources(op, lanes, masks, source)
        givers = lanes.pick(geometry.warp_of) * WARP + source
        if machine.undefined.shadows:
            machine.undefined.shuffled(op, lanes, lambda values: _slots(values, lanes)[givers])
        if write is not None:
            write(lanes, _slots(read(lanes), lanes)[givers])
        if write_found is not None:
            write_found(lanes, np.broadcast_to(found, lanes.count))

    _meeting(machine, op, mask, meet)


def _check_sources(op: Op, lanes: Lanes, masks: Mask, source: npt.NDArray[np.int32]) -> None:
    """Report a shuffle that reads from a lane that does not take part."""
    is_whole = lanes.index is None and lanes.geometry.threads % WARP == 0
    if is_whole and (masks == ALL_LANES).all():
        return
    here = warp_bits(lanes)[lanes.pick(lanes.geometry.warp_of)]
    lacks = (masks & here) >> source.astype(np.uint64) & ONE == 0
    which = np.flatnonzero(lacks)
    if not len(which):
        return
    first = which[0]
    is_named = masks[first] >> np.uint64(source[first]) & ONE != 0
    why = "has ended or is no thread of its block"
    if not is_named:
        why = f"its mask, {int(masks[first]):#010x}, does not name"
    what = "which" if is_named else "that"
    op.fault(
        "barrier",
        f"reads by {op.instruction} from lane {int(source[first])} of its warp, {what} {why}",
        int(lanes.numbers[first]),
        None,
        lanes.geometry.of_one_block(lanes.numbers[which]) - 1,
    )


def _vote(machine: Machine, op: Op) -> None:
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    is_sync = words.flag("sync")
    mode = words.one_of(("all", "any", "uni", "ballot"))
    type_ = words.type("pred", "b32")
    words.done(is_sync and bool(mode))
    target, source, mask = op.instruction.operands
    write = machine.registers.writer(op, target, type_)
    read = machine.registers.reader(op, source, "pred", picked=True)

    def meet(lanes: Lanes, masks: Mask) -> None:
        geometry = lanes.geometry
        holds = np.broadcast_to(read(lanes), lanes.count)
        warp = lanes.pick(geometry.warp_of)
        named = masks
        here = warp_bits(lanes)[warp] & named
        true = warp_bits(lanes.where(holds))[warp] & named
        if mode == "ballot":
            write(lanes, true.astype(np.uint32))
        elif mode == "any":
            write(lanes, true != 0)
        elif mode == "all":
            write(lanes, true == here)
        else:
            write(lanes, (true == here) | (true == 0))

    _meeting(machine, op, mask, meet)


def _match(machine: Machine, op: Op) -> None:
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    mode, is_sync = words.one_of(("any", "all")), words.flag("sync")
    type_ = words.type("b32", "b64")
    words.done(is_sync and bool(mode))
    write, write_same = _targets(machine, op, "b32")
    source, mask = op.instruction.operands[1:]
    read = machine.registers.reader(op, source, type_, picked=True)

    def meet(lanes: Lanes, masks: Mask) -> None:
        geometry = lanes.geometry
        values = np.broadcast_to(read(lanes), lanes.count)
        table = _slots(values, lanes).reshape(-1, WARP)
        warp = lanes.pick(geometry.warp_of)
        here = warp_bits(lanes)[warp] & masks
        equal = np.zeros(lanes.count, np.uint64)
        for lane in range(WARP):
            same = (table[warp, lane] == values).astype(np.uint64)
            equal |= same << np.uint64(lane)
        equal &= here
        if mode == "all":
            is_same = equal == here
            equal = np.where(is_same, here, np.uint64(0))
            if write_same is not None:
                write_same(lanes, is_same)
        if write is not None:
            write(lanes, equal.astype(np.uint32))

    _meeting(machine, op, mask, meet)


_REDUCTIONS: dict[str, Any] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def _is_wrong(lanes: Lanes, masks: Mask, warp: Index) -> npt.NDArray[np.bool_]:
    """Return whether a lane of the same warp has a mask that does not name it.

    PTX leaves open what ``redux.sync`` gives then. The machine's instruction has no mask: it
    reduces the lanes that run it together.
    """
    lane = lanes.pick(lanes.geometry.lane_id).astype(np.uint64)
    wrong = np.zeros(lanes.geometry.warp_count, np.bool_)
    wrong[warp[(masks >> lane) & ONE == 0]] = True
    return wrong[warp]


def _reduce(machine: Machine, op: Op) -> None:
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    is_sync, name = words.flag("sync"), words.one_of(tuple(_REDUCTIONS))
    type_ = words.type("u32", "s32", "b32")
    words.done(is_sync and bool(name))
    target, source, mask = op.instruction.operands
    write = machine.registers.writer(op, target, type_)
    read = machine.registers.reader(op, source, type_, picked=True)
    combine = _REDUCTIONS[name]

    def meet(lanes: Lanes, masks: Mask) -> None:
        geometry = lanes.geometry
        table = _slots(read(lanes), lanes).reshape(-1, WARP)
        warp = lanes.pick(geometry.warp_of)
        here = warp_bits(lanes)[warp]
        named = np.where(_is_wrong(lanes, masks, warp), here, here & masks)
        result = np.zeros(lanes.count, DTYPES[type_])
        started = np.zeros(lanes.count, np.bool_)
        for lane in range(WARP):
            is_in = (named >> np.uint64(lane)) & np.uint64(1) != 0
            value = table[warp, lane]
            joined = np.where(started, combine(result, value), value)
            result = np.where(is_in, joined, result)
            started |= is_in
        write(lanes, result)

    _meeting(machine, op, mask, meet)


def _active_mask(machine: Machine, op: Op) -> None:
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    words.type("b32")
    words.done()
    write = machine.registers.writer(op, op.instruction.operands[0], "b32")

    def run(lanes: Lanes) -> None:
        here = warp_bits(lanes)[lanes.pick(lanes.geometry.warp_of)]
        write(lanes, here.astype(np.uint32))

    op.run = run


def _elect(machine: Machine, op: Op) -> None:
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    words.done(words.flag("sync"))
    write, write_chosen = _targets(machine, op, "b32")
    mask = op.instruction.operands[1]

    def meet(lanes: Lanes, masks: Mask) -> None:
        named = masks.astype(np.int64)
        lowest = np.log2((named & -named).astype(np.float64)).astype(np.uint32)
        if write is not None:
            write(lanes, np.broadcast_to(lowest, lanes.count))
        if write_chosen is not None:
            write_chosen(lanes, lanes.pick(lanes.geometry.lane_id) == lowest)

    _meeting(machine, op, mask, meet)


BUILDERS: dict[str, Callable[[Machine, Op], None]] = {
    "shfl": _shuffle,
    "vote": _vote,
    "match": _match,
    "redux": _reduce,
    "activemask": _active_mask,
    "elect": _elect,
}
