"""Share the parts of all bulk copies: their operands, and bytes that are checked, then moved."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.access.addresses import Where, of_no_array
from tilewise.devices.emulator.checks import log
from tilewise.devices.emulator.counting.transactions import SECTOR
from tilewise.devices.emulator.memory.global_memory import OUTSIDE, UNWRITTEN, WRITTEN, Allocation
from tilewise.devices.emulator.memory.storage import Bytes
from tilewise.devices.emulator.ptx.modifiers import Words
from tilewise.devices.emulator.ptx.syntax import Address, Operand
from tilewise.devices.emulator.threads.faults import Place
from tilewise.devices.emulator.threads.lanes import Index, Lanes
from tilewise.devices.emulator.threads.op import Op
from tilewise.shown import plural
from tilewise.tensor_map import PIECE

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

BARRIER = 8  # bytes of an mbarrier, and its alignment
_SHARED = ("shared::cluster", "shared::cta")
LOAD, STORE = "mbarrier::complete_tx::bytes", "bulk_group"
Addresses = npt.NDArray[np.int64]
Watcher = Callable[["Moved"], None]


@dataclass(frozen=True)
class SharedBytes:
    """Bytes of one block's shared memory: the block's row in the batch, and where in it."""

    row: int
    offset: int


@dataclass(frozen=True)
class GlobalRows:
    """Rows of bytes in one allocation, along any number of dimensions.

    Attributes
    ----------
    allocation : Allocation
    offset : int
        The offset of the first byte.
    shape : tuple of int
        The last of them is the bytes of a row.
    pitches : tuple of int
        Bytes from one to the next along each dimension but the last.
    """

    allocation: Allocation
    offset: int
    shape: tuple[int, ...]
    pitches: tuple[int, ...]

    def view(self, data: Bytes) -> Bytes:
        """Return the rows in ``data``, one byte for each of the allocation's."""
        return np.lib.stride_tricks.as_strided(data[self.offset :], self.shape, (*self.pitches, 1))

    @property
    def size(self) -> int:
        """Bytes of all rows."""
        return math.prod(self.shape)

    @property
    def sectors(self) -> npt.NDArray[np.int64]:
        """The numbers of the 32-byte sectors that the rows lie in, each once."""
        first = self.allocation.base + self.offset
        return _sectors(first % SECTOR, self.shape, self.pitches) + first // SECTOR

    def address(self, at: Index) -> int:
        """Return the address of the byte at an index of :attr:`shape`."""
        return self.allocation.base + self.offset + int(at @ np.array((*self.pitches, 1)))


