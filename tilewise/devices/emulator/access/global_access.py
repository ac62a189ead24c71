"""The accesses of an instruction's lanes to global memory: checked, counted and remembered.

An instruction mostly repeats the address pattern of its last run: in each phase of a tiled kernel
all addresses have moved by the same distance. The properties of a pattern (alignment, sectors) are
kept with the instruction; if the pattern comes again, one comparison finds them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.compiler import elections
from tilewise.devices.emulator.access.addresses import beside_multiple, of_no_array
from tilewise.devices.emulator.checks import unwritten
from tilewise.devices.emulator.counting import transactions
from tilewise.devices.emulator.memory.global_memory import OUTSIDE, WRITTEN, Allocation
from tilewise.devices.emulator.memory.patterns import REMEMBERED, Addresses
from tilewise.devices.emulator.memory.storage import Bytes, elements
from tilewise.devices.emulator.threads.faults import Place
from tilewise.devices.emulator.threads.lanes import Index, Lanes
from tilewise.devices.emulator.threads.op import Op
from tilewise.shown import plural

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine


_OF_ATOMICS = {
    elections.EACH: transactions.atomic_sectors,
    elections.ONE: transactions.sectors,
    elections.WHOLE: transactions.whole_warp_sectors,
}


@dataclass
class Part:
    """The elements of one allocation that some of the lanes access.

    Attributes
    ----------
    allocation : Allocation
    start : int
        The byte offset from which ``gather`` counts.
    gather : ndarray of intp or int
        The index of the element (or vector) of each lane; one number if all lanes access the same.
    chosen : ndarray of intp or None
        The indices of the lanes; None for all of them.
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
    """The global accesses of one instruction: ``width`` bytes a lane in ``count`` elements."""

    def __init__(self, machine: Machine, op: Op, dtype: np.dtype[Any], count: int) -> None:
        self.machine, self.op, self.dtype, self.count = machine, op, dtype, count
        self._sectors = transactions.sectors
        if op.instruction.opcode in ("atom", "red"):
            lanes = {} if machine.rules is None else machine.rules.lanes
            self._sectors = _OF_ATOMICS[lanes.get(op.index, elections.EACH)]
        self.width = dtype.itemsize * count
        self._patterns: list[_GlobalPattern] = []

    def reach(self, address: Any, lanes: Lanes, writes: bool, counts: bool = True) -> list[Part]:
        """Return the places at the lanes' addresses; report faulty addresses and leave them out.

        Parameters
        ----------
        address : ndarray of int64, shape (lanes.count,), or int
            The byte addresses; an int if all lanes have the same.
        """
        counts &= self.machine.is_counting
        footprints = self.machine.footprints
        if footprints is not None and counts:
            footprints.add(address, lanes, self.width, writes)
        if isinstance(address, int):
            return self._reach_one(address, lanes, writes, counts)
        first = int(address[0])
        pattern = self._pattern(address - first, lanes)
        low = first + pattern.low
        if counts:
            offset = low % transactions.SECTOR
            sectors = pattern.sectors.get(offset)
            if sectors is None:
                sectors = self._sectors(pattern.relative - pattern.low + offset, lanes)
                pattern.sectors[offset] = sectors
            if pattern.distinct < 0:
                pattern.distinct = transactions.distinct(pattern.relative - pattern.low, lanes)
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
            if self._sectors is transactions.sectors:
                self.op.sectors += lanes.warps
            elif self._sectors is transactions.atomic_sectors:
                self.op.sectors += lanes.count
            else:
                self.op.sectors += self._sectors(np.zeros(lanes.count, np.int64), lanes)
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
        """Return the places in the slow way: for several allocations, or for faulty addresses."""
        memory = self.machine.memory
        starts, inverse = np.unique(address, return_inverse=True)
        owners = [memory.find(int(a), int(a) + self.width) for a in starts]
        number = {id(owner): i for i, owner in enumerate(owners)}
        owner_of = np.array([-1 if o is None else number[id(o)] for o in owners])[inverse]
        # Misaligned addresses first, because one may leave its array by its misalignment alone.
        is_crooked = address % self.width != 0
        for kind, which in (
            ("misaligned", np.flatnonzero(is_crooked)),
            ("out of bounds", np.flatnonzero((owner_of < 0) & ~is_crooked)),
        ):
            if len(which):
                self._report(kind, address, lanes, which, writes)
        owner_of[is_crooked] = -1
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
        """Check that the bytes were written; for a store, mark them as written."""
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
                self._report("out of bounds", address, lanes, chosen[outside], writes)
                chosen, gather, reached = chosen[~outside], gather[~outside], reached[~outside]
            if writes:
                cells[gather] = WRITTEN
            elif self.machine.is_checking:
                starts = part.start + gather * self.width
                empty = unwritten.faulty(
                    reached == WRITTEN, self.dtype.itemsize, self.op.copied, state, starts
                )
                if len(empty):
                    self._report_unwritten(
                        address[chosen[empty]], lanes.numbers[chosen[empty]],
                        np.where(reached[empty] == WRITTEN, 0, 255).astype(np.uint8),
                    )  # fmt: skip
            kept.append(Part(part.allocation, part.start, gather, chosen))
        return kept

    def _place(self, address: int) -> tuple[Allocation | None, Place]:
        owner = self.machine.memory.nearest(address)
        return owner, self.machine.global_place(owner, address)

    def _report_unwritten(self, address: Addresses, lanes: Index, lacks: Bytes) -> None:
        def describe(at: int) -> tuple[str, Place]:
            owner, place = self._place(int(address[at]))
            if owner is not None and owner.is_constant:
                return (
                    f"reads {place}, a __constant__ variable that nobody set and that the source "
                    f"gives no value (kernel.variables[{owner.name!r}] = ... sets it)"
                ), place
            return f"reads what nobody wrote at {place}", place

        origin = np.zeros(len(lanes), np.int32)
        self.machine.undefined.found(self.op, lanes, lacks, origin, describe)

    def _report(
        self,
        kind: str,
        address: Addresses,
        lanes: Lanes,
        which: Index,
        writes: bool,
    ) -> None:
        at = int(address[which[0]])
        owner, place = self._place(at)
        what = f"{'writes' if writes else 'reads'} {plural(self.width, 'byte')} of global memory"
        if place.array is None or owner is None:
            message = f"{what} {of_no_array(at)}"
        else:
            message = f"{what} at {place}"
            if kind == "out of bounds":
                message += f", outside it ({plural(owner.size, 'byte')})"
        if kind != "out of bounds":
            message += f": {beside_multiple(at, self.width)}"
        self.op.fault(kind, message, int(lanes.numbers[which[0]]), place, len(which) - 1)
