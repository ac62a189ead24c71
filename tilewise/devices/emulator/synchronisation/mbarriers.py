"""The ``mbarrier`` objects of a batch of blocks, and who waits for them (PTX ISA 9.7.13.15).

A phase ends when all its arrivals and all the bytes it was told to expect are there. Threads that
wait for that stand aside until it does. Where nothing else can run they go on with the answer no,
as after the time limit of ``try_wait``; where that, again and again, changes nothing, they wait
for a phase that nobody completes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.checks.log import MBARRIER
from tilewise.devices.emulator.threads.faults import Place
from tilewise.devices.emulator.threads.lanes import Index, Lanes
from tilewise.devices.emulator.threads.op import Groups, Op, Writer

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

_BYTES = 8
MOST = (1 << 20) - 1
COUNT_BITS = 20
_PATIENCE = 64
"""How often waiting threads may ask again in vain before they are reported to wait forever."""


@dataclass
class Waiting:
    """Lanes that each wait for the end of a phase of one barrier, by its number or its parity."""

    op: Op
    lanes: Lanes
    barrier: Index
    wanted: npt.NDArray[np.int64]
    is_parity: bool
    write: Writer

    def pick(self, chosen: npt.NDArray[np.bool_]) -> Waiting:
        if chosen.all():
            return self
        return Waiting(
            self.op, self.lanes.where(chosen), self.barrier[chosen], self.wanted[chosen],
            self.is_parity, self.write,
        )  # fmt: skip


class Mbarriers:
    """The mbarriers of one batch of blocks."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def start(self) -> None:
        """Start a new batch."""
        self._slots: npt.NDArray[np.int32] | None = None
        self._waiting: list[Waiting] = []
        self._in_vain = 0
        self._progress = -1
        self._place: Index = np.zeros(0, np.intp)
        self.expected, self.pending, self.bytes_, self.phase = np.zeros((4, 0), np.int64)

    # Which barriers

    @property
    def _slot(self) -> npt.NDArray[np.int32]:
        """The barrier at every 8 bytes of the batch's shared memory; -1 for none."""
        if self._slots is None:
            self._slots = np.full(len(self.machine.shared.data) // _BYTES, -1, np.int32)
        return self._slots

    def number_at(self, row: int, offset: int) -> int:
        """Return the barrier at an offset of a block's shared memory; -1 for none."""
        return int(self.numbers_at(row, offset))

    def numbers_at(self, rows: Any, offset: Any) -> Any:
        """Return the barriers at offsets of blocks' shared memory; -1 for none."""
        return self._slot[(rows * self.machine.shared.pitch + offset) // _BYTES]

    def place_of(self, barrier: int) -> Place:
        """Return the place of a barrier in its block's shared memory."""
        offset = int(self._place[barrier]) % self.machine.shared.pitch
        return self.machine.shared_place(offset, _BYTES)

    def _places(self, op: Op, lanes: Lanes, rows: Index, offset: Index) -> npt.NDArray[np.bool_]:
        """Return whether each place can hold a barrier; those that can't are reported."""
        storage = self.machine.shared
        outside = (rows < 0) | (offset < 0) | (offset + _BYTES > storage.size)
        crooked = ~outside & (offset % _BYTES != 0)
        for kind, wrong, what in (
            ("out of bounds", outside, "outside the block's shared memory"),
            ("misaligned", crooked, f"not aligned to {_BYTES} bytes"),
        ):
            if wrong.any():
                which = np.flatnonzero(wrong)
                at = int(offset[which[0]])
                op.fault(
                    kind, f"uses an mbarrier at byte {at:,}, {what}", int(lanes.numbers[which[0]]),
                    None, len(which) - 1,
                )  # fmt: skip
        right: npt.NDArray[np.bool_] = ~(outside | crooked)
        return right

    def find(self, op: Op, lanes: Lanes, rows: Index, offset: Index) -> tuple[Lanes, Index]:
        """Return the lanes whose barriers there are, and the barriers; the others are reported."""
        machine = self.machine
        right = self._places(op, lanes, rows, offset)
        barrier = np.full(lanes.count, -1, np.intp)
        barrier[right] = self._slot[(rows * machine.shared.pitch + offset)[right] // _BYTES]
        missing = right & (barrier < 0)
        gone = right & ~missing & (machine.live_in_block[rows] == 0)
        for wrong, kind, what in (
            (missing, "barrier", "uses the mbarrier {}, which nobody initialised"),
            (gone, "out of bounds", "uses the mbarrier {} of a block that has ended"),
        ):
            if wrong.any():
                which = np.flatnonzero(wrong)
                place = machine.shared_place(int(offset[which[0]]), _BYTES)
                lane = int(lanes.numbers[which[0]])
                op.fault(kind, what.format(place), lane, place, len(which) - 1)
        known = barrier >= 0
        if not known.all():
            lanes, rows = lanes.where(known), rows[known]
            barrier, offset = barrier[known], offset[known]
        if machine.ordering is not None:
            machine.ordering.reached(op, lanes.numbers, rows)
            machine.ordering.mbarriers.check_made(op, lanes.numbers, barrier)
        return lanes, barrier

    def initialize(
        self, op: Op, lanes: Lanes, rows: Index, offset: Index, count: npt.NDArray[np.int64]
    ) -> None:
        """Initialize barriers for ``count`` arrivals: ``mbarrier.init``."""
        machine = self.machine
        wrong = (count < 1) | (count > MOST)
        if wrong.any():
            which = np.flatnonzero(wrong)
            op.fault(
                "barrier",
                f"initialises an mbarrier for {int(count[which[0]]):,} arrivals; it takes 1 to "
                f"{MOST:,}",
                int(lanes.numbers[which[0]]),
                None,
                len(which) - 1,
            )
        right = self._places(op, lanes, rows, offset) & ~wrong
        if not right.all():
            lanes, rows, offset, count = (
                lanes.where(right),
                rows[right],
                offset[right],
                count[right],
            )
        place, first = np.unique(rows * machine.shared.pitch + offset, return_index=True)
        number = len(self.expected)
        self._slot[place // _BYTES] = np.arange(number, number + len(place))
        zeros = np.zeros(len(place), np.int64)
        self._place = np.r_[self._place, place]
        self.expected = np.r_[self.expected, count[first]]
        self.pending = np.r_[self.pending, count[first]]
        self.bytes_, self.phase = np.r_[self.bytes_, zeros], np.r_[self.phase, zeros]
        if machine.ordering is not None:
            machine.ordering.mbarriers.made(lanes.numbers[first], rows[first])

    def invalidate(self, op: Op, lanes: Lanes, rows: Index, offset: Index) -> None:
        """Invalidate barriers, so that their places hold none any more: ``mbarrier.inval``."""
        lanes, barrier = self.find(op, lanes, rows, offset)
        self._slot[self._place[barrier] // _BYTES] = -1

    # Arrivals

    def arrive(
        self,
        op: Op,
        lanes: Lanes,
        barrier: Index,
        count: npt.NDArray[np.int64],
        expected: npt.NDArray[np.int64] | None = None,
        drops: bool = False,
    ) -> npt.NDArray[np.uint64]:
        """Let lanes arrive ``count`` times each; before that, they may expect more bytes.

        Returns
        -------
        ndarray of uint64, shape (lanes.count,)
            The states: which phase, and how many arrivals were missing.
        """
        self.machine.progress += 1
        state = self._states(barrier)
        total = np.bincount(barrier, count, len(self.expected)).astype(np.int64)
        if (total > self.pending).any():
            return self._arrive_in_turn(op, lanes, barrier, count, expected, drops)
        if expected is not None:
            np.add.at(self.bytes_, barrier, expected)
        if self.machine.ordering is not None:
            self.machine.ordering.mbarriers.arrived(lanes.numbers, barrier)
        if self.machine.global_races is not None:
            self.machine.global_races.released(lanes.numbers, self._names(barrier))
        self.pending -= total
        if drops:
            self.expected -= total
        self._end_phases(np.unique(barrier), (lanes.numbers, barrier))
        return state

    def _arrive_in_turn(
        self,
        op: Op,
        lanes: Lanes,
        barrier: Index,
        count: npt.NDArray[np.int64],
        expected: npt.NDArray[np.int64] | None,
        drops: bool,
    ) -> npt.NDArray[np.uint64]:
        """Arrive lane by lane, if there are more arrivals than one phase takes."""
        state = self._states(barrier)
        for i in range(lanes.count):
            one = slice(i, i + 1)
            at = int(barrier[i])
            if count[i] > self.pending[at]:
                place = self.place_of(at)
                op.fault(
                    "barrier",
                    f"arrives {int(count[i]):,} times at the mbarrier {place}, whose phase lacks "
                    f"{int(self.pending[at]):,} of its {int(self.expected[at]):,} arrivals",
                    int(lanes.numbers[i]),
                    place,
                )
                continue
            some = None if expected is None else expected[one]
            lane = Lanes(lanes.geometry, lanes.numbers[one], False)
            state[one] = self.arrive(op, lane, barrier[one], count[one], some, drops)
        return state

    def _states(self, barrier: Index) -> npt.NDArray[np.uint64]:
        return (self.phase[barrier] << COUNT_BITS | self.pending[barrier]).astype(np.uint64)

    def expect(self, barrier: Index, bytes_: npt.NDArray[np.int64]) -> None:
        """Let the current phases expect more bytes, or fewer."""
        self.machine.progress += 1
        np.add.at(self.bytes_, barrier, bytes_)
        self._end_phases(np.unique(barrier))

    def complete(self, rows: Index, offset: int, bytes_: int, op: Op, lane: int) -> None:
        """Complete bulk copies that a lane issued, in one or several blocks.

        Parameters
        ----------
        rows : ndarray of intp
            Blocks, as rows of the batch, each once.
        offset : int
            The mbarrier's offset in each block's shared memory.
        bytes_ : int
            How many bytes each of them got.
        """
        rows = np.asarray(rows, np.intp)
        lanes = Lanes(self.machine.geometry, np.full(len(rows), lane, np.intp), False)
        _, barrier = self.find(op, lanes, rows, np.full(len(rows), offset, np.intp))
        if self.machine.ordering is not None:
            order = self.machine.ordering.mbarriers
            for at in barrier:
                one = np.array([at])
                order.completed(np.array([lane]), one, order.now(one))
        self.expect(barrier, np.full(len(barrier), -bytes_, np.int64))

    def first_end(self, barrier: Index, bytes_: int) -> int:
        """Return the number of copies of ``bytes_`` bytes, one after another, up to the first whose
        end is that of a phase; all of them if none is.

        Parameters
        ----------
        barrier : ndarray of intp
            The barrier at which each copy completes.
        """
        order = np.argsort(barrier, kind="stable")
        sorted_ = barrier[order]
        count = np.empty(len(barrier), np.int64)
        count[order] = np.arange(1, len(barrier) + 1) - np.searchsorted(sorted_, sorted_)
        ends = (self.pending[barrier] == 0) & (self.bytes_[barrier] == count * bytes_)
        return int(ends.argmax()) + 1 if ends.any() else len(barrier)

    def _end_phases(self, barrier: Index, arrivals: tuple[Index, Index] | None = None) -> None:
        """End the phases that are complete, and release the lanes that waited for that.

        ``arrivals`` are the lanes that just arrived, and the barrier of each.
        """
        done = barrier[(self.pending[barrier] == 0) & (self.bytes_[barrier] == 0)]
        if not len(done):
            return
        self.phase[done] += 1
        self.pending[done] = self.expected[done]
        if self.machine.ordering is not None:
            self.machine.ordering.mbarriers.ended(done, arrivals)
        waiting, self._waiting = self._waiting, []
        for some in waiting:
            goes = self._ended(some)
            if not goes.all():
                self._waiting.append(some.pick(~goes))
            if goes.any():
                released = some.pick(goes)
                self._acquire(released)
                self._go_on(released)

    # Waiting

    def _ended(self, some: Waiting) -> npt.NDArray[np.bool_]:
        phase = self.phase[some.barrier]
        ended: npt.NDArray[np.bool_] = (phase & 1 if some.is_parity else phase) != some.wanted
        return ended

    def _acquire(self, some: Waiting) -> None:
        if self.machine.ordering is not None:
            phase = self.phase[some.barrier]
            ended = phase if some.is_parity else some.wanted + 1
            self.machine.ordering.mbarriers.passed(
                some.op, some.lanes.numbers, some.barrier, ended, some.is_parity
            )
        if self.machine.global_races is not None:
            names = self._names(some.barrier)
            self.machine.global_races.acquired(some.lanes.numbers, names)
        some.write(some.lanes, np.ones(some.lanes.count, np.bool_))

    def _names(self, barrier: Index) -> npt.NDArray[np.int64]:
        """Return the keys that order lanes at barriers, distinct from other batches' keys."""
        return MBARRIER + (self.machine.generation << 32) + barrier.astype(np.int64)

    def wait(self, some: Waiting) -> Groups:
        """Test whether phases have ended, and suspend the lanes whose phase has not."""
        goes = self._ended(some)
        if self.machine.ordering is not None and some.is_parity:
            self.machine.ordering.mbarriers.asked(some.op, some.lanes.numbers, some.barrier, goes)
        if not goes.all():
            rest = some.pick(~goes)
            self.machine.parked += rest.lanes.count
            self._waiting.append(rest)
            if not goes.any():
                return []
            some = some.pick(goes)
        self._acquire(some)
        return [(some.op.index + 1, some.lanes)]

    def _go_on(self, some: Waiting) -> None:
        self.machine.parked -= some.lanes.count
        self.machine.add_group(some.op.index + 1, some.lanes)

    def ask_again(self) -> bool:
        """Let waiting lanes test again, if anything has changed; nobody else can run."""
        if not self._waiting:
            return False
        progress = self.machine.progress
        self._in_vain = self._in_vain + 1 if self._progress == progress else 0
        self._progress = progress
        if self._in_vain > _PATIENCE:
            return False
        self.resume_all()
        return True

    def resume_all(self) -> None:
        """Let all that wait go on with the answer no."""
        waiting, self._waiting = self._waiting, []
        for some in waiting:
            some.write(some.lanes, np.zeros(some.lanes.count, np.bool_))
            self._go_on(some)

    def report_stuck(self) -> None:
        """Report who waits for what, when no lane can run."""
        for some in self._waiting:
            at = int(some.barrier[0])
            place = self.place_of(at)
            some.op.fault(
                "barrier",
                f"waits at the mbarrier {place} for a phase that nobody completes: "
                f"{self._lacks(at)}",
                int(some.lanes.numbers[0]),
                place,
                self.machine.geometry.of_one_block(some.lanes.numbers) - 1,
            )

    def _lacks(self, barrier: int) -> str:
        """Return what the current phase of a barrier lacks, or has too much of."""
        ended, bytes_ = int(self.phase[barrier]), int(self.bytes_[barrier])
        arrivals = f"{int(self.pending[barrier]):,} of {int(self.expected[barrier]):,} arrivals"
        before = f"; {ended:,} of its phases {'has' if ended == 1 else 'have'} ended"
        if bytes_ < 0:
            return (
                f"{arrivals} are missing, and {-bytes_:,} bytes more came than it expects{before}"
            )
        return f"{arrivals} and {bytes_:,} bytes are missing{before}"
