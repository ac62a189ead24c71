"""Bulk copies: ``cp.async.bulk`` and ``cp.async.bulk.tensor`` (PTX ISA 9.7.9.25 and 9.7.9.27).

A copy is done, and its barrier told, when its instruction runs. That is one of the orders that a
GPU may take; the race check knows that it may be later.

A tensor copy moves a box of a batch of matrices. What of the box lies outside the matrix is
read as zero, and not written. But as the hardware writes 16 bytes at once, a store goes on from the
end of a row of the matrix to the next multiple of 16 bytes, with what the box has there. In shared
memory the box's 16-byte pieces are swizzled (PTX ISA 5.5.7): the place of a piece in its 128 bytes
is changed by the number of these 128 bytes in shared memory.

Two kinds of box the hardware refuses, whether or not any of it lies in the matrix. Its first column
must be a multiple of 16 bytes into the row (an H200 takes others for illegal instructions); and a
store's coordinates must not be negative (CUDA C++ Programming Guide, "Using TMA to transfer
multi-dimensional arrays", "Negative indices and out of bounds").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator import races
from tilewise.devices.emulator.boxes import Box, clipped, swizzled
from tilewise.devices.emulator.faults import Place
from tilewise.devices.emulator.lanes import Index, Lanes
from tilewise.devices.emulator.memory import OUTSIDE, UNWRITTEN, WRITTEN, Allocation, Bytes
from tilewise.devices.emulator.ptx import Address, Operand
from tilewise.devices.emulator.semantics import Words
from tilewise.devices.emulator.spaces import Where
from tilewise.devices.emulator.tensor_maps import ALIGNMENT, BYTES, PIECE, Tiled, decode

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine, Op

TENSOR_ALIGNMENT = 128
"""Of a box in shared memory, in bytes."""
BARRIER = 8  # bytes of an mbarrier, and its alignment
_SHARED = ("shared::cluster", "shared::cta")
_LOAD, _STORE = "mbarrier::complete_tx::bytes", "bulk_group"


@dataclass(frozen=True)
class _Shared:
    """Bytes of one block's shared memory: the block's row in the batch, and where in it."""

    row: int
    offset: int


@dataclass(frozen=True)
class _Global:
    """Rows of bytes in one allocation, ``pitch`` apart."""

    allocation: Allocation
    offset: int
    shape: tuple[int, int]
    pitch: int

    def view(self, data: Bytes) -> Bytes:
        """The rows in ``data``, one byte for each of the allocation's."""
        return np.lib.stride_tricks.as_strided(data[self.offset :], self.shape, (self.pitch, 1))


