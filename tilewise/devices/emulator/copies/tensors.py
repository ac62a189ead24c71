"""Tensor copies: ``cp.async.bulk.tensor`` (PTX ISA 9.7.9.27), and ``cp.reduce`` of the same.

A tensor copy moves a box of an array of one to five dimensions. What of the box lies outside the
array is read as zeros, or as NaN where the map says so, and not written. But as the hardware writes
16 bytes at once, a store goes on from the end of a row of the array to the next multiple of 16
bytes, with what the box has there. In shared memory the box's 16-byte pieces are swizzled (PTX ISA
5.5.7): the place of a piece in its 128 bytes is changed by the number of these 128 bytes in shared
memory.

The hardware refuses two kinds of box, whether or not any of it lies in the array. Its first column
must be a multiple of 16 bytes into the row (an H200 takes others for illegal instructions); and a
store's coordinates must not be negative (CUDA C++ Programming Guide, "Using TMA to transfer
multi-dimensional arrays", "Negative indices and out of bounds").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tilewise.devices.emulator.checks import log
from tilewise.devices.emulator.copies.boxes import Box, addresses, clipped, sectors_moved, swizzled
from tilewise.devices.emulator.copies.reductions import OPERATIONS, reduced, takes
from tilewise.devices.emulator.copies.tensor_maps import ALIGNMENT, BYTES, Tiled, decode
from tilewise.devices.emulator.copies.transfers import (
    BARRIER,
    LOAD,
    Addresses,
    BulkCopy,
    GlobalRows,
    SharedBytes,
    direction,
)
from tilewise.devices.emulator.counting.transactions import SECTOR
from tilewise.devices.emulator.memory.storage import Bytes
from tilewise.devices.emulator.ptx.modifiers import Words
from tilewise.devices.emulator.ptx.syntax import Address, Operand
from tilewise.devices.emulator.threads.lanes import Lanes
from tilewise.devices.emulator.threads.op import Op
from tilewise.tensor_map import PIECE, SWIZZLES

TENSOR_ALIGNMENT = 128
"""The alignment of a box in shared memory, in bytes."""

_DIMENSIONS = ("1d", "2d", "3d", "4d", "5d")
_NAN = 0x7FFF_FFFF_FFFF_FFFF
"""Its upper bits are a NaN of each size. Which NaN the hardware fills with is not documented."""

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine


class TensorCopy(BulkCopy):
    """Copies of boxes."""

    def __init__(self, machine: Machine, op: Op, tensor: Operand, dimensions: str) -> None:
        super().__init__(machine, op)
        self.map_at = self.addresses(tensor)
        assert isinstance(tensor, Address)
        self.rank = int(dimensions[0])
        if len(tensor.coordinates) != self.rank:
            raise op.unsupported(f"{len(tensor.coordinates)} coordinates")
        self.coordinates = [self.numbers(x, "s32") for x in tensor.coordinates]

    def boxes(self, lanes: Lanes) -> Iterator[tuple[int, int, Tiled, list[int]]]:
        """Yield each lane's place in the set, its number, its tensor map and the coordinates."""
        maps = self.map_at(lanes)
        corners = np.stack([read(lanes) for read in self.coordinates], axis=1).tolist()
        for i, lane in enumerate(lanes.numbers.tolist()):
            tiled = self.map(lane, int(maps[i]))
            if tiled is not None:
                yield i, lane, tiled, corners[i]

    def map(self, lane: int, address: int) -> Tiled | None:
        found = self.machine.memory.find(address, address + BYTES)
        if found is None:
            self.outside(lane, address, False)
            return None
        first = address - found.base
        tiled = decode(found.data[first : first + BYTES].tobytes())
        if address % ALIGNMENT:
            words = f"has a tensor map that is not aligned to {ALIGNMENT} bytes"
            self.fault("misaligned", lane, words)
        elif tiled is None:
            self.fault("out of bounds", lane, "finds no tensor map at the address it is given")
        elif len(tiled.extents) != self.rank:
            words = f"has {self.rank} coordinates and a tensor map of {len(tiled.extents)}"
            self.fault("out of bounds", lane, f"{words} dimensions")
        elif SWIZZLES[tiled.swizzle] not in (0, tiled.width):
            raise self.op.unsupported(
                f"its tensor map swizzles {tiled.swizzle} a box whose rows have {tiled.width} bytes"
            )
        else:
            return tiled
        return None

    def allowed(self, lane: int, tiled: Tiled, at: list[int], is_store: bool) -> bool:
        """Return whether the hardware takes a box at ``at``; report it if not."""
        if is_store and min(at) < 0:
            words = f"stores a box at {tuple(at)}; a store's coordinates must not be negative"
            self.fault("out of bounds", lane, words)
            return False
        into = at[0] * tiled.item
        if into % PIECE:
            words = (
                f"has a box that begins at column {at[0]:,} of its array, {into:,} bytes into the "
                f"row, which is no multiple of {PIECE}"
            )
            self.fault("misaligned", lane, words)
            return False
        return True

    def load(self, lane: int, tiled: Tiled, at: list[int], is_multicast: bool) -> Bytes:
        """Return the box row by row, filled outside the array; all filled if it is refused."""
        box = np.zeros((*tiled.counts[:0:-1], tiled.width), np.uint8)
        if tiled.fill == "nan":
            box.view(f"u{tiled.item}")[...] = _NAN >> 64 - 8 * tiled.item
        if not self.allowed(lane, tiled, at, is_store=False):
            return box
        part, rows = self.part(lane, tiled, at)
        unit = 2 * SECTOR if is_multicast else SECTOR
        self.count(lane, rows, sectors_moved(part, tiled, fills=True, unit=unit))
        if part is not None and rows is not None:
            box[part.part] = self.read_global(lane, rows, tiled.item)
        return box

    def part(self, lane: int, tiled: Tiled, at: list[int]) -> tuple[Box | None, GlobalRows | None]:
        """Return the part of a box that lies in the array, and its place; None for no part."""
        part = clipped(tiled, at, to_piece=False)
        if part is None:
            return None, None
        return part, self.global_(lane, part.address, part.shape, part.pitches, log.READ)

    def store(
        self, lane: int, tiled: Tiled, at: list[int], source: SharedBytes, operation: str
    ) -> None:
        """Write what of the box lies in the array, or change the array by it."""
        if operation and not takes(operation, tiled.dtype):
            raise self.op.unsupported(f"its tensor map is of {tiled.dtype}")
        if not self.allowed(lane, tiled, at, is_store=True):
            return
        part = clipped(tiled, at, to_piece=not operation)
        if part is None:
            self.count(lane, None)
            return
        pieces = swizzled(source.offset, tiled).reshape(*tiled.counts[:0:-1], -1)
        *around, along = part.part
        touched = slice(along.start // PIECE, -(-along.stop // PIECE))
        wanted = pieces[(*around, touched)].reshape(-1)
        data = self.read_shared(lane, source, tiled.size, wanted).reshape(-1, PIECE)
        kind = log.ATOMIC if operation else log.WRITE
        rows = self.global_(lane, part.address, part.shape, part.pitches, kind)
        self.count(lane, rows, sectors_moved(part, tiled, fills=False))
        if rows is None:
            return
        new = data[pieces].reshape(*pieces.shape[:-1], -1)[part.part]
        if operation:
            old = self.read_global(lane, rows, tiled.item)
            new = reduced(operation, tiled.dtype, old, new)
        self.write_global(rows, new)


def _copy(machine: Machine, op: Op) -> None:
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    for word in ("async", "bulk", "tensor", "tile", "L2::cache_hint"):
        words.flag(word)
    dimensions = words.one_of(_DIMENSIONS)
    to, source, completion = direction(words)
    words.check("global" in (to, source))
    is_multicast = words.flag("multicast::cluster")
    words.done(bool(dimensions) and (not is_multicast or to == "shared::cluster"))
    if completion == LOAD:
        op.run = _load(machine, op, dimensions, is_multicast)
    else:
        op.run = _store(machine, op, dimensions)


def _reduce(machine: Machine, op: Op) -> None:
    """``cp.reduce.async.bulk.tensor``: elements of the array are changed by those of the box."""
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    for word in ("reduce", "async", "bulk", "tensor", "tile", "L2::cache_hint"):
        words.flag(word)
    dimensions, operation = words.one_of(_DIMENSIONS), words.one_of(OPERATIONS)
    to, _, completion = direction(words)
    words.done(bool(dimensions and operation) and to == "global" and completion != LOAD)
    op.run = _store(machine, op, dimensions, operation)


def _load(machine: Machine, op: Op, dimensions: str, is_multicast: bool) -> Callable[[Lanes], None]:
    to, tensor, mbarrier, *rest = op.instruction.operands
    op.space = "bulk_load"
    copy = TensorCopy(machine, op, tensor, dimensions)
    read_to, read_barrier = copy.addresses(to), copy.addresses(mbarrier)
    read_blocks = copy.numbers(rest[0], "b16") if is_multicast else None

    def run(lanes: Lanes) -> None:
        places, barriers = read_to(lanes), read_barrier(lanes)
        blocks = None if read_blocks is None else read_blocks(lanes)
        for i, lane, tiled, at in copy.boxes(lanes):
            place = copy.shared(lane, int(places[i]), tiled.size, TENSOR_ALIGNMENT)
            barrier = copy.shared(lane, int(barriers[i]), BARRIER, BARRIER)
            if place is None or barrier is None:
                continue
            pieces = copy.load(lane, tiled, at, is_multicast).reshape(-1, PIECE)
            data = np.empty_like(pieces)
            data[swizzled(place.offset, tiled)] = pieces
            to_blocks = None if blocks is None else int(blocks[i])
            copy.deliver(
                lane, place, barrier, to_blocks, data.reshape(-1),
                partial(_origin, tiled, at, place.offset),
            )  # fmt: skip

    return run


def _origin(tiled: Tiled, at: list[int], offset: int) -> Addresses:
    """Return the global address of each piece of a box in shared memory; -1 outside the array."""
    box = addresses(tiled, at)
    found = np.empty_like(box)
    found[swizzled(offset, tiled)] = box
    return found


def _store(
    machine: Machine, op: Op, dimensions: str, operation: str = ""
) -> Callable[[Lanes], None]:
    tensor, source, *_ = op.instruction.operands
    op.space = "bulk_reduction" if operation else "bulk_store"
    copy = TensorCopy(machine, op, tensor, dimensions)
    read_source = copy.addresses(source)

    def run(lanes: Lanes) -> None:
        sources = read_source(lanes)
        for i, lane, tiled, at in copy.boxes(lanes):
            place = copy.shared(lane, int(sources[i]), tiled.size, TENSOR_ALIGNMENT)
            if place is not None:
                copy.store(lane, tiled, at, place, operation)

    return run


def _prefetch(machine: Machine, op: Op) -> None:
    """Bring a box to the L2 cache: no value changes, but what is read is checked."""
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    for word in ("async", "bulk", "prefetch", "tensor", "L2", "global", "tile", "L2::cache_hint"):
        words.flag(word)
    dimensions = words.one_of(_DIMENSIONS)
    words.done(bool(dimensions))
    copy = TensorCopy(machine, op, op.instruction.operands[0], dimensions)

    def run(lanes: Lanes) -> None:
        for _, lane, tiled, at in copy.boxes(lanes):
            if copy.allowed(lane, tiled, at, is_store=False):
                copy.part(lane, tiled, at)

    op.run = run


BUILDERS: dict[str, Callable[[Machine, Op], None]] = {
    "cp.async.bulk.tensor": _copy,
    "cp.async.bulk.prefetch.tensor": _prefetch,
    "cp.reduce.async.bulk.tensor": _reduce,
}
