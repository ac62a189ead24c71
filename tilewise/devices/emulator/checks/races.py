"""Shared-memory races: two threads, one place, no barrier between, at least one writing.

Every shared access is logged until the block's next barrier; then the whole log is checked. Most
logs repeat (each phase of a tiled kernel is like the last), and a log that was found clean is known
by the patterns in it.

Threads of one warp may also be ordered by ``__syncwarp``. Each lane has a clock that the
barrier of a warp sets to one more than the latest of its lanes' (Lamport's rule): an access is
ordered after another of its warp only if its clock is later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.memory.patterns import SharedPattern
from tilewise.devices.emulator.threads.lanes import Index, Lanes
from tilewise.devices.emulator.threads.op import Op

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

READ, WRITE, ATOMIC = "read", "write", "atomic access"
_WORD = 4


@dataclass(frozen=True, eq=False)
class Entry:
    """One access in the log; ``clock`` is None until a warp barrier ran in the interval."""

    pattern: SharedPattern
    kind: str
    op: Op
    clock: npt.NDArray[np.int64] | None


class Races:
    """The log of one batch of blocks."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._entries: dict[tuple[int, str], Entry] = {}
        self._clean: set[tuple[Entry, ...]] = set()
        self.start()

    def start(self) -> None:
        """A new batch begins."""
        self._log: list[Entry] = []
        self._clock: npt.NDArray[np.int64] | None = None

    def forget(self) -> None:
        """Forget the patterns, which belong to another geometry."""
        self._entries.clear()
        self._clean.clear()

    def note(self, pattern: SharedPattern, kind: str, op: Op) -> None:
        """An access happened."""
        if self._clock is not None:
            self._log.append(Entry(pattern, kind, op, self._clock))
            return
        key = (id(pattern), kind)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = Entry(pattern, kind, op, None)
        self._log.append(entry)

    def warp_barrier(self, lanes: Lanes) -> None:
        """The lanes passed a barrier of their warps together."""
        geometry = self.machine.geometry
        clock = np.zeros(geometry.count, np.int64) if self._clock is None else self._clock.copy()
        warp = lanes.pick(geometry.warp_of)
        latest = np.zeros(geometry.warp_count, np.int64)
        np.maximum.at(latest, warp, lanes.pick(clock))
        clock[lanes.numbers] = latest[warp] + 1
        self._clock = clock

    def end(self) -> None:
        """The batch ended."""
        self.block_barrier(None, self.machine.all)

    def block_barrier(self, blocks: npt.NDArray[np.bool_] | None, lanes: Lanes) -> None:
        """Blocks passed a barrier (all of them if None): look at what they did before it."""
        if blocks is None or blocks.all():
            log, self._log = self._log, []
            self._clock = None
            self._look(log)
            return
        geometry = self.machine.geometry
        done, rest = [], []
        for entry in self._log:
            mine = blocks[entry.pattern.lanes.pick(geometry.block_of)]
            if mine.all():
                done.append(entry)
            elif not mine.any():
                rest.append(entry)
            else:
                done.append(_part(entry, mine))
                rest.append(_part(entry, ~mine))
        self._log = rest
        self._look(done)

    def _look(self, log: list[Entry]) -> None:
        if all(entry.kind == READ for entry in log):
            return
        if not any(entry.kind != ATOMIC for entry in log):
            return
        key = tuple(log)
        if key in self._clean:
            return
        if all(entry.clock is None for entry in log):
            self._sweep(log)
        else:
            self._compare_pairs(log)
        if len(self._clean) > 256:
            self._clean.clear()
        self._clean.add(key)

    def _granule(self, log: list[Entry]) -> int:
        return min(_WORD, *(entry.op.width for entry in log))

    def _sweep(self, log: list[Entry]) -> None:
        """No warp barriers: walk the log once, keeping the last writer and reader a word."""
        granule = self._granule(log)
        size = len(self.machine.shared.data) // granule
        writer = np.zeros(size, np.int32)  # thread + 1; 0 for none
        writer_entry = np.zeros(size, np.int32)
        reader = np.zeros(size, np.int32)  # thread + 1; -1 for several
        reader_entry = np.zeros(size, np.int32)
        atomic = np.zeros(size, np.int32)
        atomic_entry = np.zeros(size, np.int32)
        for number, entry in enumerate(log):
            place, thread = self._cells(entry, granule)
            against = [(writer, writer_entry)]
            if entry.kind != READ:
                against.append((reader, reader_entry))
            if entry.kind != ATOMIC:
                against.append((atomic, atomic_entry))
            for who, which in against:
                seen = who[place]
                bad = np.flatnonzero((seen != 0) & (seen != thread))
                if len(bad):
                    earlier = log[int(which[place[bad[0]]])]
                    # One instruction that all threads use to set the same flag is no race.
                    if earlier.op is not entry.op or not entry.pattern.has_duplicates:
                        self._report(earlier, entry, bad, granule)
                        break
            if entry.kind == WRITE:
                writer[place], writer_entry[place] = thread, number
            else:
                who, which = (
                    (reader, reader_entry) if entry.kind == READ else (atomic, atomic_entry)
                )
                seen = who[place]
                who[place] = np.where((seen == 0) | (seen == thread), thread, -1)
                again = who[place]
                who[place[(again != thread)]] = -1
                which[place] = number

    def _compare_pairs(self, log: list[Entry]) -> None:
        """With warp barriers: compare each access with each earlier one."""
        geometry = self.machine.geometry
        granule = self._granule(log)
        size = len(self.machine.shared.data) // granule
        cells = [self._lanes_of(entry, granule) for entry in log]
        still = np.zeros(geometry.count, np.int64)
        for i, earlier in enumerate(log):
            place, lane = cells[i]
            # Of several lanes at one place the first and the last stand for all.
            last = np.full(size, -1, np.intp)
            last[place] = lane
            first = np.full(size, -1, np.intp)
            first[place[::-1]] = lane[::-1]
            before = still if earlier.clock is None else earlier.clock
            for j in range(i + 1, len(log)):
                later = log[j]
                if earlier.kind == later.kind and earlier.kind in (READ, ATOMIC):
                    continue
                after = still if later.clock is None else later.clock
                where, mine = cells[j]
                for other in (first[where], last[where]):
                    same_warp = geometry.warp_of[other] == geometry.warp_of[mine]
                    ordered = same_warp & (after[mine] > before[other])
                    bad = np.flatnonzero((other >= 0) & (other != mine) & ~ordered)
                    if len(bad):
                        self._report(earlier, later, bad, granule)
                        break

    def _lanes_of(self, entry: Entry, granule: int) -> tuple[Index, Index]:
        """The granules that are touched, and for each of them the lane that touches it."""
        pattern = entry.pattern
        pieces = max(1, entry.op.width // granule)
        first = pattern.gather * (entry.op.width // granule)
        lane = pattern.lanes.numbers
        if pieces == 1:
            return first, lane
        return (
            (first[:, None] + np.arange(pieces)).reshape(-1),
            np.repeat(lane, pieces),
        )

    def _cells(self, entry: Entry, granule: int) -> tuple[Index, npt.NDArray[np.int32]]:
        place, lane = self._lanes_of(entry, granule)
        return place, (self.machine.geometry.thread_of[lane] + 1).astype(np.int32)

    def _report(self, earlier: Entry, later: Entry, bad: Index, granule: int) -> None:
        pieces = max(1, later.op.width // granule)
        at = int(bad[0]) // pieces
        place = self.machine.shared_place(int(later.pattern.address[at]), later.op.element)
        lane = int(later.pattern.lanes.numbers[at])
        verb = {READ: "reads", WRITE: "writes", ATOMIC: "changes atomically"}[later.kind]
        later.op.fault(
            "race",
            f"{verb} {place} in shared memory with no barrier after the {earlier.kind} of "
            f"another thread ({earlier.op.where(later.op.file)})",
            lane,
            place,
            len(np.unique(bad // pieces)) - 1,
        )


def _part(entry: Entry, mine: npt.NDArray[np.bool_]) -> Entry:
    pattern = entry.pattern
    lanes = pattern.lanes.where(mine)
    part = SharedPattern(
        lanes, lanes, pattern.address[mine], pattern.address[mine], pattern.gather[mine],
        None, 0, 0, 0, pattern.has_duplicates,
    )  # fmt: skip
    return Entry(part, entry.kind, entry.op, entry.clock)