class _Copy:
    """What the copies of one instruction have in common; each thread makes its own."""

    def __init__(self, machine: Machine, op: Op) -> None:
        self.machine, self.op = machine, op

    # Operands

    def addresses(self, operand: Operand) -> Callable[[Lanes], npt.NDArray[np.int64]]:
        """How to read an address operand, one a lane of the set."""
        if not isinstance(operand, Address):
            raise self.op.unsupported("operands")
        where = Where(self.machine, self.op, operand)
        return lambda lanes: np.broadcast_to(np.asarray(where(lanes), np.int64), lanes.count)

    def numbers(self, operand: Operand, type_: str) -> Callable[[Lanes], npt.NDArray[Any]]:
        """How to read a number, one a lane of the set."""
        read = self.machine.reader(self.op, operand, type_, picked=True)
        return lambda lanes: np.broadcast_to(np.asarray(read(lanes)), lanes.count)

    # Shared memory

    def shared(self, lane: int, address: int, size: int, alignment: int) -> _Shared | None:
        """The place of ``size`` bytes; None where a thread may not copy there: reported."""
        machine = self.machine
        row = int(machine.geometry.block_of[lane])
        row, offset = (int(x) for x in machine.clusters.locate(address, row))
        limit = machine.shared.size
        if row < 0:
            self.fault("out of bounds", lane, "reaches a block that its cluster does not have")
        elif not 0 <= offset <= limit - size:
            place = machine.shared_place(offset, 1)
            words = f"reaches {size} bytes at {place}, outside the block's {limit} bytes of shared"
            self.fault("out of bounds", lane, f"{words} memory", place)
        elif offset % alignment:
            place = machine.shared_place(offset, 1)
            words = f"reaches {place} in shared memory, which is not aligned to {alignment} bytes"
            self.fault("misaligned", lane, words, place)
        else:
            return _Shared(row, offset)
        return None

    def sharers(self, lane: int, blocks: int) -> list[int]:
        """The rows of the blocks that ``blocks`` has a bit for, by their ranks in the cluster."""
        own = int(self.machine.geometry.block_of[lane])
        found = []
        for rank in range(blocks.bit_length()):
            if blocks >> rank & 1:
                row = int(self.machine.clusters.row(own, rank))
                if row >= 0:
                    found.append(row)
                else:
                    words = f"copies to block {rank} of its cluster, which has no such block"
                    self.fault("out of bounds", lane, words)
        return found

    def span(self, at: _Shared, size: int) -> slice:
        """The place in the batch's storage."""
        first = at.row * self.machine.shared.pitch + at.offset
        return slice(first, first + size)

    def read_shared(self, lane: int, at: _Shared, size: int, wanted: Index) -> Bytes:
        """``size`` bytes, of which the 16-byte pieces ``wanted`` must have been written."""
        machine, span = self.machine, self.span(at, size)
        if machine.is_checking:
            assert machine.shared.written is not None
            written = machine.shared.written[span].reshape(-1, PIECE)
            lacks = wanted[(written[wanted] == 0).all(axis=1)]
            if len(lacks):
                first = int(lacks[0])
                place = machine.shared_place(at.offset + PIECE * first, 1)
                words = f"reads {place} in shared memory, which nobody wrote"
                self.fault("uninitialised", lane, words, place)
        self.order(lane, at, size, races.READ)
        return machine.shared.data[span]

    def deliver(
        self, lane: int, to: _Shared, barrier: _Shared, blocks: int | None, data: Bytes
    ) -> None:
        """Write shared memory and tell the barrier; or the same places of several blocks."""
        machine = self.machine
        sharers = None if blocks is None else self.sharers(lane, blocks)
        for row in [to.row] if sharers is None else sharers:
            at = _Shared(row, to.offset)
            span = self.span(at, len(data))
            machine.shared.data[span] = data
            if machine.is_checking:
                assert machine.shared.written is not None
                machine.shared.written[span] = 1
            self.order(lane, at, len(data), races.WRITE)
        rows = np.array([barrier.row] if sharers is None else sharers, np.intp)
        machine.mbarriers.complete(rows, barrier.offset, len(data), self.op, lane)

    def order(self, lane: int, at: _Shared, size: int, kind: str) -> None:
        """Tell the race check that a copy touches these bytes."""
        if self.machine.ordering is not None:
            offsets = np.array([at.offset], np.int64)
            self.machine.ordering.copied(self.op, lane, at.row, offsets, size, kind)

    # Global memory

    def global_(
        self, lane: int, address: int, shape: tuple[int, int], pitch: int, is_store: bool
    ) -> _Global | None:
        """Rows of bytes, all of which may be reached; else None: reported."""
        memory = self.machine.memory
        high = address + (shape[0] - 1) * pitch + shape[1]
        found = memory.find(address, high)
        if found is None:
            owner = memory.find(address, address + 1)
            self.outside(lane, address if owner is None else owner.base + owner.size, is_store)
            return None
        rows = _Global(found, address - found.base, shape, pitch)
        if found.state is not None:
            gaps = np.argwhere(rows.view(found.state) == OUTSIDE)
            if len(gaps):
                self.outside(lane, address + int(gaps[0] @ (pitch, 1)), is_store)
                return None
        return rows

    def outside(self, lane: int, address: int, is_store: bool) -> None:
        owner = self.machine.memory.nearest(address)
        verb = "writes" if is_store else "reads"
        if owner is None:
            words = f"{verb} global memory that belongs to no array (address {address:#x})"
            self.fault("out of bounds", lane, words)
        else:
            place = Place(owner.name, owner.place(address))
            words = f"{verb} global memory at {place}, outside it ({owner.size} bytes)"
            self.fault("out of bounds", lane, words, place)

    def read_global(self, lane: int, rows: _Global, item: int) -> Bytes:
        """The bytes, of which each ``item`` must have been written at least in part."""
        owner = rows.allocation
        if owner.state is not None and self.machine.is_checking:
            state = rows.view(owner.state).reshape(-1, item)
            lacks = np.flatnonzero((state == UNWRITTEN).all(axis=1))
            if len(lacks):
                row, column = divmod(int(lacks[0]) * item, rows.shape[1])
                at = owner.base + rows.offset + row * rows.pitch + column
                place = Place(owner.name, owner.place(at))
                self.fault("uninitialised", lane, f"reads what nobody wrote at {place}", place)
        return rows.view(owner.data)

    def write_global(self, rows: _Global, data: Bytes) -> None:
        owner = rows.allocation
        rows.view(owner.data)[...] = data
        owner.is_written = True
        if owner.state is not None:
            rows.view(owner.state)[...] = WRITTEN

    def fault(self, kind: str, lane: int, message: str, place: Place | None = None) -> None:
        self.op.fault(kind, f"in a bulk copy {message}", lane, place)


