"""Where the lanes of one memory instruction reach: checked, counted and remembered.

The same instruction mostly reaches the same way again: each phase of a tiled kernel reads shared
memory as the phase before, and global memory as before but for a shift. What was found of an
address pattern (bounds, alignment, sectors, conflicts) is kept beside the instruction and used
again where the pattern is the same, which costs one comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator import counting, unwritten
from tilewise.devices.emulator.faults import Place
from tilewise.devices.emulator.lanes import Index, Lanes
from tilewise.devices.emulator.memory import (
    OUTSIDE,
    WRITTEN,
    Allocation,
    Bytes,
    elements,
)

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine, Op

Addresses = npt.NDArray[np.int64]
REMEMBERED = 4
_UNSIGNED: dict[int, np.dtype[Any]] = {
    1: np.dtype("u1"),
    2: np.dtype("u2"),
    4: np.dtype("u4"),
    8: np.dtype("u8"),
}


@dataclass
class Part:
    """Elements of one allocation that some of the lanes reach.

    Attributes
    ----------
    allocation : Allocation
    start : int
        Byte offset from which ``gather`` counts.
    gather : ndarray of intp or int
        Index of the element (or vector) a lane; one number where all lanes reach the same.
    chosen : ndarray of intp or None
        Which of the lanes; None for all of them.
    """

    allocation: Allocation
    start: int
    gather: Index | int
    chosen: Index | None = None

    def view(self, data: Bytes, dtype: np.dtype[Any], count: int) -> npt.NDArray[Any]:
        return elements(data[self.start :], dtype, count)


@dataclass
class _GlobalPattern:
    lanes: Lanes
    relative: Addresses
    low: int
    high: int
    is_aligned: bool
    gather: Index
    sectors: dict[int, int] = field(default_factory=dict)
    distinct: int = -1


class GlobalAccess:
    """Global accesses of one instruction: ``width`` bytes a lane in ``count`` elements."""

    def __init__(self, machine: Machine, op: Op, dtype: np.dtype[Any], count: int) -> None:
        self.machine, self.op, self.dtype, self.count = machine, op, dtype, count
        self._is_atomic = op.instruction.opcode in ("atom", "red")
        self.width = dtype.itemsize * count
        self._patterns: list[_GlobalPattern] = []

    def reach(self, address: Any, lanes: Lanes, writes: bool, counts: bool = True) -> list[Part]:
        """The places that the lanes' addresses name; faulty ones are reported and left out.

        Parameters
        ----------
        address : ndarray of int64, shape (lanes.count,), or int
            Byte addresses; an int where all lanes have the same.
        """
        footprints = self.machine.footprints
        if footprints is not None and counts:
            footprints.add(address, lanes, self.width, writes)
        if isinstance(address, int):
            return self._reach_one(address, lanes, writes, counts)
        first = int(address[0])
        pattern = self._pattern(address - first, lanes)
        low = first + pattern.low
        if counts:
            phase = low % counting.SECTOR
            sectors = pattern.sectors.get(phase)
            if sectors is None:
                count = counting.atomic_sectors if self._is_atomic else counting.sectors
                sectors = count(pattern.relative - pattern.low + phase, lanes)
                pattern.sectors[phase] = sectors
            if pattern.distinct < 0:
                pattern.distinct = counting.distinct(pattern.relative - pattern.low, lanes)
            self.op.requests += lanes.warps
            self.op.sectors += sectors
            self.op.bytes += pattern.distinct * self.width
        found = self.machine.memory.find(low, first + pattern.high)
        if found is None or not pattern.is_aligned or low % self.width:
            return self._reach_scattered(address, lanes, writes)
        part = Part(found, low - found.base, pattern.gather)
        if found.state is not None:
            return self._check_state([part], address, lanes, writes)
        return [part]

    def _pattern(self, relative: Addresses, lanes: Lanes) -> _GlobalPattern:
        for known in self._patterns:
            if known.lanes.same(lanes) and np.array_equal(known.relative, relative):
                return known
        low, high = int(relative.min()), int(relative.max())
        distance = relative - low
        pattern = _GlobalPattern(
            lanes,
            relative,
            low,
            high + self.width,
            not (distance % self.width).any(),
            (distance // self.width).astype(np.intp),
        )
        self._patterns.insert(0, pattern)
        del self._patterns[REMEMBERED:]
        return pattern

    def _reach_one(self, address: int, lanes: Lanes, writes: bool, counts: bool) -> list[Part]:
        if counts:
            self.op.requests += lanes.warps
            self.op.sectors += lanes.count if self._is_atomic else lanes.warps
            self.op.bytes += lanes.warps * self.width
        found = self.machine.memory.find(address, address + self.width)
        if found is None or address % self.width:
            return self._reach_scattered(np.full(lanes.count, address, np.int64), lanes, writes)
        part = Part(found, address - found.base, 0)
        if found.state is not None:
            spread = np.full(lanes.count, address, np.int64)
            return self._check_state([part], spread, lanes, writes)
        return [part]

    def _reach_scattered(self, address: Addresses, lanes: Lanes, writes: bool) -> list[Part]:
        """The slow way: several allocations, or faulty addresses among them."""
        memory = self.machine.memory
        starts, inverse = np.unique(address, return_inverse=True)
        owners = [memory.find(int(a), int(a) + self.width) for a in starts]
        number = {id(owner): i for i, owner in enumerate(owners)}
        owner_of = np.array([-1 if o is None else number[id(o)] for o in owners])[inverse]
        lost = np.flatnonzero(owner_of < 0)
        if len(lost):
            self._report("out of bounds", "reaches", address, lanes, lost, writes)
        crooked = np.flatnonzero((owner_of >= 0) & (address % self.width != 0))
        if len(crooked):
            self._report(
                "misaligned", f"is not aligned to {self.width} bytes at", address, lanes,
                crooked, writes,
            )  # fmt: skip
            owner_of[crooked] = -1
        parts = []
        for key in np.unique(owner_of[owner_of >= 0]):
            owner = owners[key]
            assert owner is not None
            chosen = np.flatnonzero(owner_of == key)
            offset = address[chosen] - owner.base
            parts.append(Part(owner, 0, (offset // self.width).astype(np.intp), chosen))
        if any(part.allocation.state is not None for part in parts):
            return self._check_state(parts, address, lanes, writes)
        return parts

    def _check_state(
        self, parts: list[Part], address: Addresses, lanes: Lanes, writes: bool
    ) -> list[Part]:
        """Look at who wrote the bytes; mark them where this instruction writes."""
        kept = []
        for part in parts:
            state = part.allocation.state
            if state is None:
                kept.append(part)
                continue
            chosen = np.arange(lanes.count) if part.chosen is None else part.chosen
            gather = np.broadcast_to(part.gather, len(chosen))
            cells = elements(state[part.start :], np.dtype("u1"), self.width)
            reached = cells[gather].reshape(len(chosen), self.width)
            outside = (reached == OUTSIDE).any(axis=1)
            if outside.any():
                self._report("out of bounds", "reaches", address, lanes, chosen[outside], writes)
                chosen, gather, reached = chosen[~outside], gather[~outside], reached[~outside]
            if writes:
                cells[gather] = WRITTEN
            elif self.machine.is_checking:
                starts = part.start + gather * self.width
                empty = unwritten.faulty(
                    reached == WRITTEN, self.dtype.itemsize, self.op.copied, state, starts
                )
                if len(empty):
                    self._report(
                        "uninitialised", "reads what nobody wrote at", address, lanes,
                        chosen[empty], False,
                    )  # fmt: skip
            kept.append(Part(part.allocation, part.start, gather, chosen))
        return kept

    def _report(
        self,
        kind: str,
        verb: str,
        address: Addresses,
        lanes: Lanes,
        which: Index,
        writes: bool,
    ) -> None:
        at = int(address[which[0]])
        owner = self.machine.memory.nearest(at)
        place = Place(None, None) if owner is None else Place(owner.name, owner.place(at))
        if kind == "out of bounds":
            what = "writes" if writes else "reads"
            extent = f", outside it ({owner.size} bytes)" if place.array and owner else ""
            message = f"{what} {self.width} bytes of global memory at {place}{extent}"
            if place.array is None:
                message += f" (address {at:#x})"
        else:
            message = f"{verb} {place}"
        self.op.fault(kind, message, int(lanes.numbers[which[0]]), place, len(which) - 1)


@dataclass(eq=False)
class SharedPattern:
    """Shared-memory addresses of one instruction, all of them checked.

    Attributes
    ----------
    lanes : Lanes
        Those whose addresses are right.
    address : ndarray of int64, shape (lanes.count,)
        In the block's shared memory.
    gather : ndarray of intp, the same shape
        Element (or vector) index in the batch's storage.
    """

    lanes: Lanes
    asked: Lanes
    asked_address: Addresses
    address: Addresses
    gather: Index
    chosen: Index | None
    requests: int
    wavefronts: int
    conflicts: int
    has_duplicates: bool
    verified: int = -1


class SharedAccess:
    """Shared accesses of one instruction.

    Parameters
    ----------
    counted : (int, int) or None
        Width in bytes and byte offset at which the access is counted: its own, or those of
        the wider access that ptxas makes of it and its neighbours; None where a neighbour
        is counted in its place.
    is_cluster : bool
        Whether the addresses may be those of other blocks of the cluster.
    """

    def __init__(
        self,
        machine: Machine,
        op: Op,
        dtype: np.dtype[Any],
        count: int,
        counted: tuple[int, int] | None,
        is_cluster: bool = False,
    ) -> None:
        self.machine, self.op, self.dtype, self.count = machine, op, dtype, count
        self.width = dtype.itemsize * count
        self.counted, self.is_cluster = counted, is_cluster
        self._patterns: list[SharedPattern] = []
        self._last: tuple[Any, Lanes, SharedPattern] | None = None

    def reach(
        self,
        source: Any,
        compute: Callable[[], Any],
        lanes: Lanes,
        counts: bool = True,
    ) -> SharedPattern:
        """The places that the lanes' addresses name.

        Parameters
        ----------
        source : object
            What the addresses are computed from; the same object means the same addresses.
        compute : callable
            Gives the addresses: int64 of shape (lanes.count,), or an int.
        """
        last = self._last
        if last is not None and last[0] is source and last[1] is lanes:
            pattern = last[2]
        else:
            address = compute()
            if isinstance(address, int):
                address = np.full(lanes.count, address, np.int64)
            pattern = self._pattern(address, lanes)
            self._last = (source, lanes, pattern)
        if counts:
            self.op.requests += pattern.requests
            self.op.wavefronts += pattern.wavefronts
            self.op.conflicts += pattern.conflicts
        if self.is_cluster:
            self._check_alive(pattern)
        return pattern

    def _check_alive(self, pattern: SharedPattern) -> None:
        """The shared memory of a block that has ended is gone."""
        machine = self.machine
        rows = pattern.gather * self.width // machine.shared.pitch
        gone = np.flatnonzero(machine.live_in_block[rows] == 0)
        if len(gone):
            lane = int(pattern.lanes.numbers[gone[0]])
            self.op.fault(
                "out of bounds", "reaches shared memory of a block that has ended", lane, None,
                len(gone) - 1,
            )  # fmt: skip

    def forget(self) -> None:
        """Patterns of another geometry are no use."""
        self._patterns.clear()
        self._last = None

    def _pattern(self, address: Addresses, lanes: Lanes) -> SharedPattern:
        for known in self._patterns:
            if known.asked.same(lanes) and np.array_equal(known.asked_address, address):
                return known
        asked, asked_address, chosen = lanes, address, None
        storage = self.machine.shared
        rows = lanes.pick(self.machine.geometry.block_of)
        if self.is_cluster:
            rows, address = self.machine.clusters.locate(address, rows)
            self._report_nowhere(lanes, rows)
        wrong = (
            (rows < 0)
            | (address < 0)
            | (address + self.width > storage.size)
            | (address % self.width != 0)
        )
        if wrong.any():
            self._report(address, lanes, wrong & (rows >= 0))
            chosen = np.flatnonzero(~wrong)
            address = address[chosen]
            lanes, rows = lanes.where(~wrong), rows[chosen]
        flat = rows * storage.pitch + address
        gather = (flat // self.width).astype(np.intp)
        requests = wavefronts = conflicts = 0
        if self.counted is not None:
            width, offset = self.counted
            requests = lanes.warps
            wavefronts, conflicts = counting.wavefronts(
                address + offset, width, lanes, self.op.space.endswith("_load")
            )
        pattern = SharedPattern(
            lanes,
            asked,
            asked_address,
            address,
            gather,
            chosen,
            requests,
            wavefronts,
            conflicts,
            len(np.unique(gather)) < len(gather),
        )
        if chosen is None:
            self._patterns.insert(0, pattern)
            del self._patterns[REMEMBERED:]
        return pattern

    def check_written(self, pattern: SharedPattern) -> None:
        """Report lanes that read what nobody wrote."""
        if pattern.verified == self.machine.generation:
            return
        written = self.machine.shared.written
        assert written is not None
        cells = elements(written, _UNSIGNED[self.dtype.itemsize], self.count)[pattern.gather]
        if (cells == int.from_bytes(b"\1" * self.dtype.itemsize, "little")).all():
            pattern.verified = self.machine.generation
            return
        which = unwritten.faulty(
            cells.reshape(-1).view(np.bool_).reshape(-1, self.width),
            self.dtype.itemsize,
            self.op.copied,
            written,
            pattern.gather * self.width,
        )
        if len(which) == 0:
            return
        place = self.machine.shared_place(int(pattern.address[which[0]]), self.dtype.itemsize)
        self.op.fault(
            "uninitialised",
            f"reads {place} in shared memory, which nobody wrote",
            int(pattern.lanes.numbers[which[0]]),
            place,
            len(which) - 1,
        )

    def mark_written(self, pattern: SharedPattern) -> None:
        if pattern.verified == self.machine.generation:
            return
        written = self.machine.shared.written
        assert written is not None
        full = int.from_bytes(b"\1" * self.dtype.itemsize, "little")
        elements(written, _UNSIGNED[self.dtype.itemsize], self.count)[pattern.gather] = full
        pattern.verified = self.machine.generation

    def _report_nowhere(self, lanes: Lanes, rows: Index) -> None:
        which = np.flatnonzero(rows < 0)
        if len(which):
            self.op.fault(
                "out of bounds", "reaches shared memory of a block that its cluster does not have",
                int(lanes.numbers[which[0]]), None, len(which) - 1,
            )  # fmt: skip

    def _report(self, address: Addresses, lanes: Lanes, wrong: npt.NDArray[np.bool_]) -> None:
        storage = self.machine.shared
        outside = wrong & ((address < 0) | (address + self.width > storage.size))
        for kind, which in (
            ("out of bounds", np.flatnonzero(outside)),
            ("misaligned", np.flatnonzero(wrong & ~outside)),
        ):
            if len(which) == 0:
                continue
            place = self.machine.shared_place(int(address[which[0]]), self.dtype.itemsize)
            message = (
                f"reaches {place}, outside the block's {storage.size} bytes of shared memory"
                if kind == "out of bounds"
                else f"reaches {place}, which is not aligned to {self.width} bytes"
            )
            lane = int(lanes.numbers[which[0]])
            self.op.fault(kind, message, lane, place, len(which) - 1)
