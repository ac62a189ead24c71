"""Hold large sets of integers as intervals: the sectors that a launch reaches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

CELLS = 1 << 24
PENDING = 1 << 20
"""The number of integers, or intervals, that are kept before they are sorted and joined."""


class Collected:
    """Integers that are added in any order, perhaps repeatedly; each is kept once.

    Parameters
    ----------
    end : int
        All are at least 0, and below it. Where that is not much, they are ticked off in a table.
    """

    def __init__(self, end: int) -> None:
        self._table = np.zeros(end, np.bool_) if end <= CELLS else None
        self._parts: list[Integers] = []
        self._pending = 0
        self._limit = PENDING

    def add(self, some: Integers) -> None:
        """Take some, in any order."""
        if self._table is not None:
            self._table[some] = True
            return
        if len(some) > 1:
            some = some[np.concatenate(([True], some[1:] != some[:-1]))]
        self._parts.append(some)
        self._pending += len(some)
        if self._pending > self._limit:
            self._limit = PENDING + 2 * len(self.sorted())

    def sorted(self) -> Integers:
        """Return all integers, once each, in order."""
        if self._table is not None:
            return np.flatnonzero(self._table)
        if len(self._parts) != 1 or self._pending:
            whole = np.unique(np.concatenate(self._parts)) if self._parts else np.empty(0, np.int64)
            self._parts, self._pending = [whole], 0
        return self._parts[0]


class Union:
    """A union of sums of sets, of which only the intervals are kept."""

    def __init__(self) -> None:
        self._begins: list[Integers] = []
        self._ends: list[Integers] = []
        self._pending = 0
        self._limit = PENDING

    def add(self, some: Integers, moves: Sequence[Integers]) -> None:
        """Take every sum of one of ``some`` and one of each of ``moves``.

        Parameters
        ----------
        some : ndarray of int64
            Sorted, each once.
        moves : sequence of ndarray of int64
        """
        if not len(some):
            return
        last = np.flatnonzero(np.diff(some, append=some[-1] + 2) != 1)
        begins, ends = some[np.concatenate(([0], last[:-1] + 1))], some[last] + 1
        lengths = ends - begins
        for length in np.unique(lengths):
            # First what makes long intervals of many: the smallest steps.
            self._sum(begins[lengths == length], int(length), sorted(moves, key=_step))

    def _sum(self, begins: Integers, length: int, moves: Sequence[Integers]) -> None:
        own = np.zeros(1, np.int64), np.full(1, length, np.int64)
        for each in moves:
            own = joined(*(np.add.outer(np.unique(each), end).reshape(-1) for end in own))
        count = len(own[0])
        for part in np.array_split(begins, max(1, len(begins) * count // PENDING)):
            self._begins.append(np.add.outer(part, own[0]).reshape(-1))
            self._ends.append(np.add.outer(part, own[1]).reshape(-1))
            self._pending += len(part) * count
            if self._pending > self._limit:
                self._join()

    def _join(self) -> None:
        begins, ends = joined(np.concatenate(self._begins), np.concatenate(self._ends))
        self._begins, self._ends, self._pending = [begins], [ends], 0
        self._limit = PENDING + 2 * len(begins)

    def count(self) -> int:
        """Return the number of integers in it."""
        if not self._begins:
            return 0
        self._join()
        return int((self._ends[0] - self._begins[0]).sum())


def joined(begins: Integers, ends: Integers) -> tuple[Integers, Integers]:
    """Return the same set as the fewest intervals, in order.

    Parameters
    ----------
    begins, ends : ndarray of int64
        The intervals' bounds; an interval does not include its end.
    """
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], np.maximum.accumulate(ends[order])
    is_first = np.concatenate(([True], begins[1:] > ends[:-1]))
    return begins[is_first], ends[np.concatenate((is_first[1:], [True]))]


def _step(moves: Integers) -> int:
    """Return the smallest distance between two of them."""
    steps = np.diff(np.unique(moves))
    return int(steps.min()) if len(steps) else 0
