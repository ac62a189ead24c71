"""Replay a log, and find each access that no order puts after an earlier conflicting one.

For each place the last write is kept, and the reads since that write. As in FastTrack (C. Flanagan
and S. Freund, PLDI 2009), one read represents all reads that are ordered before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.checks.clocks import ClassClocks, Clocks
from tilewise.devices.emulator.checks.log import (
    ARRIVAL,
    ATOMIC,
    CONFLICTS,
    FLAG,
    ISSUE,
    POLL,
    WRITE,
    Access,
    Item,
    Sync,
)
from tilewise.devices.emulator.threads.lanes import Index

_NOBODY, _SEVERAL = -1, -2


@dataclass(frozen=True)
class Conflict:
    """A conflict between lanes of an access and an earlier access.

    Attributes
    ----------
    later, earlier : Access
    lane : int
        The first of the later access's lanes.
    granule : int
        The granule at which it meets the earlier access.
    others : int
        The number of other lanes that meet it.
    earlier_lane : int
        The lane of the earlier access; -1 if it was one of several lanes.
    is_same : bool
        Whether all of them write the value that was there.
    """

    later: Access
    earlier: Access
    lane: int
    granule: int
    others: int
    earlier_lane: int
    is_same: bool = False


class _Table:
    """The last accesses of one kind to each place."""

    def __init__(self, size: int, kind: str) -> None:
        self.is_strong = kind in (ATOMIC, FLAG, POLL)
        self.lane = np.full(size, _NOBODY, np.int32)
        self.epoch: Clocks = np.zeros(size, np.int32)
        self.number = np.zeros(size, np.int32)
        # For places that several lanes read, all accesses, the last one of each item.
        self.all: dict[Item, tuple[Index, Index, Clocks, int]] = {}

    def put(self, place: Index, lane: Index, epoch: Clocks | None, number: int) -> None:
        self.lane[place], self.number[place] = lane, number
        if epoch is not None:
            self.epoch[place] = epoch


class Replay:
    """The replay of one log.

    Parameters
    ----------
    log : sequence of items
    same : mapping
        By a write's position in the log, the lanes that wrote the value that was there.
    granule : int
        The bytes of a granule.
    places : int or ndarray of intp
        The number of granules of the memory; or the sorted numbers of those that are accessed.
    block_of : ndarray of intp
        The block of each lane, or zeros, as in :class:`ClassClocks`.
    report : callable
        A function that is called with each :class:`Conflict`.
    """

    def __init__(
        self,
        log: Sequence[Item],
        same: dict[int, npt.NDArray[np.bool_]],
        granule: int,
        places: int | npt.NDArray[np.intp],
        block_of: Index,
        report: Callable[[Conflict], None],
    ) -> None:
        self._log, self._same, self._granule = log, same, granule
        self._places = None if isinstance(places, int) else places
        self._size = places if isinstance(places, int) else len(places)
        self._report = report
        self._clocks = (
            ClassClocks(log, block_of) if any(isinstance(item, Sync) for item in log) else None
        )
        self._tables: dict[str, _Table] = {}
        self._mark: Index = np.zeros(0, np.intp)
        self._on_the_way: npt.NDArray[np.int32] | None = None
        self.is_clean = True

    def run(self) -> bool:
        """Replay the log; return whether no conflict was found, not even one of equal values."""
        for number, item in enumerate(self._log):
            if isinstance(item, Sync):
                assert self._clocks is not None
                self._clocks.pass_(item)
            elif len(item.lanes):
                self._access(number, item)
        return self.is_clean

    def _table(self, kind: str) -> _Table:
        found = self._tables.get(kind)
        if found is None:
            found = self._tables[kind] = _Table(self._size, kind)
        return found

    def _access(self, number: int, access: Access) -> None:
        place, lane = access.granules(self._granule)
        if self._places is not None:
            place = np.searchsorted(self._places, place)
        if access.is_in_turn and not self._is_ordered(access, place, lane):
            for one in access.in_turn():
                self._access(number, one)
            return
        kind = WRITE if access.kind in (ISSUE, ARRIVAL) else access.kind
        self._check_copies(number, access, place, lane)
        for other in CONFLICTS[kind]:
            if other in self._tables:
                self._compare(number, access, self._tables[other], place, lane)
        epoch = None if self._clocks is None else self._clocks.epochs(lane)
        table = self._table(kind)
        if kind == WRITE:
            table.put(place, lane, epoch, number)
            for earlier, seen in self._tables.items():
                # An access ordered after this write is also ordered after those before it.
                if earlier != WRITE:
                    seen.lane[place] = _NOBODY
            return
        seen_lane = table.lane[place]
        is_first = (seen_lane == _NOBODY) | (seen_lane == lane)
        if self._clocks is not None and epoch is not None:
            table.all[access] = place, lane, epoch, number
            rest = np.flatnonzero(~is_first & (seen_lane != _SEVERAL))
            is_first[rest] = self._clocks.ordered(
                lane[rest], seen_lane[rest].astype(np.intp), table.epoch[place[rest]],
                table.is_strong,
            )  # fmt: skip
        table.put(place, lane, epoch, number)
        several = place[~is_first | (table.lane[place] != lane)]
        table.lane[several] = _SEVERAL

    def _is_ordered(self, access: Access, place: Index, lane: Index) -> bool:
        """Return whether an access conflicts with nothing, so that its lanes need no turns."""
        if self._on_the_way is not None and self._on_the_way[place].any():
            return False
        tables = (self._tables[x] for x in CONFLICTS[access.kind] if x in self._tables)
        return not any(self._unordered(table, place, lane)[0].any() for table in tables)

    def _compare(
        self, number: int, access: Access, table: _Table, place: Index, lane: Index
    ) -> None:
        """Compare an access with the earlier ones of one kind."""
        bad, which = self._unordered(table, place, lane)
        where = np.flatnonzero(bad)
        if not len(where):
            return
        seen = table.lane[place]
        earlier = self._log[int(which[where[0]])]
        assert isinstance(earlier, Access)
        if table is self._tables.get(WRITE) and access.kind == WRITE:
            same = self._same.get(number)
            if same is not None:
                is_same = np.repeat(same, len(lane) // len(same))[where]
                if is_same.any():
                    self._found(access, earlier, place, lane, seen, where[is_same], True)
                where = where[~is_same]
                if not len(where):
                    return
                earlier = self._log[int(which[where[0]])]
                assert isinstance(earlier, Access)
        self._found(access, earlier, place, lane, seen, where)

    def _unordered(
        self, table: _Table, place: Index, lane: Index
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int32]]:
        """Compare lanes with the last accesses at their places; see :meth:`_compare_all`."""
        seen, which = table.lane[place], table.number[place]
        bad = (seen != _NOBODY) & (seen != lane)
        if not bad.any() or self._clocks is None:
            return bad, which
        one = np.flatnonzero(bad & (seen >= 0))
        bad[one] = ~self._clocks.ordered(
            lane[one], seen[one].astype(np.intp), table.epoch[place[one]], table.is_strong
        )
        several = np.flatnonzero(seen == _SEVERAL)
        if len(several):
            bad[several], which[several] = self._compare_all(table, place[several], lane[several])
        return bad, which

    def _compare_all(
        self, table: _Table, place: Index, lane: Index
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int32]]:
        """Compare with all accesses to places that several lanes reach.

        Returns
        -------
        bad : ndarray of bool, shape (len(place),)
            Whether an earlier access is not ordered before this lane's.
        which : ndarray of int32, shape (len(place),)
            The position in the log of such an earlier access.
        """
        assert self._clocks is not None
        if not len(self._mark):
            self._mark = np.zeros(self._size, np.intp)
        bad, which = np.zeros(len(place), np.bool_), np.zeros(len(place), np.int32)
        # The lanes of a class have one clock, so two of them stand for all at one place: an
        # earlier access that is one of theirs is then compared with the other.
        key = self._clocks.class_of[lane] * self._size + place
        last = len(key) - 1 - np.unique(key[::-1], return_index=True)[1]
        left = np.union1d(np.unique(key, return_index=True)[1], last)
        rounds = []
        while len(left):
            self._mark[place[left]] = left + 1
            is_now = self._mark[place[left]] == left + 1
            rounds.append(left[is_now])
            left = left[~is_now]
        for chosen in rounds:
            self._mark[place[chosen]] = chosen + 1
            for where, earlier, epoch, number in table.all.values():
                at = self._mark[where] - 1
                hit = np.flatnonzero(at >= 0)
                at = at[hit]
                mine = lane[at]
                late = (earlier[hit] != mine) & ~self._clocks.ordered(
                    mine, earlier[hit], epoch[hit], table.is_strong
                )
                bad[at[late]], which[at[late]] = True, number
        self._mark[place] = 0
        return bad, which

    def _check_copies(self, number: int, access: Access, place: Index, lane: Index) -> None:
        """Report uses of a place that a copy is on its way to, even by its own thread."""
        if access.kind == ISSUE:
            if self._on_the_way is None:
                self._on_the_way = np.zeros(self._size, np.int32)
        elif self._on_the_way is None:
            return
        way = self._on_the_way
        if access.kind == ARRIVAL:
            way[place] = 0
            return
        where = np.flatnonzero(way[place])
        if len(where):
            copy = self._log[int(way[place[where[0]]]) - 1]
            assert isinstance(copy, Access)
            self._found(access, copy, place, lane, np.full(len(place), _SEVERAL), where)
        if access.kind == ISSUE:
            way[place] = number + 1

    def _found(
        self, access: Access, earlier: Access, place: Index, lane: Index,
        seen: npt.NDArray[np.integer[Any]], where: Index, is_same: bool = False,
    ) -> None:  # fmt: skip
        self.is_clean = False
        at = int(where[0])
        others = len(np.unique(lane[where])) - 1
        whose = max(int(seen[at]), -1)
        self._report(
            Conflict(access, earlier, int(lane[at]), int(place[at]), others, whose, is_same)
        )
