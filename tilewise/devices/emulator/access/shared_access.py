"""The accesses of an instruction's lanes to shared memory: checked, counted and remembered.

An instruction mostly repeats the address pattern of its last run, because each phase of a tiled
kernel uses the same shared memory. The properties of a pattern (bounds, alignment, bank conflicts)
are kept with the instruction; if the pattern comes again, one comparison finds them. The same holds
if all of its addresses have moved by the same number of bytes, as in the next step of a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.access.addresses import beside_multiple
from tilewise.devices.emulator.checks import unwritten
from tilewise.devices.emulator.counting import transactions
from tilewise.devices.emulator.memory.patterns import REMEMBERED, Addresses, SharedPattern
from tilewise.devices.emulator.memory.storage import elements
from tilewise.devices.emulator.ptx.types import UNSIGNED
from tilewise.devices.emulator.threads.faults import Place
from tilewise.devices.emulator.threads.lanes import Index, Lanes
from tilewise.devices.emulator.threads.op import Op
from tilewise.shown import plural

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine


class SharedAccess:
    """The shared accesses of one instruction.

    Parameters
    ----------
    counted : (int, int) or None
        The width in bytes and the byte offset at which the access is counted: its own, or those of
        the wider access that ptxas joins it into; None if a neighbour is counted in its place. A
        launch that is not counted treats it as None.
    is_cluster : bool
        Whether the addresses may be those of other blocks of the cluster.
    meant : frozenset of str
        The variables that the addresses may be meant for; empty for all of shared memory.
    rule : callable, optional
        A function that counts wavefronts; by default, that for loads or for stores, by
        ``op.space``.
    """

    def __init__(
        self,
        machine: Machine,
        op: Op,
        dtype: np.dtype[Any],
        count: int,
        counted: tuple[int, int] | None,
        is_cluster: bool = False,
        meant: frozenset[str] = frozenset(),
        rule: transactions.Wavefronts | None = None,
    ) -> None:
        self.machine, self.op, self.dtype, self.count = machine, op, dtype, count
        self.width = dtype.itemsize * count
        self.counted = counted if machine.is_counting else None
        self.is_cluster = is_cluster
        self._rule = rule
        self._meant = [self._range(name) for name in sorted(meant)]
        self._patterns: list[SharedPattern] = []
        self._last: tuple[Any, Lanes, SharedPattern] | None = None

    def reach(
        self,
        source: Any,
        compute: Callable[[], Any],
        lanes: Lanes,
        counts: bool = True,
    ) -> SharedPattern:
        """Return the places at the lanes' addresses.

        Parameters
        ----------
        source : object
            The object that the addresses are computed from; the same object means the same
            addresses.
        compute : callable
            A function that returns the addresses: int64 of shape (lanes.count,), or an int.
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
        """Report lanes that access the shared memory of a block that has ended."""
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
        """Forget the patterns, which belong to another geometry."""
        self._patterns.clear()
        self._last = None

    def _pattern(self, address: Addresses, lanes: Lanes) -> SharedPattern:
        for known in self._patterns:
            if known.asked.same(lanes) and len(address):
                distance = int(address[0] - known.asked_address[0])
                moved = address - distance if distance else address
                if np.array_equal(known.asked_address, moved):
                    if not distance:
                        return known
                    if (shifted := self._shifted(known, distance)) is not None:
                        return shifted
        asked, asked_address, chosen = lanes, address, None
        storage = self.machine.shared
        rows = lanes.pick(self.machine.geometry.block_of)
        if self.is_cluster:
            rows, address = self.machine.clusters.locate(address, rows)
            self._report_nowhere(lanes, rows)
        else:
            address = lanes.in_own_block(address)
        wrong = (
            (rows < 0)
            | (address < 0)
            | (address + self.width > storage.size)
            | (address % self.width != 0)
        )
        if self._meant:
            wrong |= ~self._is_meant(address)
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
            rule = self._rule or (
                transactions.load_wavefronts
                if self.op.space.endswith("_load")
                else transactions.store_wavefronts
            )
            wavefronts, conflicts = rule(address + offset, width, lanes)
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
            for gone in self._patterns[REMEMBERED:]:
                self.machine.pattern_room += sum(each.nbytes for each in gone.shifted.values())
            del self._patterns[REMEMBERED:]
        return pattern

    def _shifted(self, known: SharedPattern, distance: int) -> SharedPattern | None:
        """Return a known pattern moved by some bytes; None if it has to be checked anew."""
        found = known.shifted.get(distance)
        if found is not None:
            return found
        low, high = (end + distance for end in known.reach)
        ranges = self._meant or [(0, self.machine.shared.size)]
        is_inside = any(start <= low and high + self.width <= end for start, end in ranges)
        if self.is_cluster or distance % max(self.width, 4) or not is_inside:
            return None
        found = known.shift(distance, self.width)
        if found.nbytes <= self.machine.pattern_room:
            self.machine.pattern_room -= found.nbytes
            known.shifted[distance] = found
        return found

    def _place(self, address: int, start: int | None = None) -> Place:
        """Return an address as an element of the variable at ``start``, or of the one it is in."""
        return self.machine.shared_place(address, self.dtype.itemsize, self.width, start=start)

    def _advice(self, address: int) -> str:
        """Return how a launch gives dynamic shared memory, if a kernel reaches it without any."""
        program, setup = self.machine.program, self.machine.setup
        symbol, _ = program.shared_variable(address)
        is_dynamic = bool(symbol) and program.shared_sizes.get(symbol) is None
        if not is_dynamic or setup.dynamic_shared or setup.in_python:
            return ""
        return "; shared=BYTES gives a launch dynamic shared memory"

    def _range(self, name: str) -> tuple[int, int]:
        """Return the first byte and the end of a variable."""
        program = self.machine.program
        start, size = program.shared_offsets[name], program.shared_sizes.get(name)
        return start, self.machine.shared_bytes if size is None else start + size

    def _is_meant(self, address: Addresses) -> npt.NDArray[np.bool_]:
        """Return which accesses lie in a variable that they are meant for."""
        inside = np.zeros(len(address), np.bool_)
        for start, end in self._meant:
            inside |= (start <= address) & (address + self.width <= end)
        return inside

    def check_written(self, pattern: SharedPattern) -> None:
        """Report lanes that read what nothing wrote."""
        if pattern.verified == self.machine.generation:
            return
        written = self.machine.shared.written
        assert written is not None
        cells = elements(written, UNSIGNED[self.dtype.itemsize], self.count)[pattern.gather]
        if (cells == int.from_bytes(b"\1" * self.dtype.itemsize, "little")).all():
            pattern.verified = self.machine.generation
            return
        is_written = cells.reshape(-1).view(np.bool_).reshape(-1, self.width)
        starts = pattern.gather * self.width
        which = unwritten.faulty(is_written, self.dtype.itemsize, self.op.copied, written, starts)
        if len(which) == 0:
            return
        address = pattern.address[which]

        def describe(at: int) -> tuple[str, Place]:
            place = self.machine.shared_place(int(address[at]), self.op.element, self.op.width)
            return f"reads {place} in shared memory, which nobody wrote", place

        self.machine.undefined.found(
            self.op, pattern.lanes.numbers[which],
            *self.machine.shared.lacking(starts[which], is_written[which]), describe,
        )  # fmt: skip

    def mark_written(self, pattern: SharedPattern) -> None:
        if pattern.verified == self.machine.generation:
            return
        written = self.machine.shared.written
        assert written is not None
        full = int.from_bytes(b"\1" * self.dtype.itemsize, "little")
        elements(written, UNSIGNED[self.dtype.itemsize], self.count)[pattern.gather] = full
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
        is_crooked = address % self.width != 0
        for kind, which in (
            ("misaligned", np.flatnonzero(wrong & is_crooked)),
            ("out of bounds", np.flatnonzero(wrong & ~is_crooked)),
        ):
            if len(which) == 0:
                continue
            at = int(address[which[0]])
            place = self._place(at)
            if kind == "misaligned":
                message = f"reaches {self.width} bytes of shared memory at {place}: "
                message += beside_multiple(at, self.width)
            elif not 0 <= at <= storage.size - self.width:
                message = f"reaches {place}, outside the block's {plural(storage.size, 'byte')} of "
                message += f"shared memory{self._advice(at)}"
            else:
                start, end = min(self._meant, key=lambda range_: abs(range_[0] - at))
                there, place = place, self._place(at, start)
                message = (
                    f"reaches {place} in shared memory, outside it ({plural(end - start, 'byte')})"
                )
                message += f" and in {there}" if there != place else ""
            lane = int(lanes.numbers[which[0]])
            self.op.fault(kind, message, lane, place, len(which) - 1)