class _TensorCopy(_Copy):
    """Copies of boxes."""

    def __init__(self, machine: Machine, op: Op, tensor: Operand) -> None:
        super().__init__(machine, op)
        self.map_at = self.addresses(tensor)
        assert isinstance(tensor, Address)
        if len(tensor.coordinates) != 3:
            raise op.unsupported("operands")
        self.coordinates = [self.numbers(x, "s32") for x in tensor.coordinates]

    def boxes(self, lanes: Lanes) -> Iterator[tuple[int, int, Tiled, list[int]]]:
        """Of each lane of the set: its place in it, the lane, the map, and the coordinates."""
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
        else:
            return tiled
        return None

    def allowed(self, lane: int, tiled: Tiled, at: list[int], is_store: bool) -> bool:
        """Whether the hardware takes a box at ``at``; if not, reported."""
        if is_store and min(at) < 0:
            words = f"stores a box at {tuple(at)}; a store's coordinates must not be negative"
            self.fault("out of bounds", lane, words)
            return False
        into = at[0] * tiled.item
        if into % PIECE:
            words = (
                f"has a box that begins at column {at[0]} of its matrix, {into} bytes into the "
                f"row, which is no multiple of {PIECE}"
            )
            self.fault("misaligned", lane, words)
            return False
        return True

    def load(self, lane: int, tiled: Tiled, at: list[int]) -> Bytes:
        """The box, zero outside the matrix, row by row; of one that is refused, all zero."""
        box = np.zeros((tiled.rows, tiled.width), np.uint8)
        allowed = self.allowed(lane, tiled, at, is_store=False)
        part, rows = self.part(lane, tiled, at) if allowed else (None, None)
        if part is not None and rows is not None:
            read = self.read_global(lane, rows, tiled.item)
            box[part.top : part.bottom, part.left : part.right] = read
        return box

    def part(self, lane: int, tiled: Tiled, at: list[int]) -> tuple[Box | None, _Global | None]:
        """What of a box to be read is within the matrix, and where; None where there is nothing."""
        part = clipped(tiled, at, to_piece=False)
        if part is None:
            return None, None
        return part, self.global_(lane, part.address, part.shape, tiled.strides[0], is_store=False)

    def store(self, lane: int, tiled: Tiled, at: list[int], source: _Shared) -> None:
        if not self.allowed(lane, tiled, at, is_store=True):
            return
        size = tiled.rows * tiled.width
        pieces = swizzled(source.offset, size, tiled.width).reshape(tiled.rows, -1)
        part = clipped(tiled, at, to_piece=True)
        if part is None:
            return
        first, last = part.left // PIECE, -(-part.right // PIECE)
        wanted = pieces[part.top : part.bottom, first:last].reshape(-1)
        data = self.read_shared(lane, source, size, wanted).reshape(-1, PIECE)
        rows = self.global_(lane, part.address, part.shape, tiled.strides[0], is_store=True)
        if rows is not None:
            box = data[pieces].reshape(tiled.rows, tiled.width)
            self.write_global(rows, box[part.top : part.bottom, part.left : part.right])


