"""``mbarrier`` and what waits for groups of asynchronous work (PTX ISA 9.7.13.15, 9.7.9.25)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewise.devices.emulator.access.addresses import Where
from tilewise.devices.emulator.checks import happens_before
from tilewise.devices.emulator.memory.storage import SHARED_WINDOW, WINDOW_BYTES
from tilewise.devices.emulator.ptx.modifiers import Words
from tilewise.devices.emulator.ptx.syntax import Address, Immediate, Sink
from tilewise.devices.emulator.synchronisation.mbarriers import COUNT_BITS, MOST, Waiting
from tilewise.devices.emulator.threads.lanes import Index, Lanes
from tilewise.devices.emulator.threads.op import Groups, Op

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

Places = Callable[[Lanes], tuple[Lanes, Index, Index]]
"""A function that returns the lanes whose addresses are in shared memory, their blocks' rows, and
offsets.
"""


def _places(machine: Machine, op: Op, space: str, address: Any) -> Places:
    if not isinstance(address, Address):
        raise op.unsupported("operands")
    where = Where(machine, op, address)

    def find(lanes: Lanes) -> tuple[Lanes, Index, Index]:
        found = np.broadcast_to(np.asarray(where(lanes), np.int64), lanes.count)
        if space == "generic":
            inside = found // WINDOW_BYTES == SHARED_WINDOW // WINDOW_BYTES
            if not inside.all():
                which = np.flatnonzero(~inside)
                op.fault(
                    "out of bounds", "uses an mbarrier outside shared memory",
                    int(lanes.numbers[which[0]]), None, len(which) - 1,
                )  # fmt: skip
                lanes, found = lanes.where(inside), found[inside]
            found = found - SHARED_WINDOW
        rows = lanes.pick(machine.geometry.block_of)
        if space in ("generic", "shared::cluster"):
            rows, found = machine.clusters.locate(found, rows)
        else:
            found = lanes.in_own_block(found)
        return lanes, rows, found

    return find


def _space(words: Words) -> str:
    words.one_of(("acquire", "release", "relaxed"))
    words.one_of(("cta", "cluster"))
    space = words.one_of(("shared", "shared::cta", "shared::cluster"), "generic")
    words.check(words.type("b64") == "b64")
    return space


def _mbarrier(machine: Machine, op: Op) -> None:
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    actions = ("init", "inval", "expect_tx", "complete_tx", "arrive", "arrive_drop", "test_wait",
               "try_wait", "pending_count")  # fmt: skip
    action = op.instruction.modifiers[0]
    if not words.flag(action) or action not in actions:
        raise op.unsupported()
    if action == "pending_count":
        _pending_count(machine, op, words)
    elif action in ("arrive", "arrive_drop"):
        _arrive(machine, op, words, action == "arrive_drop")
    elif action in ("test_wait", "try_wait"):
        _wait(machine, op, words)
    else:
        _manage(machine, op, words, action)


def _manage(machine: Machine, op: Op, words: Words, action: str) -> None:
    """Build ``init``, ``inval``, ``expect_tx`` and ``complete_tx``."""
    space = _space(words)
    words.done()
    address, *rest = op.instruction.operands
    places = _places(machine, op, space, address)
    read = machine.registers.reader(op, rest[0], "u32", picked=True) if rest else None

    def run(lanes: Lanes) -> None:
        mbarriers = machine.mbarriers
        # Read first: lanes with a faulty address are left out below.
        values = np.zeros(machine.geometry.count, np.int64)
        if read is not None:
            values[lanes.numbers] = read(lanes)
        lanes, rows, offset = places(lanes)
        if action == "init":
            mbarriers.initialize(op, lanes, rows, offset, values[lanes.numbers])
        elif action == "inval":
            mbarriers.invalidate(op, lanes, rows, offset)
        else:
            lanes, barrier = mbarriers.find(op, lanes, rows, offset)
            sign = 1 if action == "expect_tx" else -1
            mbarriers.expect(barrier, sign * values[lanes.numbers])

    op.run = run


def _arrive(machine: Machine, op: Op, words: Words, drops: bool) -> None:
    expects = words.flag("expect_tx")
    words.flag("noComplete")
    space = _space(words)
    words.done()
    target, address, *rest = op.instruction.operands
    places = _places(machine, op, space, address)
    write = None if isinstance(target, Sink) else machine.registers.writer(op, target, "b64")
    read = machine.registers.reader(op, rest[0], "u32", picked=True) if rest else None

    def run(lanes: Lanes) -> None:
        mbarriers, asked = machine.mbarriers, lanes
        values = np.ones(machine.geometry.count, np.int64)
        if read is not None:
            values[lanes.numbers] = read(lanes)
        lanes, rows, offset = places(lanes)
        lanes, barrier = mbarriers.find(op, lanes, rows, offset)
        mine = values[lanes.numbers]
        if expects:
            state = mbarriers.arrive(op, lanes, barrier, np.ones_like(mine), mine, drops)
        else:
            state = mbarriers.arrive(op, lanes, barrier, mine, None, drops)
        if write is not None:
            states = np.zeros(machine.geometry.count, np.uint64)
            states[lanes.numbers] = state
            write(asked, states[asked.numbers])

    op.run = run


def _wait(machine: Machine, op: Op, words: Words) -> None:
    is_parity = words.flag("parity")
    space = _space(words)
    words.done()
    target, address, wanted = op.instruction.operands[:3]
    places = _places(machine, op, space, address)
    write = machine.registers.writer(op, target, "pred")
    read = machine.registers.reader(op, wanted, "u32" if is_parity else "b64", picked=True)

    def control(lanes: Lanes) -> Groups:
        mbarriers, asked = machine.mbarriers, lanes
        values = np.zeros(machine.geometry.count, np.int64)
        found = np.broadcast_to(read(lanes), lanes.count).astype(np.int64)
        values[lanes.numbers] = found & 1 if is_parity else found >> COUNT_BITS
        lanes, rows, offset = places(lanes)
        lanes, barrier = mbarriers.find(op, lanes, rows, offset)
        went: Groups = []
        if lanes.count:
            some = Waiting(op, lanes, barrier, values[lanes.numbers], is_parity, write)
            went = mbarriers.wait(some)
        if lanes.count < asked.count:
            # A fault was collected: nothing is waited for.
            lost = asked.where(~np.isin(asked.numbers, lanes.numbers))
            write(lost, np.ones(lost.count, np.bool_))
            went.append((op.index + 1, lost))
        return went

    op.control = control


def _pending_count(machine: Machine, op: Op, words: Words) -> None:
    words.check(words.type("b64") == "b64")
    words.done()
    target, state = op.instruction.operands
    write, read = (
        machine.registers.writer(op, target, "u32"),
        machine.registers.reader(op, state, "b64"),
    )
    op.run = lambda lanes: write(lanes, (read(lanes) & np.uint64(MOST)).astype(np.uint32))


def _after_copies(machine: Machine, op: Op) -> None:
    """Build ``cp.async.mbarrier.arrive``: an arrival when the thread's ``cp.async`` are done, as
    they are at once. Without ``.noinc``, the phase first gets one more arrival to wait for.
    """
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    words.check(words.flag("async") and words.flag("mbarrier") and words.flag("arrive"))
    counts = int(words.flag("noinc"))
    space = _space(words)
    words.done()
    places = _places(machine, op, space, op.instruction.operands[0])

    def run(lanes: Lanes) -> None:
        machine.copies.wait(lanes, None)
        lanes, rows, offset = places(lanes)
        lanes, barrier = machine.mbarriers.find(op, lanes, rows, offset)
        machine.mbarriers.arrive(op, lanes, barrier, np.full(lanes.count, counts, np.int64))

    op.run = run


def _group(engine: str) -> Callable[[Machine, Op], None]:
    """Return the builder of ``commit_group`` and ``wait_group``, which only order finished work."""

    def build(machine: Machine, op: Op) -> None:
        is_commit = "commit_group" in op.instruction.modifiers
        order = machine.ordering
        if order is None:
            return
        if is_commit:
            op.run = lambda lanes: order.commit(engine, lanes)
            return
        (number,) = op.instruction.operands
        if not isinstance(number, Immediate):
            raise op.unsupported("operands")
        allowed = int(number.value)
        op.run = lambda lanes: order.wait(engine, lanes, allowed)

    return build


def _proxy_fence(machine: Machine, op: Op) -> None:
    order = machine.ordering
    if order is not None:
        op.run = order.fence


def _nothing(machine: Machine, op: Op) -> None:
    """Build ``wgmma.fence``, which does nothing: the work is done at once and needs no fence."""


BUILDERS: dict[str, Callable[[Machine, Op], None]] = {
    "mbarrier": _mbarrier,
    "cp.async.mbarrier": _after_copies,
    "cp.async.bulk.commit_group": _group(happens_before.STORES),
    "cp.async.bulk.wait_group": _group(happens_before.STORES),
    "wgmma.commit_group": _group(happens_before.MATRICES),
    "wgmma.wait_group": _group(happens_before.MATRICES),
    "wgmma.fence": _nothing,
    "fence.proxy.async": _proxy_fence,
}
