"""Track the barriers of a block (PTX ISA 9.7.13.1): who arrived, who waits, who never comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.threads.lanes import Index, Lanes
from tilewise.devices.emulator.threads.op import Groups, Op
from tilewise.shown import plural

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

Blocks = npt.NDArray[np.bool_]


@dataclass
class _Waiting:
    """Lanes that arrived at a barrier, and the predicates that they brought to a reduction."""

    op: Op
    lanes: Lanes
    brought: npt.NDArray[Any] | None
    waits: bool
    is_watched: bool = False


class Barriers:
    """The numbered barriers of a batch of blocks."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.start()

    def start(self) -> None:
        """Start a new batch."""
        self._waiting: dict[int, list[_Waiting]] = {}
        self._wanted: dict[int, int] = {}
        self.ended: npt.NDArray[np.bool_] | None = None

    def arrive(
        self,
        op: Op,
        number: int,
        lanes: Lanes,
        wanted: int,
        waits: bool = True,
        brought: npt.NDArray[Any] | None = None,
    ) -> Groups:
        """Let lanes arrive at a barrier; ``wanted`` threads open it, 0 for all of the block."""
        machine = self.machine
        op.barriers += lanes.warps
        if (
            lanes.count == machine.live_count
            and not wanted
            and waits
            and number not in self._waiting
            and self.ended is None
        ):
            self._pass(None, lanes, number)
            if brought is not None:
                _finish(op, lanes, brought, machine.geometry.block_of)
            return [(op.index + 1, lanes)]
        self._waiting.setdefault(number, []).append(_Waiting(op, lanes, brought, waits))
        self._wanted[number] = wanted
        if waits:
            machine.parked += lanes.count
        else:
            for check in machine.race_checks:
                check.arrived(lanes, number)
        self._open(number)
        if machine.is_checking and not wanted:
            self._watch(number)
        return [] if waits else [(op.index + 1, lanes)]

    def _watch(self, number: int) -> None:
        """Look out for threads that go around a barrier which others wait at."""
        for waiting in self._waiting.get(number, ()):
            if waiting.waits and not waiting.is_watched:
                self.machine.bypasses.waits(
                    waiting.op, waiting.lanes, self.machine.geometry.block_of
                )
                waiting.is_watched = True

    def lanes_ended(self, lanes: Lanes) -> None:
        """Release the lanes that wait for lanes that have ended."""
        if self.ended is None:
            self.ended = np.zeros(self.machine.geometry.count, np.bool_)
        self.ended[lanes.numbers] = True
        for number in list(self._waiting):
            self._open(number)

    def _open(self, number: int) -> None:
        """Release the blocks whose threads have all arrived."""
        machine, geometry = self.machine, self.machine.geometry
        arrived = np.zeros(geometry.block_count, np.intp)
        for waiting in self._waiting[number]:
            arrived += np.bincount(
                waiting.lanes.pick(geometry.block_of), minlength=geometry.block_count
            )
        wanted = self._wanted[number]
        complete = (arrived > 0) & (arrived >= (wanted or machine.live_in_block))
        if not complete.any():
            return
        released: list[_Waiting] = []
        kept: list[_Waiting] = []
        for waiting in self._waiting.pop(number):
            goes = complete[waiting.lanes.pick(geometry.block_of)]
            for chosen, pile in ((goes, released), (~goes, kept)):
                if chosen.all():
                    pile.append(waiting)
                elif chosen.any():
                    brought = None if waiting.brought is None else waiting.brought[chosen]
                    lanes = waiting.lanes.where(chosen)
                    is_watched = waiting.is_watched
                    pile.append(_Waiting(waiting.op, lanes, brought, waiting.waits, is_watched))
        if kept:
            self._waiting[number] = kept
        if not wanted:
            self._check(released, complete)
        waits = machine.together([w.lanes for w in released if w.waits])
        self._pass(complete, waits, number, [w.lanes for w in released if not w.waits])
        self._reduce(released)
        for waiting in released:
            if waiting.waits:
                machine.parked -= waiting.lanes.count
                if waiting.is_watched:
                    machine.bypasses.goes_on(waiting.op, waiting.lanes)
                machine.add_group(waiting.op.index + 1, waiting.lanes)

    def _reduce(self, released: list[_Waiting]) -> None:
        bringing = [w for w in released if w.brought is not None]
        if not bringing:
            return
        # All lanes of a block count, from wherever they came.
        brought = np.concatenate([w.brought for w in bringing if w.brought is not None])
        block = np.concatenate([w.lanes.pick(self.machine.geometry.block_of) for w in bringing])
        for waiting in bringing:
            _finish(waiting.op, waiting.lanes, brought, self.machine.geometry.block_of, block)

    def _pass(
        self, blocks: Blocks | None, lanes: Lanes, number: int, only_arrived: Sequence[Lanes] = ()
    ) -> None:
        """Let the race checks know that lanes pass a barrier in ``blocks``; in all if None."""
        machine, geometry = self.machine, self.machine.geometry
        machine.progress += 1
        if not machine.race_checks:
            return
        if blocks is None:
            for check in machine.race_checks:
                check.block_barrier(None, lanes)
            return
        mine = lanes.pick(geometry.block_of)
        count = np.bincount(mine, minlength=geometry.block_count)
        whole = blocks & (count == machine.live_in_block)
        takes = ~whole[mine]
        if takes.any():
            part = lanes.where(takes)
            for check in machine.race_checks:
                check.arrived(part, number)
        if only_arrived:
            # Whole blocks learn it too: those who arrived may have ended since.
            others = machine.together(only_arrived)
            block = others.pick(geometry.block_of)
            takes |= np.isin(mine, block)
            unused = others.where(count[block] == 0)
            for check in machine.race_checks if unused.count else ():
                check.unused(unused, number)
        if takes.any():
            part = lanes.where(takes)
            for check in machine.race_checks:
                check.opened(part, number)
        if whole.any():
            is_whole = whole[mine]
            together = lanes if is_whole.all() else lanes.where(is_whole)
            for check in machine.race_checks:
                check.block_barrier(whole, together)

    def _check(self, released: list[_Waiting], complete: Blocks) -> None:
        """Report threads that wait elsewhere, and so never reach this barrier, and threads that
        ended and went around it; the end of a thread opens the barrier (CUDA C++ programming guide:
        a barrier waits for all non-exited threads).
        """
        if not self.machine.is_checking:
            return
        released = sorted(released, key=lambda waiting: waiting.op.index)
        self._check_elsewhere(released)
        if self.ended is not None:
            self._check_ended(released[0].op, complete)

    def _check_elsewhere(self, released: list[_Waiting]) -> None:
        """Report a block whose threads do not all wait at one place."""
        if all(waiting.op is released[0].op for waiting in released):
            return
        block_of = self.machine.geometry.block_of
        for at, waiting in enumerate(released):
            block = waiting.lanes.pick(block_of)
            for other in released[at + 1 :]:
                there = other.lanes.pick(block_of)
                if other.op is waiting.op or not (common := np.isin(block, there)).any():
                    continue
                op, lane = waiting.op, int(waiting.lanes.numbers[common][0])
                mine = block_of[lane]
                op.fault(
                    "barrier",
                    f"waits at this barrier while {np.count_nonzero(there == mine):,} other "
                    f"threads wait at the one in {other.op.where(op.file)}",
                    lane,
                    None,
                    int(np.count_nonzero(block == mine)) - 1,
                )
                return

    def _check_ended(self, op: Op, complete: Blocks) -> None:
        """Report threads that went around a barrier; only note those that ended before it."""
        machine, geometry = self.machine, self.machine.geometry
        assert self.ended is not None
        missing = np.flatnonzero(self.ended & complete[geometry.block_of])
        if not len(missing):
            return
        around = missing[machine.bypasses.went_around(op, missing)]
        gone = around if len(around) else missing
        block = geometry.block_of[gone]
        first, count = int(gone[0]), int(np.count_nonzero(block == block[0]))
        if len(around):
            start = int(block[0]) * geometry.threads
            waits = np.flatnonzero(~self.ended[start : start + geometry.threads])
            op.fault(
                "barrier",
                f"waits at this barrier, and {plural(count, 'thread')} of its block "
                f"{'goes' if count == 1 else 'go'} around it, thread "
                f"{geometry.thread_index(first)}{' the first' if count > 1 else ''}",
                start + int(waits[0]),
                None,
                len(waits) - 1,
            )
            return
        op.note(
            "barrier",
            f"ended before this barrier, as {plural(count, 'thread')} of its block did; the "
            "barrier counts only threads that have not ended, so it opens all the same",
            first,
        )

    def report_stuck(self) -> None:
        """Report who waits for whom, when no lane can run."""
        geometry = self.machine.geometry
        for number, waiting in self._waiting.items():
            first = next((w for w in waiting if w.waits), None)
            if first is None:
                continue
            lane = int(first.lanes.numbers[0])
            block = int(geometry.block_of[lane])
            arrived = sum(
                np.count_nonzero(w.lanes.pick(geometry.block_of) == block) for w in waiting
            )
            wanted = self._wanted[number] or int(self.machine.live_in_block[block])
            first.op.fault(
                "barrier",
                f"waits forever at barrier {number}: {arrived:,} of {wanted:,} threads reach it",
                lane,
            )


def _finish(
    op: Op,
    lanes: Lanes,
    brought: npt.NDArray[Any],
    block_of: Index,
    block: Index | None = None,
) -> None:
    mine = lanes.pick(block_of)
    assert op.reduce is not None
    op.reduce(lanes, brought, mine if block is None else block, mine)