@lru_cache(maxsize=256)
def _sectors(first: int, shape: tuple[int, ...], pitches: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """The numbers of the sectors that rows lie in which begin at byte ``first``, each once."""
    begin = np.array(first, np.int64)
    for extent, pitch in zip(shape[:-1], pitches, strict=True):
        begin = begin[..., None] + np.arange(extent, dtype=np.int64) * pitch
    low, high = begin // SECTOR, (begin + shape[-1] - 1) // SECTOR
    found = low[..., None] + np.arange(int((high - low).max()) + 1)
    return np.unique(found[found <= high[..., None]])


@dataclass(frozen=True)
class Moved:
    """A bulk copy to or from one block's shared memory.

    Attributes
    ----------
    op : Op
    lane : int
        The lane that started it.
    row, offset, size : int
        The block's row in the batch, and the place and the size in its shared memory.
    is_store : bool
        Whether it reads them.
    barrier : int or None
        The place in the block's shared memory of the mbarrier that is told; None of a copy whose
        end ``wait_group`` waits for.
    origin : ndarray of int64, shape (size / 16,), or None
        The address in global memory that each 16-byte piece comes from; -1 for one that is filled.
        None if the copy does not read global memory.
    """

    op: Op
    lane: int
    row: int
    offset: int
    size: int
    is_store: bool
    barrier: int | None
    origin: Addresses | None


class BulkCopy:
    """The common parts of the copies of one instruction; each thread makes its own."""

    def __init__(self, machine: Machine, op: Op) -> None:
        self.machine, self.op = machine, op

    # Operands

    def addresses(self, operand: Operand) -> Callable[[Lanes], npt.NDArray[np.int64]]:
        """Return the function that reads an address operand, one a lane of the set."""
        if not isinstance(operand, Address):
            raise self.op.unsupported("operands")
        where = Where(self.machine, self.op, operand)
        return lambda lanes: np.broadcast_to(np.asarray(where(lanes), np.int64), lanes.count)

    def numbers(self, operand: Operand, type_: str) -> Callable[[Lanes], npt.NDArray[Any]]:
        """Return the function that reads a number, one a lane of the set."""
        read = self.machine.registers.reader(self.op, operand, type_, picked=True)
        return lambda lanes: np.broadcast_to(np.asarray(read(lanes)), lanes.count)

    # Counts

    def count(
        self, lane: int, rows: GlobalRows | None, moved: int | None = None,
        is_multicast: bool = False,
    ) -> None:  # fmt: skip
        """Count the rows of global memory that a thread's copy moves; None for no bytes of it.

        Parameters
        ----------
        moved : int, optional
            Sectors that it moves, where they are not those that the rows lie in.
        is_multicast : bool
            Whether it goes to several blocks of the cluster: then both sectors of each aligned pair
            are read of which one is needed, once for all blocks.
        """
        if not self.machine.is_counting:
            return
        self.op.requests += 1
        if rows is None:
            self.op.sectors += moved or 0
            return
        sectors = rows.sectors
        if moved is None:
            moved = 2 * len(np.unique(sectors // 2)) if is_multicast else len(sectors)
        self.op.sectors += moved
        self.op.bytes += rows.size
        if self.machine.footprints is not None:
            block = int(self.machine.geometry.block_of[lane])
            writes = not self.op.space.endswith("load")
            self.machine.footprints.add_sectors(rows.allocation, sectors, block, writes)

    # Shared memory

    def shared(self, lane: int, address: int, size: int, alignment: int) -> SharedBytes | None:
        """Return the place of ``size`` bytes; report and return None if it is not allowed."""
        machine = self.machine
        row = int(machine.geometry.block_of[lane])
        row, offset = (int(x) for x in machine.clusters.locate(address, row))
        limit = machine.shared.size
        if row < 0:
            self.fault("out of bounds", lane, "reaches a block that its cluster does not have")
        elif not 0 <= offset <= limit - size:
            place = machine.shared_place(offset, 1)
            words = f"reaches {size:,} bytes at {place}, outside the block's {limit:,} bytes"
            self.fault("out of bounds", lane, f"{words} of shared memory", place)
        elif offset % alignment:
            place = machine.shared_place(offset, 1)
            words = f"reaches {place} in shared memory, which is not aligned to {alignment} bytes"
            self.fault("misaligned", lane, words, place)
        else:
            return SharedBytes(row, offset)
        return None

    def sharers(self, lane: int, blocks: int) -> list[int]:
        """Return the rows of the cluster's blocks whose ranks are set bits of ``blocks``."""
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

    def span(self, at: SharedBytes, size: int) -> slice:
        """Return the place in the batch's storage."""
        first = at.row * self.machine.shared.pitch + at.offset
        return slice(first, first + size)

    def read_shared(
        self, lane: int, at: SharedBytes, size: int, wanted: Index,
        barrier: SharedBytes | None = None,
    ) -> Bytes:  # fmt: skip
        """``size`` bytes, of which the 16-byte pieces ``wanted`` must have been written.

        The copy completes at the barrier, or where there is none, by ``wait_group``.
        """
        machine, span = self.machine, self.span(at, size)
        if machine.watcher is not None:
            told = None if barrier is None else barrier.offset
            machine.watcher(Moved(self.op, lane, at.row, at.offset, size, True, told, None))
        if machine.is_checking:
            assert machine.shared.written is not None
            if machine.shared.origin is not None:
                places = np.arange(span.start, span.stop).reshape(-1, PIECE)[wanted]
                lanes = np.array([lane])
                machine.undefined.check_taken(self.op, lanes, machine.shared, places, "copies it")
            written = machine.shared.written[span].reshape(-1, PIECE)
            lacks = wanted[(written[wanted] == 0).all(axis=1)]
            if len(lacks):
                first = int(lacks[0])
                place = machine.shared_place(at.offset + PIECE * first, 1)
                words = f"reads {place} in shared memory, which nobody wrote"
                self.fault("uninitialised", lane, words, place)
        self.order(lane, at, size, log.READ, barrier)
        return machine.shared.data[span]

    def deliver(
        self, lane: int, to: SharedBytes, barrier: SharedBytes, blocks: int | None, data: Bytes,
        origin: Callable[[], Addresses] | None = None,
    ) -> None:  # fmt: skip
        """Write shared memory and tell the barrier; or the same places of several blocks.

        ``origin`` gives the address of each piece in global memory, as :class:`Moved` has it.
        """
        machine = self.machine
        sharers = None if blocks is None else self.sharers(lane, blocks)
        rows = [barrier.row] if sharers is None else sharers
        for row, told in zip([to.row] if sharers is None else sharers, rows, strict=True):
            at = SharedBytes(row, to.offset)
            span = self.span(at, len(data))
            machine.shared.data[span] = data
            if machine.is_checking:
                assert machine.shared.written is not None
                machine.shared.written[span] = 1
            self.order(lane, at, len(data), log.WRITE, SharedBytes(told, barrier.offset))
            if machine.watcher is not None:
                places = None if origin is None else origin()
                machine.watcher(
                    Moved(self.op, lane, row, at.offset, len(data), False, barrier.offset, places)
                )
        machine.mbarriers.complete(
            np.array(rows, np.intp), barrier.offset, len(data), self.op, lane
        )

    def order(
        self, lane: int, at: SharedBytes, size: int, kind: str, barrier: SharedBytes | None
    ) -> None:
        """Tell the race check that a copy touches these bytes.

        A barrier that nobody initialised is reported when the copy completes.
        """
        if (ordering := self.machine.ordering) is None:
            return
        number = None
        if barrier is not None:
            number = self.machine.mbarriers.number_at(barrier.row, barrier.offset)
            if number < 0:
                return
        ordering.copied(self.op, lane, at.row, at.offset, size, kind, number)

    # Global memory

    def global_(
        self, lane: int, address: int, shape: tuple[int, ...], pitches: tuple[int, ...], kind: str
    ) -> GlobalRows | None:
        """Rows of bytes; None, and a report, where not all of them may be reached.

        Parameters
        ----------
        shape, pitches
            As :class:`GlobalRows` has them.
        kind : str
            What is done there, as :mod:`tilewise.devices.emulator.checks.log` calls it.
        """
        memory, is_store = self.machine.memory, kind != log.READ
        high = address + shape[-1]
        high += sum((n - 1) * pitch for n, pitch in zip(shape[:-1], pitches, strict=True))
        found = memory.find(address, high)
        if found is None:
            owner = memory.find(address, address + 1)
            self.outside(lane, address if owner is None else owner.base + owner.size, is_store)
            return None
        rows = GlobalRows(found, address - found.base, shape, pitches)
        if found.state is not None:
            gaps = np.argwhere(rows.view(found.state) == OUTSIDE)
            if len(gaps):
                self.outside(lane, rows.address(gaps[0]), is_store)
                return None
        if self.machine.global_races is not None:
            self.machine.global_races.copied(self.op, lane, address, shape, pitches, kind)
        return rows

    def outside(self, lane: int, address: int, is_store: bool) -> None:
        owner = self.machine.memory.nearest(address)
        verb = "writes" if is_store else "reads"
        if owner is None:
            self.fault("out of bounds", lane, f"{verb} global memory {of_no_array(address)}")
        else:
            place = self.machine.global_place(owner, address)
            words = f"{verb} global memory at {place}, outside it ({plural(owner.size, 'byte')})"
            self.fault("out of bounds", lane, words, place)

    def read_global(self, lane: int, rows: GlobalRows, item: int) -> Bytes:
        """Return the bytes, of which each ``item`` must have been written at least in part."""
        owner = rows.allocation
        if owner.state is not None and self.machine.is_checking:
            state = rows.view(owner.state).reshape(-1, item)
            lacks = np.flatnonzero((state == UNWRITTEN).all(axis=1))
            if len(lacks):
                first = np.unravel_index(int(lacks[0]) * item, rows.shape)
                place = self.machine.global_place(owner, rows.address(np.array(first)))
                self.fault("uninitialised", lane, f"reads what nobody wrote at {place}", place)
        return rows.view(owner.data)

    def write_global(self, rows: GlobalRows, data: Bytes) -> None:
        owner = rows.allocation
        rows.view(owner.data)[...] = data
        owner.is_written = True
        if owner.state is not None:
            rows.view(owner.state)[...] = WRITTEN

    def fault(self, kind: str, lane: int, message: str, place: Place | None = None) -> None:
        self.op.fault(kind, f"in a bulk copy {message}", lane, place)


def direction(words: Words) -> tuple[str, str, str]:
    """Return the destination's space, the source's, and how the end of a copy is told."""
    places = (*_SHARED, "global")
    to, source = words.one_of(places), words.one_of(places)
    completion = words.one_of((LOAD, STORE))
    is_load = completion == LOAD and to in _SHARED and source == "global"
    is_store = completion == STORE and (to, source) == ("global", "shared::cta")
    is_within = completion == LOAD and (to, source) == _SHARED
    words.check(is_load or is_store or is_within)
    return to, source, completion
