"""Find races in kernels that synchronise by more than the block's barrier.

Two accesses to one place in shared memory, of which one writes, are a race where the later one is
not ordered behind the earlier (:mod:`~tilewise.devices.emulator.checks.happens_before`). As in
FastTrack (C. Flanagan and S. Freund, PLDI 2009), the last write of each place is remembered, and
the reads since.

Bulk copies and ``wgmma`` touch memory through another proxy than threads do. So between what
threads wrote and what these read, and between what threads read and what these write, there must be
a proxy fence (PTX ISA 8.6), by any thread in the chain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.checks.happens_before import (
    MATRICES,
    STORES,
    Clocks,
    HappensBefore,
)
from tilewise.devices.emulator.checks.log import ARRIVAL, ATOMIC, ISSUE, READ, VERBS, WRITE
from tilewise.devices.emulator.checks.races import note_same_value
from tilewise.devices.emulator.memory.patterns import SharedPattern
from tilewise.devices.emulator.ptx.program import Program
from tilewise.devices.emulator.threads.lanes import WARPGROUP, Index
from tilewise.devices.emulator.threads.op import Op

_GRANULE = 16
_REMEMBERED = 4096
_OTHER_SPACES = frozenset(("global", "local", "param", "const"))


def needed(program: Program) -> bool:
    """Return whether a program synchronises by more than barriers of the block and of warps."""
    return any(
        i.opcode in ("mbarrier", "mapa", "wgmma")
        or "bulk" in i.modifiers
        or (i.opcode == "barrier" and "cluster" in i.modifiers)
        for i in program.instructions
    )


@dataclass
class _Access:
    """Says which places in shared memory are touched, by whom, and at which of its clocks.

    Attributes
    ----------
    place : ndarray of intp, shape (n,)
        Granules in the batch's storage.
    lane : ndarray of intp, shape (n,) or (1,)
        For the report; of an engine, the thread that gave it the work.
    agent, clock : ndarray, shape (n,) or (1,)
    low, high : int
        The first and the last granule.
    """

    place: Index
    lane: Index
    agent: Index
    clock: Clocks
    kind: str
    op: Op
    low: int
    high: int

    def pick(self, chosen: npt.NDArray[Any]) -> _Access:
        def of(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return x if len(x) == 1 else x[chosen]

        return replace(
            self, place=self.place[chosen], lane=of(self.lane), agent=of(self.agent),
            clock=of(self.clock),
        )  # fmt: skip


class Ordering(HappensBefore):
    """Keeps the clocks and the last accesses of one batch of blocks, and finds the races in it."""

    def start(self) -> None:
        """A new batch begins."""
        super().start()
        geometry = self.machine.geometry
        self._granule = self._smallest()
        size = len(self.machine.shared.data) // self._granule
        self._writer = np.full(size, -1, np.int32)
        self._written_at = np.zeros(size, np.int32)
        self._written_by = np.zeros(size, np.int32)
        self._mark = np.zeros(size, np.int32)
        self._on_the_way: npt.NDArray[np.int32] | None = None
        # By kind, and by row (see _row).
        self._seen: dict[str, dict[int, dict[Any, _Access]]] = {READ: {}, ATOMIC: {}}
        self._places: dict[int, tuple[SharedPattern, Index, Index, int, int]] = {}
        # Of each block and each agent of another one, its last access there: clock, lane, op.
        self._visit: Clocks = np.zeros((3, geometry.block_count, self.agents), np.int32)

    def forget(self) -> None:
        """Nothing is kept from batch to batch."""

    def end(self) -> None:
        """The batch ended; no block may end before others have done with its shared memory."""
        self.mbarriers.end()
        geometry = self.machine.geometry
        if geometry.cluster_size == 1 or self.machine.live_count:
            return
        known = self.known[:, : self.agents]
        known = known.reshape(geometry.block_count, geometry.threads, -1).max(axis=1)
        for row, agent in np.argwhere(self._visit[0] > known):
            _, lane, op = self._visit[:, row, agent]
            ended = geometry.block_index(int(row) * geometry.threads)
            self.machine.ops[op].fault(
                "race",
                f"reaches shared memory of block {ended}, which does not wait for that before it "
                "ends",
                int(lane),
            )

    def reached(self, op: Op, lanes: Index, rows: Index) -> None:
        """Lanes touch something in the shared memory of the blocks in ``rows``."""
        geometry = self.machine.geometry
        if geometry.cluster_size == 1:
            return
        away = rows != geometry.block_of[lanes]
        if away.any():
            lane, agent = lanes[away], self.own[lanes[away]]
            self._visited(op, rows[away], agent, self.known[lane, agent], lane)

    def _visited(self, op: Op, rows: Any, agent: Any, clock: Any, lane: Any) -> None:
        for i, value in enumerate((clock, lane, op.index)):
            self._visit[i, rows, agent] = value

    def _smallest(self) -> int:
        """Return the bytes of the narrowest access to shared memory in the program, 16 at most."""
        widths = [
            op.width
            for op in self.machine.ops
            if op.instruction.opcode in ("ld", "st", "atom", "red", "cp")
            and "bulk" not in op.instruction.modifiers
            and (op.instruction.opcode == "cp" or not _OTHER_SPACES & set(op.instruction.modifiers))
        ]
        return min((_GRANULE, *widths))

    def note(
        self, pattern: SharedPattern, kind: str, op: Op, same: npt.NDArray[np.bool_] | None = None
    ) -> None:
        """Threads touch shared memory; ``same`` says who writes what was there already."""
        if not pattern.lanes.count:
            return
        place, lane, low, high = self._touched(pattern, op.width)
        self.reached(op, lane, place * self._granule // self.machine.shared.pitch)
        agent = self.own[lane]
        what = WRITE if kind in (ISSUE, ARRIVAL) else kind
        access = _Access(place, lane, agent, self.known[lane, agent], what, op, low, high)
        self._check_copies(access, kind)
        known = self.known
        if same is not None:
            same = np.repeat(same, len(lane) // len(same))
        self._check(access, lambda which, others: known[lane[which], others], id(pattern), same)

    def _check_copies(self, access: _Access, kind: str) -> None:
        """Report uses of what a ``cp.async`` is on its way to, which its own thread may not use."""
        if kind == ISSUE and self._on_the_way is None:
            self._on_the_way = np.zeros(len(self._writer), np.int32)
        if (way := self._on_the_way) is None:
            return
        if kind == ARRIVAL:
            way[access.place] = 0
            return
        bad = way[access.place] > 0
        if bad.any():
            earlier = self.machine.ops[way[access.place[np.flatnonzero(bad)[0]]] - 1]
            self._report(access, bad, f"wait for the {ISSUE} that is on its way there", earlier)
        if kind == ISSUE:
            way[access.place] = access.op.index + 1

    def copied(
        self, op: Op, lane: int, row: int, offset: int, width: int, kind: str, barrier: int | None
    ) -> None:
        """A bulk copy that a lane issued touches ``width`` bytes of the shared memory of the block
        in ``row``; it completes at a ``barrier``, or by ``wait_group`` where that is None."""
        own = self.machine.geometry.block_of[lane]
        if barrier is None:
            self.clock[own, 0] += 1
            agent, clock = int(self._engine[STORES][lane]), self.clock[own, 0]
            self._issued[lane] = clock
        else:
            agent, clock = self.mbarriers.issued(barrier)
        if row != own:
            self._visited(op, row, agent, clock, lane)
        offsets = np.array([offset], np.int64)
        self._engine_access(op, np.array([lane]), agent, row, offsets, width, kind, clock)

    def multiplied(
        self, op: Op, lanes: Index, row: int, offsets: npt.NDArray[np.int64], width: int
    ) -> None:
        """A warpgroup's matrix unit reads ``width`` bytes at each of ``offsets``."""
        unit = 1 + self.machine.geometry.thread_of[lanes[0]] // WARPGROUP
        self.clock[row, unit] += 1
        clock = self.clock[row, unit]
        agent = int(self._engine[MATRICES][lanes[0]])
        self._engine_access(op, lanes, agent, row, offsets, width, READ, clock)

    def _engine_access(
        self,
        op: Op,
        lanes: Index,
        engine: int,
        row: int,
        offsets: npt.NDArray[np.int64],
        width: int,
        kind: str,
        clock: Any,
    ) -> None:
        first = (row * self.machine.shared.pitch + offsets) // self._granule
        place = _spread(first.astype(np.intp), max(1, width // self._granule))
        known = self.known[lanes].min(axis=0)
        agent = np.array([engine], np.intp)
        access = _Access(
            place, lanes[:1], agent, np.array([clock], np.int32), kind, op,
            int(place.min()), int(place.max()),
        )  # fmt: skip
        key = (op.index, row, engine, int(place[0]), len(place))
        self._check_fenced(access, known)
        self._check(access, lambda which, others: known[others], key, None, known)

    def _check_fenced(self, access: _Access, known: Clocks) -> None:
        """Report what an engine reads with no proxy fence after the threads that wrote it."""
        place = access.place
        writer, since = self._writer[place], self._written_at[place]
        if access.kind != READ or writer.max() < 0:
            return
        late = (writer >= 0) & (writer < self._threads) & (known[writer] >= since)
        thread = np.minimum(writer, self._threads - 1)
        late &= known[thread + self.agents] < since
        if late.any():
            earlier = self.machine.ops[self._written_by[place[np.flatnonzero(late)[0]]]]
            self._report(access, late, f"proxy fence after the {WRITE} of a thread", earlier)

    def _touched(self, pattern: SharedPattern, width: int) -> tuple[Index, Index, int, int]:
        """Return the granules that a pattern's lanes touch, the lane of each of them, and the first
        and the last granule."""
        kept = self._places.get(id(pattern))
        if kept is None:
            pieces = max(1, width // self._granule)
            place = _spread(pattern.gather * pieces, pieces)
            lane = np.repeat(pattern.lanes.numbers, pieces)
            # The pattern is kept too, so that no other one gets its identity.
            if len(self._places) == _REMEMBERED:
                self._places.clear()
            low, high = int(place.min()), int(place.max())
            kept = self._places[id(pattern)] = pattern, place, lane, low, high
        return kept[1:]

    def _check(
        self,
        access: _Access,
        knows: Callable[[Any, Index], Clocks],
        key: Any,
        same: npt.NDArray[np.bool_] | None,
        of_engine: Clocks | None = None,
    ) -> None:
        """Compare an access with the earlier ones at its places, and remember it.

        Parameters
        ----------
        knows : callable
            Up to which clocks of other agents some of the access's granules are ordered.
        key : object
            Accesses with the same key touch the same places.
        same : ndarray of bool, optional
            Of each granule, whether what is written was there already.
        of_engine : ndarray, optional
            What an engine's issuer knows.
        """
        place = access.place
        writer = self._writer[place].astype(np.intp)
        if writer.max() >= 0:
            bad = (writer >= 0) & (knows(slice(None), writer) < self._written_at[place])
            if same is not None and access.kind == WRITE:
                if (bad & same).any():
                    self._note_same(access, bad & same)
                bad &= ~same
            if bad.any():
                at = int(np.flatnonzero(bad)[0])
                who = self._who(int(writer[at]))
                earlier = self.machine.ops[self._written_by[place[at]]]
                self._report(access, bad, f"barrier after the {WRITE} of {who}", earlier)
        self._check_seen(access, knows, of_engine)
        if access.kind == WRITE:
            self._writer[place] = access.agent
            self._written_at[place] = access.clock
            self._written_by[place] = access.op.index
        else:
            seen = self._seen[access.kind].setdefault(self._row(access), {})
            old = seen.get(key)
            if old is not None and not np.array_equal(old.place, place):
                seen[object()] = old
            seen[key] = access

    def _check_seen(
        self,
        access: _Access,
        knows: Callable[[Any, Index], Clocks],
        of_engine: Clocks | None,
    ) -> None:
        """Compare an access with the reads and the atomics since the last write.

        What threads read, an engine may write only behind a proxy fence.
        """
        place, kind = access.place, access.kind
        against = {READ: (ATOMIC,), ATOMIC: (READ,), WRITE: (READ, ATOMIC)}[kind]
        row = self._row(access)
        others = [
            (among, key, seen)
            for other in against
            for at, among in self._seen[other].items()
            if row in (-1, at) or at == -1
            for key, seen in among.items()
            if seen.low <= access.high and access.low <= seen.high
        ]
        if not others:
            return
        mark = self._mark
        mark[place] = np.arange(1, len(place) + 1)
        for among, key, seen in others:
            which = mark[seen.place]
            hit = which > 0
            if not hit.any():
                continue
            met = seen if hit.all() else seen.pick(hit)
            who = self._who(int(met.agent[0]))
            late = knows(which[hit] - 1, met.agent) < met.clock
            missing = f"barrier after the {seen.kind} of {who}"
            if (
                of_engine is not None
                and kind == WRITE
                and not late.any()
                and met.agent[0] < self._threads
            ):
                late = of_engine[met.agent + self.agents] < met.clock
                missing = f"proxy fence after the {seen.kind} of a thread"
            if late.any():
                bad = np.zeros(len(place), np.bool_)
                bad[which[hit][late if len(late) > 1 else slice(None)] - 1] = True
                self._report(access, bad, missing, seen.op)
            if kind == WRITE:
                # What is ordered behind this write is ordered behind those before it.
                del among[key]
                if not hit.all():
                    among[object()] = seen.pick(~hit)
        mark[place] = 0

    def _row(self, access: _Access) -> int:
        """Return the only row of the batch that an access touches; -1 where there are several."""
        size = self.machine.shared.pitch // self._granule
        row = access.low // size
        return row if row == access.high // size else -1

    def _note_same(self, access: _Access, which: npt.NDArray[np.bool_]) -> None:
        first = np.flatnonzero(which)[0]
        at = int(access.place[first])
        earlier, op, machine = int(self._written_by[at]), access.op, self.machine
        if earlier == op.index:
            return
        place = machine.shared_place(at * self._granule % machine.shared.pitch, op.element)
        note_same_value(op, machine.ops[earlier], place, int(access.lane[first]))

    def _report(
        self, access: _Access, bad: npt.NDArray[np.bool_], missing: str, earlier: Op
    ) -> None:
        op, machine = access.op, self.machine
        which = np.flatnonzero(bad)
        at = int(which[0])
        offset = int(access.place[at]) * self._granule % machine.shared.pitch
        place = machine.shared_place(offset, op.element)
        lanes = access.lane if len(access.lane) == 1 else access.lane[which]
        how = self._who(int(access.agent[0]))
        by = "" if how == "another thread" else f" by {how}"
        op.fault(
            "race",
            f"{VERBS[access.kind]} {place} in shared memory{by} with no {missing} "
            f"({earlier.where(op.file)})",
            int(lanes[0]),
            place,
            len(np.unique(lanes)) - 1,
            earlier,
        )


def _spread(first: Index, pieces: int) -> Index:
    """Return all granules of accesses that are ``pieces`` granules wide, by the first of each."""
    if pieces == 1:
        return first
    return (first[:, None] + np.arange(pieces)).reshape(-1)
