"""Remember the last accesses to each place in shared memory, and find races among them.

Two accesses to one place, of which one writes, are a race if the later one is not ordered after the
earlier (:mod:`~tilewise.devices.emulator.checks.happens_before`). As in FastTrack (C. Flanagan and
S. Freund, PLDI 2009), the last write of each place is remembered, and the reads since then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.checks.happens_before import Clocks, HappensBefore
from tilewise.devices.emulator.checks.log import ATOMIC, READ, VERBS, WRITE
from tilewise.devices.emulator.checks.races import note_same_value
from tilewise.devices.emulator.threads.lanes import Index
from tilewise.devices.emulator.threads.op import Op

_GRANULE = 16
Knows = Callable[[Any, Index], Clocks]
_OTHER_SPACES = frozenset(("global", "local", "param", "const"))


@dataclass
class Access:
    """An access to places in shared memory by an agent, at one of its clocks.

    Attributes
    ----------
    place : ndarray of intp, shape (n,)
        The granules in the batch's storage.
    lane : ndarray of intp, shape (n,) or (1,)
        The lane for the report; for an engine, the thread that gave it the work.
    agent, clock : ndarray, shape (n,) or (1,)
    low, high : int
        The first and the last granule.
    turn : ndarray of intp, shape (n,), optional
        The turn of each access, for accesses made together that count as made one after another.
    """

    place: Index
    lane: Index
    agent: Index
    clock: Clocks
    kind: str
    op: Op
    low: int
    high: int
    turn: Index | None = None

    def pick(self, chosen: npt.NDArray[Any]) -> Access:
        def of(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return x if len(x) == 1 else x[chosen]

        return Access(
            self.place[chosen], of(self.lane), of(self.agent), of(self.clock), self.kind, self.op,
            self.low, self.high, self.turn,
        )  # fmt: skip


@dataclass
class _Meeting:
    """The meeting of an access with an earlier one.

    Attributes
    ----------
    among : dict
        The dictionary that holds the earlier one, under ``key``.
    seen, met : Access
        The earlier access, and the part of it that is met.
    hit : ndarray of bool
        The earlier access's granules that are met.
    at : ndarray of intp
        The later access's granules there.
    """

    among: dict[Any, Access]
    key: Any
    seen: Access
    met: Access
    hit: npt.NDArray[np.bool_]
    at: Index


def _no_fence(kind: str) -> str:
    return f"proxy fence (fence.proxy.async) after the {kind} of a thread"


class LastAccesses(HappensBefore):
    """The last accesses of one batch of blocks, with which each new one is compared."""

    def start(self) -> None:
        """Begin a new batch."""
        super().start()
        self._granule = self._smallest()
        size = len(self.machine.shared.data) // self._granule
        self._writer = np.full(size, -1, np.int32)
        self._written_at = np.zeros(size, np.int32)
        self._written_by = np.zeros(size, np.int32)
        self._mark = np.zeros(size, np.int32)
        # By kind, and by row (see _row).
        self._seen: dict[str, dict[int, dict[Any, Access]]] = {READ: {}, ATOMIC: {}}

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

    def check(
        self,
        access: Access,
        knows: Knows,
        key: Any,
        same: npt.NDArray[np.bool_] | None = None,
        fenced: Knows | None = None,
    ) -> None:
        """Compare an access with the earlier ones at its places, and remember it.

        Parameters
        ----------
        knows : callable
            A function that returns up to which clocks of other agents some of the access's granules
            are ordered.
        key : object
            The key of the access; accesses with the same key touch the same places.
        same : ndarray of bool, optional
            Whether the value written to each granule was there already.
        fenced : callable, optional
            A function for an engine's access that returns up to which clocks of threads there was a
            proxy fence.
        """
        place = access.place
        bad, writer = self._unordered(access, knows)
        if bad.any():
            if same is not None and access.kind == WRITE:
                if (bad & same).any():
                    self._note_same(access, bad & same)
                bad &= ~same
            if bad.any():
                at = int(np.flatnonzero(bad)[0])
                who = self._who(int(writer[at]))
                earlier = self.machine.ops[self._written_by[place[at]]]
                self._report(access, bad, f"barrier after the {WRITE} of {who}", earlier)
        if fenced is not None and (unfenced := self._unfenced(access, knows, fenced)).any():
            at = int(np.flatnonzero(unfenced)[0])
            earlier = self.machine.ops[self._written_by[place[at]]]
            self._report(access, unfenced, _no_fence(WRITE), earlier)
        self._check_seen(access, knows, fenced)
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

    def is_late(self, access: Access, knows: Knows, fenced: Knows) -> npt.NDArray[np.bool_]:
        """Return the granules at which :meth:`check` would report an engine's access.

        The method reports and remembers nothing.
        """
        bad, _ = self._unordered(access, knows)
        bad |= self._unfenced(access, knows, fenced)
        for meeting in self._meetings(access):
            met, at = meeting.met, meeting.at
            late = knows(at, met.agent) < met.clock
            if access.kind == WRITE and met.agent[0] < self._threads:
                late |= fenced(at, met.agent) < met.clock
            bad[at[late]] = True
        return bad

    def _unordered(
        self, access: Access, knows: Knows
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.intp]]:
        """Return the granules whose last write is not ordered before the access; and writers."""
        writer = self._writer[access.place].astype(np.intp)
        if writer.max() < 0:
            return np.zeros(len(writer), np.bool_), writer
        since = self._written_at[access.place]
        return (writer >= 0) & (knows(slice(None), writer) < since), writer

    def _unfenced(self, access: Access, knows: Knows, fenced: Knows) -> npt.NDArray[np.bool_]:
        """Return the granules of an engine's access that lack a needed proxy fence.

        They are the granules that a thread wrote last, ordered before the access.
        """
        writer, since = self._writer[access.place].astype(np.intp), self._written_at[access.place]
        found: npt.NDArray[np.bool_] = (writer >= 0) & (writer < self._threads)
        if found.any():
            thread = np.where(found, writer, 0)
            found &= knows(slice(None), thread) >= since
            found &= fenced(slice(None), thread) < since
        return found

    def _meetings(self, access: Access) -> Iterator[_Meeting]:
        """Yield the reads and the atomics since the last write that an access meets."""
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
            if hits := np.count_nonzero(hit):
                met = seen if hits == len(hit) else seen.pick(hit)
                yield _Meeting(among, key, seen, met, hit, which[hit].astype(np.intp) - 1)
        mark[place] = 0

    def _check_seen(self, access: Access, knows: Knows, fenced: Knows | None) -> None:
        """Compare an access with the reads and the atomics since the last write.

        An engine may write what threads read or wrote only after a proxy fence.
        """
        left: list[tuple[list[int], dict[Any, Access], Access]] = []
        for meeting in self._meetings(access):
            seen, met, at = meeting.seen, meeting.met, meeting.at
            who = self._who(int(met.agent[0]))
            late = knows(at, met.agent) < met.clock
            missing = f"barrier after the {seen.kind} of {who}"
            if (
                fenced is not None
                and access.kind == WRITE
                and not late.any()
                and met.agent[0] < self._threads
            ):
                late = fenced(at, met.agent) < met.clock
                missing = _no_fence(seen.kind)
            if late.any():
                bad = np.zeros(len(access.place), np.bool_)
                bad[at[late if len(late) > 1 else slice(None)]] = True
                self._report(access, bad, missing, seen.op)
            if access.kind == WRITE:
                # An access ordered after this write is also ordered after those before it.
                del meeting.among[meeting.key]
                if not meeting.hit.all():
                    turns = [] if access.turn is None else np.unique(access.turn[at])[::-1].tolist()
                    left.append((turns, meeting.among, seen.pick(~meeting.hit)))
        # Copies made together would, each in its turn, have put the rest of these last.
        for _, among, rest in sorted(left, key=lambda entry: entry[0]):
            among[object()] = rest

    def _row(self, access: Access) -> int:
        """Return the only row of the batch that an access touches; -1 if there are several."""
        size = self.machine.shared.pitch // self._granule
        row = access.low // size
        return row if row == access.high // size else -1

    def _note_same(self, access: Access, which: npt.NDArray[np.bool_]) -> None:
        first = np.flatnonzero(which)[0]
        at = int(access.place[first])
        earlier, op, machine = int(self._written_by[at]), access.op, self.machine
        if earlier == op.index:
            return
        place = machine.shared_place(
            at * self._granule % machine.shared.pitch, op.element, op.width
        )
        note_same_value(op, machine.ops[earlier], place, int(access.lane[first]))

    def _report(
        self, access: Access, bad: npt.NDArray[np.bool_], missing: str, earlier: Op
    ) -> None:
        op, machine = access.op, self.machine
        which = np.flatnonzero(bad)
        at = int(which[0])
        offset = int(access.place[at]) * self._granule % machine.shared.pitch
        place = machine.shared_place(offset, op.element, op.width)
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
