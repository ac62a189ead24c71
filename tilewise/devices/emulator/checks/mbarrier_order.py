"""Follow the order that mbarriers give threads, and find waits that an older phase could end.

An arrival leaves at the mbarrier what its thread knows. A thread that waits for the phase takes
that over when the phase has ended. Each mbarrier has a clock beside those of the threads: it ticks
at every bulk copy that completes there, and at every end of a phase. So a thread knows which copies
have ended, and which phases.

A wait by parity is for the current phase or the one before (PTX ISA 9.7.13.15.16), so it can be for
another phase than was meant, and three things are faults:

- a thread waits for a phase and does not know that the one before it has ended: in another order of
  the run an older phase of the same parity lets it go;
- a phase ends though nobody who waited for the one before had a part in it: in another order of the
  run those threads come too late, and wait for the phase after the next;
- a thread waits for one phase twice, and between the two handed something on to others; and the
  next phase ends, of which the thread learns nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.threads.lanes import Index
from tilewise.devices.emulator.threads.op import Op

if TYPE_CHECKING:
    from tilewise.devices.emulator.checks.happens_before import Clocks, HappensBefore

CLOCKS = 16
"""The number of clocks for a block's mbarriers. With more mbarriers, some share a clock, and a
thread that knows the later event counts as knowing the earlier one.
"""
_Numbers = npt.NDArray[np.int64]


class _Waits:
    """The last wait of each lane at each mbarrier of its block; shape (lanes, mbarriers).

    Attributes
    ----------
    ended : ndarray of int32
        The number of phases that had ended when the lane passed, plus 1; 0 if it never waited.
    clock : ndarray of int32
        The lane's own clock at that time.
    op : ndarray of int32
        The instruction, plus 1; 0 for a wait by a state.
    again, knew : ndarray of int32
        The instruction, plus 1, that waited for the same phase again after the lane had released
        something; and what the lane knew of the mbarrier then.
    """

    def __init__(self, count: int) -> None:
        self.ended, self.clock, self.op, self.again, self.knew = np.zeros((5, count, 0), np.int32)

    def widen(self, mbarriers: int) -> None:
        """Make room for a number of mbarriers of a block."""
        more = mbarriers - self.ended.shape[1]
        if more > 0:
            more = max(more, CLOCKS)  # as they are initialised one after another
            for name, table in vars(self).items():
                setattr(self, name, np.pad(table, ((0, 0), (0, more))))


class MbarrierOrder:
    """The order at the mbarriers of one batch of blocks, and the waits for each phase.

    Mbarriers are given by their numbers in the batch, in the order in which they were initialised.
    """

    def __init__(self, order: HappensBefore) -> None:
        self._order = order

    def start(self) -> None:
        """Begin a new batch."""
        order, geometry = self._order, self._order.machine.geometry
        self._maker: Index = np.zeros(0, np.intp)
        self._made_at: Clocks = np.zeros(0, np.int32)
        self._left: Clocks = np.zeros((0, order.width), np.int32)
        self._found: Clocks = np.zeros((0, order.width), np.int32)
        self._row: Index = np.zeros(0, np.intp)
        # Its number in its block, its clock's number there, and its clock's number in the cluster.
        self._ordinal: Index = np.zeros(0, np.intp)
        self._clock: Index = np.zeros(0, np.intp)
        self._agent: Index = np.zeros(0, np.intp)
        # The clocks at which the last phase ended, and the one before.
        self._ends: Clocks = np.zeros((0, 2), np.int32)
        self._held: Index = np.zeros(geometry.block_count, np.intp)
        self._waits = _Waits(geometry.count)

    # What happens

    def made(self, makers: Index, rows: Index) -> None:
        """Record that lanes initialised mbarriers of the blocks in ``rows``, one each."""
        order = self._order
        ordinal = np.empty(len(rows), np.intp)
        for i, row in enumerate(rows):
            ordinal[i] = self._held[row]
            self._held[row] += 1
        more = np.zeros((len(rows), order.width), np.int32)
        own = order.own[makers]
        self._maker = np.r_[self._maker, own]
        self._made_at = np.r_[self._made_at, order.known[makers, own]]
        self._left = np.concatenate((self._left, more))
        self._found = np.concatenate((self._found, more))
        self._row, self._ordinal = np.r_[self._row, rows], np.r_[self._ordinal, ordinal]
        clock = order.engines - CLOCKS + ordinal % CLOCKS
        self._clock = np.r_[self._clock, clock]
        self._agent = np.r_[self._agent, order.agent_of(rows, clock)]
        self._ends = np.concatenate((self._ends, np.zeros((len(rows), 2), np.int32)))
        self._waits.widen(int(self._held.max(initial=0)))

    def check_made(self, op: Op, lanes: Index, barrier: Index) -> None:
        """Check that a barrier's initialisation is ordered before its use."""
        self._report(
            op, lanes, barrier, self.is_unmade(lanes, barrier),
            "uses the mbarrier {} with no barrier after its initialisation by another thread",
            "race",
        )  # fmt: skip

    def is_unmade(self, lanes: Index, barrier: Index) -> npt.NDArray[np.bool_]:
        """Return which lanes are not ordered after the initialisation of their barriers."""
        known = self._order.known[lanes, self._maker[barrier]]
        unmade: npt.NDArray[np.bool_] = known < self._made_at[barrier]
        return unmade

    def arrived(self, lanes: Index, barrier: Index) -> None:
        """Record that lanes arrive, and leave what they know."""
        self._order.release(lanes, barrier, self._left)

    def issued(self, barrier: Index) -> tuple[Index, Clocks]:
        """Return the agents of bulk copies that complete at barriers, and when each completes.

        The times are by the agents' clocks. The copies are issued one after another.
        """
        agent = self._agent[barrier]
        # Among copies with one clock, each is later than those before it.
        clock = self._row[barrier] * self._order.engines + self._clock[barrier]
        order = np.argsort(clock, kind="stable")
        ahead = np.arange(len(order)) - np.searchsorted(clock[order], clock[order])
        now = self.now(barrier)
        now[order] += ahead + 1
        self._tick(barrier)
        return agent, now

    def now(self, barrier: Index) -> Clocks:
        """Return what the clocks of barriers show."""
        found: Clocks = self._order.clock[self._row[barrier], self._clock[barrier]]
        return found

    def completed(self, lanes: Index, barrier: Index, now: Clocks) -> None:
        """Record that copies that each lane issued to a barrier have ended.

        The barrier learns that as of its clock's time ``now``.
        """
        self._order.release(lanes, barrier, self._left)
        np.maximum.at(self._left, (barrier, self._agent[barrier]), now)

    def ended(self, done: Index, arrivals: tuple[Index, Index] | None = None) -> None:
        """Record that phases of barriers ended.

        ``arrivals`` are the lanes that just arrived, and the barrier of each. Those that knew of
        all other arrivals at a phase, such as one that arrives alone, know that it has ended.
        """
        now = self._tick(done)
        if arrivals is not None:
            lanes, barrier = arrivals
            sees = np.isin(barrier, done)
            sees[sees] = (self._left[barrier[sees]] <= self._order.known[lanes[sees]]).all(axis=1)
            self._order.known[lanes[sees], self._agent[barrier[sees]]] = self.now(barrier[sees])
        self._left[done, self._agent[done]] = now
        self._ends[done] = np.stack((now, self._ends[done, 0]), axis=1)
        self._found[done] = np.maximum(self._found[done], self._left[done])
        self._left[done] = 0
        self._check_turned(done)

    def _tick(self, barrier: Index) -> Clocks:
        """Advance the clocks of barriers, and return their new times."""
        np.add.at(self._order.clock, (self._row[barrier], self._clock[barrier]), 1)
        return self.now(barrier)

    # Who waits

    def asked(self, op: Op, lanes: Index, barrier: Index, goes: npt.NDArray[np.bool_]) -> None:
        """Record that lanes ask by parity; the phase has ended for those that go on at once.

        Each must know that the phase before the one that it waits for has ended.
        """
        before = np.where(goes, self._ends[barrier, 1], self._ends[barrier, 0])
        late = self._order.known[lanes, self._agent[barrier]] < before
        self._report(
            op, lanes, barrier, late,
            "waits at the mbarrier {} by a parity, and nothing orders it after the end of the "
            "phase before that one: an older phase of the same parity may let it pass too early",
        )  # fmt: skip

    def passed(
        self, op: Op, lanes: Index, barrier: Index, ended: _Numbers, by_parity: bool
    ) -> None:
        """Record that lanes pass a wait; ``ended`` phases of each lane's barrier had ended."""
        order, waits = self._order, self._waits
        order.acquire(lanes, self._found[barrier])
        at, own = self._ordinal[barrier], order.known[lanes, order.own[lanes]]
        is_again = waits.ended[lanes, at] == ended + 1
        again = np.flatnonzero(is_again & (own > waits.clock[lanes, at]) & (ended > 0))
        if by_parity and len(again):
            lane, there = lanes[again], at[again]
            waits.again[lane, there] = op.index + 1
            waits.knew[lane, there] = order.known[lane, self._agent[barrier[again]]]
        new = np.flatnonzero(~is_again)
        if len(new):
            first = lanes[new], at[new]
            waits.ended[first], waits.clock[first] = ended[new] + 1, own[new]
            waits.op[first], waits.again[first] = (op.index + 1) * by_parity, 0

    def _check_turned(self, done: Index) -> None:
        """Check that one of those who waited for the phase before let each phase end.

        Otherwise, in another order of the run, they would find this phase ended too, and wait for
        the next one with the same parity.
        """
        machine, order, waits = self._order.machine, self._order, self._waits
        threads = machine.geometry.threads
        lanes = self._row[done][:, None] * threads + np.arange(threads)
        at = lanes, self._ordinal[done][:, None]
        waited = (waits.ended[at] == machine.mbarriers.phase[done][:, None]) & (waits.op[at] > 0)
        knows = self._found[done[:, None], order.own[lanes]] >= waits.clock[at]
        wrong = waited & ~(waited & knows).any(axis=1)[:, None]
        if wrong.any():
            which = np.nonzero(wrong)
            op = int(waits.op[at][which][0]) - 1
            self._report(
                machine.ops[op], lanes[which], done[which[0]], waits.op[at][which] == op + 1,
                "waits at the mbarrier {} by a parity, and the phase after that one has ended "
                "with nothing that orders its end behind the wait: a thread that comes later "
                "waits for another phase",
            )  # fmt: skip

    def end(self) -> None:
        """End the batch: report waits with an old parity."""
        machine, order, waits = self._order.machine, self._order, self._waits
        lanes, at = np.nonzero(waits.again)
        if not len(lanes):
            return
        number = {key: b for b, key in enumerate(zip(self._row, self._ordinal, strict=True))}
        block = machine.geometry.block_of[lanes]
        barrier = np.array([number[key] for key in zip(block, at, strict=True)], np.intp)
        by = waits.again[lanes, at]
        is_late = machine.mbarriers.phase[barrier] >= waits.ended[lanes, at]
        is_late &= order.known[lanes, self._agent[barrier]] <= waits.knew[lanes, at]
        for op in np.unique(by[is_late]):
            self._report(
                machine.ops[op - 1], lanes, barrier, is_late & (by == op),
                "waits at the mbarrier {} by the parity of a phase that it has waited for "
                "already, and passes at once; it never waits for the phase after that",
            )  # fmt: skip

    def _report(
        self, op: Op, lanes: Index, barrier: Index, wrong: npt.NDArray[np.bool_], what: str,
        kind: str = "barrier",
    ) -> None:  # fmt: skip
        which = np.flatnonzero(wrong)
        if len(which):
            machine = self._order.machine
            place = machine.mbarriers.place_of(int(barrier[which[0]]))
            others = machine.geometry.of_one_block(np.unique(lanes[which])) - 1
            op.fault(kind, what.format(place), int(lanes[which[0]]), place, others)
