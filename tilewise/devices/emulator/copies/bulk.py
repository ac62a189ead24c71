"""Bulk copies of bytes: ``cp.async.bulk`` (PTX ISA 9.7.9.25).

A copy ends, and notifies its barrier, when its instruction runs. That is one of the orders that a
GPU may take; the race check knows that it may be later.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tilewise.devices.emulator.checks import log
from tilewise.devices.emulator.copies.small_loads import SmallLoads
from tilewise.devices.emulator.copies.transfers import (
    BARRIER,
    LOAD,
    BulkCopy,
    GlobalRows,
    SharedBytes,
    direction,
)
from tilewise.devices.emulator.memory.storage import Bytes
from tilewise.devices.emulator.ptx.modifiers import Words
from tilewise.devices.emulator.threads.lanes import Lanes
from tilewise.devices.emulator.threads.op import Op
from tilewise.shown import plural
from tilewise.tensor_map import PIECE

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine


def _plain(machine: Machine, op: Op) -> None:
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    for word in ("async", "bulk", "L2::cache_hint"):
        words.flag(word)
    to, source, completion = direction(words)
    is_multicast = words.flag("multicast::cluster")
    words.done(not is_multicast or (to, source) == ("shared::cluster", "global"))
    copy = BulkCopy(machine, op)
    op.space = {"global": "bulk_store"}.get(to, "bulk_load" if source == "global" else "")
    target, origin, length, *rest = op.instruction.operands
    read_to, read_from = copy.addresses(target), copy.addresses(origin)
    read_size = copy.numbers(length, "u32")
    read_barrier = copy.addresses(rest[0]) if completion == LOAD else None
    read_blocks = copy.numbers(rest[1], "b16") if is_multicast else None

    def fetched(lane: int, address: int, size: int, barrier: SharedBytes | None) -> Bytes | None:
        if source == "global":
            rows = _aligned(copy, lane, address, size, log.READ)
            copy.count(lane, rows if size else None, is_multicast=is_multicast)
            return None if rows is None else copy.read_global(lane, rows, PIECE).reshape(-1)
        place = copy.shared(lane, address, size, PIECE)
        if place is None:
            return None
        return copy.read_shared(lane, place, size, np.arange(size // PIECE), barrier)

    def run(lanes: Lanes) -> None:
        targets, sources, sizes = read_to(lanes), read_from(lanes), read_size(lanes)
        barriers = None if read_barrier is None else read_barrier(lanes)
        blocks = None if read_blocks is None else read_blocks(lanes)
        together = None
        is_small = source == "global" and blocks is None and barriers is not None
        if is_small and lanes.count > 1 and machine.watcher is None:
            assert barriers is not None
            together = SmallLoads(copy, lanes.numbers, targets, sources, sizes, barriers)
        done = 0
        for i, lane in enumerate(lanes.numbers.tolist()):
            if i < done:
                continue
            if together is not None and (count := together.take(i)):
                done = i + count
                continue
            size, address = int(sizes[i]), int(targets[i])
            if size % PIECE:
                copy.fault(
                    "misaligned",
                    lane,
                    f"moves {plural(size, 'byte')}, which is no multiple of {PIECE}",
                )
                continue
            barrier = None
            if barriers is not None:
                barrier = copy.shared(lane, int(barriers[i]), BARRIER, BARRIER)
            data = fetched(lane, int(sources[i]), size, barrier)
            if barriers is None:
                rows = _aligned(copy, lane, address, size, log.WRITE)
                copy.count(lane, rows if size else None)
                if data is not None and rows is not None:
                    copy.write_global(rows, data)
                continue
            place = copy.shared(lane, address, size, PIECE)
            if place is not None and barrier is not None:
                to_blocks = None if blocks is None else int(blocks[i])
                data = np.zeros(size, np.uint8) if data is None else data
                first = int(sources[i])
                origin = partial(np.arange, first, first + size, PIECE, dtype=np.int64)
                copy.deliver(
                    lane, place, barrier, to_blocks, data, origin if source == "global" else None
                )

    op.run = run


def _aligned(copy: BulkCopy, lane: int, address: int, size: int, kind: str) -> GlobalRows | None:
    """Return bytes at a 16-byte aligned address of global memory; report another address."""
    if address % PIECE:
        words = f"has an address in global memory that is not aligned to {PIECE} bytes"
        copy.fault("misaligned", lane, words)
        return None
    return copy.global_(lane, address, (size,), (), kind)


def _prefetch(machine: Machine, op: Op) -> None:
    """Prefetch bytes to the L2 cache: no value changes, but the read is checked."""
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    for word in ("async", "bulk", "prefetch", "L2", "global", "L2::cache_hint"):
        words.flag(word)
    words.done()
    copy = BulkCopy(machine, op)
    address, length, *_ = op.instruction.operands
    read_address, read_size = copy.addresses(address), copy.numbers(length, "u32")

    def run(lanes: Lanes) -> None:
        sizes = read_size(lanes)
        for i, at in enumerate(read_address(lanes).tolist()):
            lane, size = int(lanes.numbers[i]), int(sizes[i])
            if size % PIECE:
                copy.fault(
                    "misaligned",
                    lane,
                    f"prefetches {plural(size, 'byte')}, which is no multiple of {PIECE}",
                )
            else:
                _aligned(copy, lane, at, size, log.READ)

    op.run = run


BUILDERS: dict[str, Callable[[Machine, Op], None]] = {
    "cp.async.bulk": _plain,
    "cp.async.bulk.prefetch": _prefetch,
}