def _tensor(machine: Machine, op: Op) -> None:
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    for word in ("async", "bulk", "tensor", "tile", "L2::cache_hint"):
        words.flag(word)
    dimensions = words.one_of(("1d", "2d", "3d", "4d", "5d"))
    to, source, completion = _direction(words)
    words.check("global" in (to, source))
    is_multicast = words.flag("multicast::cluster")
    words.done(bool(dimensions) and (not is_multicast or to == "shared::cluster"))
    if dimensions != "3d":
        raise op.unsupported("a tensor map has three dimensions")
    op.run = (
        _tensor_load(machine, op, is_multicast)
        if completion == _LOAD
        else _tensor_store(machine, op)
    )


def _direction(words: Words) -> tuple[str, str, str]:
    """The destination's space, the source's, and how the end of a copy is told."""
    places = (*_SHARED, "global")
    to, source = words.one_of(places), words.one_of(places)
    completion = words.one_of((_LOAD, _STORE))
    is_load = completion == _LOAD and to in _SHARED and source == "global"
    is_store = completion == _STORE and (to, source) == ("global", "shared::cta")
    is_within = completion == _LOAD and (to, source) == _SHARED
    words.check(is_load or is_store or is_within)
    return to, source, completion


def _tensor_load(machine: Machine, op: Op, is_multicast: bool) -> Callable[[Lanes], None]:
    to, tensor, mbarrier, *rest = op.instruction.operands
    copy = _TensorCopy(machine, op, tensor)
    read_to, read_barrier = copy.addresses(to), copy.addresses(mbarrier)
    read_blocks = copy.numbers(rest[0], "b16") if is_multicast else None

    def run(lanes: Lanes) -> None:
        places, barriers = read_to(lanes), read_barrier(lanes)
        blocks = None if read_blocks is None else read_blocks(lanes)
        for i, lane, tiled, at in copy.boxes(lanes):
            size = tiled.rows * tiled.width
            place = copy.shared(lane, int(places[i]), size, TENSOR_ALIGNMENT)
            barrier = copy.shared(lane, int(barriers[i]), BARRIER, BARRIER)
            if place is None or barrier is None:
                continue
            pieces = copy.load(lane, tiled, at).reshape(-1, PIECE)
            data = np.empty_like(pieces)
            data[swizzled(place.offset, size, tiled.width)] = pieces
            to_blocks = None if blocks is None else int(blocks[i])
            copy.deliver(lane, place, barrier, to_blocks, data.reshape(-1))

    return run


def _tensor_store(machine: Machine, op: Op) -> Callable[[Lanes], None]:
    tensor, source, *_ = op.instruction.operands
    copy = _TensorCopy(machine, op, tensor)
    read_source = copy.addresses(source)

    def run(lanes: Lanes) -> None:
        sources = read_source(lanes)
        for i, lane, tiled, at in copy.boxes(lanes):
            size = tiled.rows * tiled.width
            place = copy.shared(lane, int(sources[i]), size, TENSOR_ALIGNMENT)
            if place is not None:
                copy.store(lane, tiled, at, place)

    return run


