"""Find threads that go around a barrier which others wait at (PTX ISA 9.7.13.1).

A barrier waits only for threads that have not ended, so it may open although a thread never came
to it. A thread may end before a barrier. But a thread that went on with instructions behind the
barrier and then ended has missed it.

An instruction is behind a barrier if it can be reached from the barrier, if every way from it back
to the barrier crosses another barrier, and if it does more than end the thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.ptx.flow import ENDS, following
from tilewise.devices.emulator.threads.lanes import Index, Lanes
from tilewise.devices.emulator.threads.op import Op

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine


@dataclass
class _Watched:
    """The facts about a barrier that lanes wait at.

    Attributes
    ----------
    group_of : ndarray of intp
        The block or the warp whose lanes wait for each other, by lane.
    waiting : ndarray of intp
        The number of waiting lanes, by group.
    behind : ndarray of intp
        The number of instructions before each place in the program that are behind the barrier.
    around : ndarray of bool
        Whether each lane ran an instruction behind the barrier while others of its group waited.
    """

    group_of: Index
    waiting: Index
    behind: Index
    around: npt.NDArray[np.bool_]


class Bypasses:
    """Find the lanes of a batch that go around barriers.

    Attributes
    ----------
    is_watching : bool
        Whether lanes wait, so that :meth:`ran` must be told what the others run.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._behind: dict[int, Index] = {}
        self._next: list[list[int]] = []
        self.start()

    def start(self) -> None:
        """Start a new batch."""
        self._watched: dict[Op, _Watched] = {}
        self.is_watching = False

    def waits(self, op: Op, lanes: Lanes, group_of: Index) -> None:
        """Take note that lanes wait at a barrier for others of their groups."""
        watched = self._watched.get(op)
        if watched is None:
            geometry = self.machine.geometry
            watched = self._watched[op] = _Watched(
                group_of, np.zeros(int(group_of[-1]) + 1, np.intp), self._count_behind(op.index),
                np.zeros(geometry.count, np.bool_),
            )  # fmt: skip
        group = lanes.pick(group_of)
        fresh = watched.waiting == 0
        watched.waiting += np.bincount(group, minlength=len(fresh))
        begins = fresh & (watched.waiting > 0)
        watched.around &= ~begins[group_of]
        self.is_watching = True

    def goes_on(self, op: Op, lanes: Lanes) -> None:
        """Take note that lanes wait no longer."""
        watched = self._watched[op]
        group = lanes.pick(watched.group_of)
        watched.waiting -= np.bincount(group, minlength=len(watched.waiting))
        self.is_watching = any(other.waiting.any() for other in self._watched.values())

    def ran(self, first: int, last: int, lanes: Lanes) -> None:
        """Take note that lanes run the instructions from ``first`` up to ``last``."""
        for watched in self._watched.values():
            if watched.behind[last + 1] > watched.behind[first]:
                numbers = lanes.numbers
                watched.around[numbers[watched.waiting[watched.group_of[numbers]] > 0]] = True

    def went_around(self, op: Op, lanes: Index) -> npt.NDArray[np.bool_]:
        """Return which of these lanes went around a barrier."""
        watched = self._watched.get(op)
        return np.zeros(len(lanes), np.bool_) if watched is None else watched.around[lanes]

    # The instructions behind a barrier

    def _count_behind(self, barrier: int) -> Index:
        found = self._behind.get(barrier)
        if found is None:
            if not self._next:
                self._next = following(self.machine.program)
            behind = self._reach(barrier) & ~self._before(barrier) & ~self._endings()
            found = self._behind[barrier] = np.r_[0, np.cumsum(behind)].astype(np.intp)
        return found

    def _reach(self, barrier: int) -> npt.NDArray[np.bool_]:
        """Find the instructions that can be reached from a barrier."""
        found = np.zeros(len(self.machine.ops), np.bool_)
        queue = list(self._next[barrier])
        while queue:
            at = queue.pop()
            if not found[at]:
                found[at] = True
                queue += self._next[at]
        return found

    def _before(self, barrier: int) -> npt.NDArray[np.bool_]:
        """Find the instructions from which a barrier can be reached with no other one between."""
        previous: list[list[int]] = [[] for _ in self._next]
        for at, places in enumerate(self._next):
            for place in places:
                previous[place].append(at)
        found = np.zeros(len(self.machine.ops), np.bool_)
        found[barrier] = True
        queue = list(previous[barrier])
        while queue:
            at = queue.pop()
            if not found[at] and not self._is_barrier(at):
                found[at] = True
                queue += previous[at]
        return found

    def _is_barrier(self, at: int) -> bool:
        instruction = self.machine.ops[at].instruction
        return instruction.opcode in ("bar", "barrier") and "warp" not in instruction.modifiers

    def _endings(self) -> npt.NDArray[np.bool_]:
        """Find the instructions that only end the thread."""
        ops = self.machine.ops
        found = np.array(
            [op.instruction.opcode in ENDS and op.instruction.predicate is None for op in ops]
        )
        for at in reversed(range(len(ops))):
            instruction = ops[at].instruction
            if instruction.opcode == "bra" and instruction.predicate is None:
                found[at] = found[self._next[at]].all()
        return found
