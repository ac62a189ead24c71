"""Find races in kernels that synchronise by more than the block's barrier.

All accesses to shared memory are checked here: those of threads, and those of the engines that copy
and multiply beside them.

Bulk copies and ``wgmma`` touch memory through another proxy than threads do, and causality order
goes from one proxy to another only by a proxy fence (PTX ISA 8.6 and "Causality Order"). So there
must be such a fence, by any thread in the chain, between a thread's write and a bulk copy or a
``wgmma`` that reads or writes the same place, and between a thread's read and one that writes it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.checks.happens_before import (
    MATRICES,
    STORES,
    Clocks,
    consecutive,
)
from tilewise.devices.emulator.checks.last_accesses import Access, Knows, LastAccesses
from tilewise.devices.emulator.checks.log import ARRIVAL, ISSUE, READ, WRITE
from tilewise.devices.emulator.memory.patterns import SharedPattern
from tilewise.devices.emulator.ptx.program import Program
from tilewise.devices.emulator.threads.lanes import WARPGROUP, Index
from tilewise.devices.emulator.threads.op import Op

_REMEMBERED = 4096


@lru_cache(maxsize=32)
def needed(program: Program) -> bool:
    """Return whether a program synchronises by more than barriers of the block and of warps."""
    return any(
        i.opcode in ("mbarrier", "mapa", "wgmma")
        or "bulk" in i.modifiers
        or (i.opcode == "barrier" and "cluster" in i.modifiers)
        for i in program.instructions
    )


class Ordering(LastAccesses):
    """The accesses to the shared memory of a batch of blocks, and the search for their races."""

    def start(self) -> None:
        """Begin a new batch."""
        super().start()
        self._on_the_way: npt.NDArray[np.int32] | None = None
        self._places: dict[int, tuple[SharedPattern, Index, Index, int, int]] = {}
        # The last access of each agent of another block to each block: clock, lane, op.
        blocks = self.machine.geometry.block_count
        self._visit: Clocks = np.zeros((3, blocks, self.agents), np.int32)

    def forget(self) -> None:
        """Do nothing, since nothing is kept from batch to batch."""

    def end(self) -> None:
        """End the batch: no block may end before others have finished with its shared memory."""
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

    def cut(self) -> None:
        """Do nothing where the launch is cut: each access was checked when it was made."""

    def reached(self, op: Op, lanes: Index, rows: Index) -> None:
        """Record that lanes access something in the shared memory of the blocks in ``rows``."""
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

    def note(
        self, pattern: SharedPattern, kind: str, op: Op, same: npt.NDArray[np.bool_] | None = None
    ) -> None:
        """Check an access of threads; ``same`` says who writes the value that was there already."""
        if not pattern.lanes.count:
            return
        place, lane, low, high = self._touched(pattern, op.width)
        self.reached(op, lane, place * self._granule // self.machine.shared.pitch)
        agent = self.own[lane]
        what = WRITE if kind in (ISSUE, ARRIVAL) else kind
        access = Access(place, lane, agent, self.known[lane, agent], what, op, low, high)
        self._check_copies(access, kind)
        known = self.known
        if same is not None:
            same = np.repeat(same, len(lane) // len(same))
        self.check(access, lambda which, others: known[lane[which], others], id(pattern), same)

    def _check_copies(self, access: Access, kind: str) -> None:
        """Report uses, even by its own thread, of a place that a ``cp.async`` is copying to."""
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
        """Check the access of a bulk copy that a lane issued to the shared memory of a block.

        It accesses ``width`` bytes of the block in ``row``, and completes at a ``barrier``, or by
        ``wait_group`` if that is None.
        """
        own = self.machine.geometry.block_of[lane]
        if barrier is None:
            self.clock[own, 0] += 1
            agent, clock = int(self._engine[STORES][lane]), self.clock[own, 0]
            self._issued[lane] = clock
        else:
            agents, clocks = self.mbarriers.issued(np.array([barrier]))
            agent, clock = int(agents[0]), clocks[0]
        if row != own:
            self._visited(op, row, agent, clock, lane)
        offsets = np.array([offset], np.int64)
        self._engine_access(op, np.array([lane]), agent, row, offsets, width, kind, clock)

    def first_late(self, op: Op, lanes: Index, offsets: Index, width: int, barrier: Index) -> int:
        """Return the number of bulk loads before the first one that has a race to report.

        Parameters
        ----------
        lanes : ndarray of intp, shape (n,)
            The lanes, each of which issues one load, to its own block.
        offsets : ndarray of int64, shape (n,)
            The offsets in the block's shared memory; no two of the loads overlap.
        width : int
            The bytes of each load.
        barrier : ndarray of intp, shape (n,)
            The mbarrier at which each load completes.
        """
        if self.machine.faults.has("race", op.index):
            return len(lanes)
        nobody, never = np.zeros(1, np.intp), np.zeros(1, np.int32)
        access, knows, fenced = self._loads(op, lanes, offsets, width, nobody, never)
        assert access.turn is not None
        late = self.mbarriers.is_unmade(lanes, barrier)
        late[access.turn[self.is_late(access, knows, fenced)]] = True
        return int(late.argmax()) if late.any() else len(late)

    def loaded(self, op: Op, lanes: Index, offsets: Index, width: int, barrier: Index) -> None:
        """Record bulk loads that were issued in turn and have ended; see :meth:`first_late`."""
        agent, clock = self.mbarriers.issued(barrier)
        pieces = max(1, width // self._granule)
        access, knows, fenced = self._loads(
            op, lanes, offsets, width, np.repeat(agent, pieces), np.repeat(clock, pieces)
        )
        self.check(access, knows, None, fenced=fenced)
        self.mbarriers.completed(lanes, barrier, clock)

    def _loads(
        self, op: Op, lanes: Index, offsets: Index, width: int, agent: Index, clock: Clocks
    ) -> tuple[Access, Knows, Knows]:
        """Return the access of bulk loads, and what each one's issuer knows."""
        first = self.machine.geometry.block_of[lanes] * self.machine.shared.pitch + offsets
        pieces = max(1, width // self._granule)
        place = _spread((first // self._granule).astype(np.intp), pieces)
        turn = np.repeat(np.arange(len(lanes)), pieces)
        lane, known = lanes[turn], self.known
        access = Access(
            place, lane, agent, clock, WRITE, op, int(place.min()), int(place.max()), turn
        )
        return (
            access,
            lambda which, others: known[lane[which], others],
            lambda which, others: known[lane[which], others + self.agents],
        )

    def multiplied(
        self, op: Op, lanes: Index, row: int, offsets: npt.NDArray[np.int64], width: int
    ) -> None:
        """Check that a warpgroup's matrix unit may read ``width`` bytes at each of ``offsets``."""
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
        known = self.known[consecutive(lanes)].min(axis=0)
        agent = np.array([engine], np.intp)
        access = Access(
            place, lanes[:1], agent, np.array([clock], np.int32), kind, op,
            int(place.min()), int(place.max()),
        )  # fmt: skip
        key = (op.index, row, engine, int(place[0]), len(place))
        self.check(
            access, lambda which, others: known[others], key,
            fenced=lambda which, others: known[others + self.agents],
        )  # fmt: skip

    def _touched(self, pattern: SharedPattern, width: int) -> tuple[Index, Index, int, int]:
        """Return the granules that a pattern's lanes touch, and the lane of each.

        Return also the first and the last granule.
        """
        kept = self._places.get(id(pattern))
        if kept is None:
            pieces = max(1, width // self._granule)
            place = _spread(pattern.gather * pieces, pieces)
            lane = np.repeat(pattern.lanes.numbers, pieces)
            # The pattern is kept too, so that no other one gets its ``id``.
            if len(self._places) == _REMEMBERED:
                self._places.clear()
            low, high = int(place.min()), int(place.max())
            kept = self._places[id(pattern)] = pattern, place, lane, low, high
        return kept[1:]


def _spread(first: Index, pieces: int) -> Index:
    """Return all granules of accesses that are ``pieces`` granules wide, by the first of each."""
    if pieces == 1:
        return first
    return (first[:, None] + np.arange(pieces)).reshape(-1)