def _plain(machine: Machine, op: Op) -> None:
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    for word in ("async", "bulk", "L2::cache_hint"):
        words.flag(word)
    to, source, completion = _direction(words)
    is_multicast = words.flag("multicast::cluster")
    words.done(not is_multicast or (to, source) == ("shared::cluster", "global"))
    copy = _Copy(machine, op)
    target, origin, length, *rest = op.instruction.operands
    read_to, read_from = copy.addresses(target), copy.addresses(origin)
    read_size = copy.numbers(length, "u32")
    read_barrier = copy.addresses(rest[0]) if completion == _LOAD else None
    read_blocks = copy.numbers(rest[1], "b16") if is_multicast else None

    def fetched(lane: int, address: int, size: int) -> Bytes | None:
        if source == "global":
            rows = _aligned(copy, lane, address, size, is_store=False)
            return None if rows is None else copy.read_global(lane, rows, PIECE).reshape(-1)
        place = copy.shared(lane, address, size, PIECE)
        if place is None:
            return None
        return copy.read_shared(lane, place, size, np.arange(size // PIECE))

    def run(lanes: Lanes) -> None:
        targets, sources, sizes = read_to(lanes), read_from(lanes), read_size(lanes)
        barriers = None if read_barrier is None else read_barrier(lanes)
        blocks = None if read_blocks is None else read_blocks(lanes)
        for i, lane in enumerate(lanes.numbers.tolist()):
            size, address = int(sizes[i]), int(targets[i])
            if size % PIECE:
                copy.fault(
                    "misaligned", lane, f"moves {size} bytes, which is no multiple of {PIECE}"
                )
                continue
            data = fetched(lane, int(sources[i]), size)
            if barriers is None:
                rows = _aligned(copy, lane, address, size, is_store=True)
                if data is not None and rows is not None:
                    copy.write_global(rows, data)
                continue
            place = copy.shared(lane, address, size, PIECE)
            barrier = copy.shared(lane, int(barriers[i]), BARRIER, BARRIER)
            if place is not None and barrier is not None:
                to_blocks = None if blocks is None else int(blocks[i])
                data = np.zeros(size, np.uint8) if data is None else data
                copy.deliver(lane, place, barrier, to_blocks, data)

    op.run = run


def _aligned(copy: _Copy, lane: int, address: int, size: int, is_store: bool) -> _Global | None:
    """Bytes of global memory that begin at a multiple of 16; else None: reported."""
    if address % PIECE:
        words = f"has an address in global memory that is not aligned to {PIECE} bytes"
        copy.fault("misaligned", lane, words)
        return None
    return copy.global_(lane, address, (1, size), size, is_store)


def _prefetch(machine: Machine, op: Op) -> None:
    """To the L2 cache, which changes no value; but what is there to be brought is checked."""
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    for word in ("async", "bulk", "prefetch", "L2", "global", "tile", "L2::cache_hint"):
        words.flag(word)
    if words.flag("tensor"):
        words.done(words.one_of(("3d",)) == "3d")
        op.run = _tensor_prefetch(machine, op)
        return
    words.done()
    copy = _Copy(machine, op)
    address, length, *_ = op.instruction.operands
    read_address, read_size = copy.addresses(address), copy.numbers(length, "u32")

    def run(lanes: Lanes) -> None:
        sizes = read_size(lanes)
        for i, at in enumerate(read_address(lanes).tolist()):
            lane, size = int(lanes.numbers[i]), int(sizes[i])
            if size % PIECE:
                copy.fault(
                    "misaligned", lane, f"prefetches {size} bytes, which is no multiple of {PIECE}"
                )
            else:
                _aligned(copy, lane, at, size, is_store=False)

    op.run = run


def _tensor_prefetch(machine: Machine, op: Op) -> Callable[[Lanes], None]:
    copy = _TensorCopy(machine, op, op.instruction.operands[0])

    def run(lanes: Lanes) -> None:
        for _, lane, tiled, at in copy.boxes(lanes):
            if copy.allowed(lane, tiled, at, is_store=False):
                copy.part(lane, tiled, at)

    return run


BUILDERS: dict[str, Callable[[Machine, Op], None]] = {
    "cp.async.bulk": _plain,
    "cp.async.bulk.tensor": _tensor,
    "cp.async.bulk.prefetch": _prefetch,
}
