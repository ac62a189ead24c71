"""The stages that asynchronous copies fill in shared memory, and who fills and reads them.

A stage is filled together by a group of ``cp.async``, by the copies up to an arrival at an
mbarrier, or by the bulk copies that an mbarrier counts until its parity flips. Copies to the same
bytes fill the same stage again; several stages are a ring.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.recording.events import NOWHERE, Event

WARP, WARPGROUP, PIECE = 32, 128, 16
MOST_STAGES = 64
Offsets = npt.NDArray[np.int64]


@dataclass
class Fill:
    """One filling of a stage.

    Attributes
    ----------
    begin, full : int
        The steps in which the first copy begins, and in which the last one has arrived.
    read : list of int
        The first step that reads it, and the one in which the last read is known to be over; empty
        if nothing reads it.
    writers, readers : set of int
        The warps. A writer of -1 is another block of the cluster.
    """

    begin: int
    full: int
    read: list[int] = field(default_factory=list)
    writers: set[int] = field(default_factory=set)
    readers: set[int] = field(default_factory=set)

    def reads(self, first: int, last: int, warps: Iterable[int]) -> None:
        self.read = [min([first, *self.read[:1]]), max([last, *self.read[1:]])]
        self.readers.update(warps)

    def to_dict(self) -> dict[str, Any]:
        return {
            "begin": self.begin, "full": self.full, "read": self.read,
            "writers": sorted(self.writers), "readers": sorted(self.readers),
        }  # fmt: skip


@dataclass
class Stage:
    """The bytes of a stage in shared memory, as 16-byte pieces, and its fillings."""

    pieces: set[int]
    fills: list[Fill]

    def to_dict(self) -> dict[str, Any]:
        return {
            "bytes": [[first * PIECE, count * PIECE] for first, count in _spans(self.pieces)],
            "fills": [each.to_dict() for each in self.fills],
        }


class Stages:
    """A search for the stages in one block's events.

    Parameters
    ----------
    events : sequence of Event
        The events, in order.
    steps : sequence of int
        The step of each event.
    """

    def __init__(self, events: Sequence[Event], steps: Sequence[int]) -> None:
        self.stages: list[Stage] = []
        self._stage_of: dict[int, int] = {}  # by piece
        self._live: set[int] = set()  # pieces that nothing has stored to since
        self._filled: dict[tuple[str, int, int], int] = {}  # stages, by what fills them together
        self._committed: dict[tuple[str, int], int] = {}  # groups, by engine and warp
        self._multiplied: dict[int, list[tuple[int, Fill]]] = {}  # group and what it reads, by warp
        for event, step in zip(events, steps, strict=True):
            self._see(event, step)

    def to_list(self) -> list[dict[str, Any]]:
        """Return plain data; empty if there are so many stages that they are not a ring."""
        found = sorted(self.stages, key=lambda stage: min(stage.pieces))
        return [] if len(found) > MOST_STAGES else [each.to_dict() for each in found]

    def _see(self, event: Event, step: int) -> None:
        if event.is_copy and event.target is not None:
            self._begins(event, step)
        elif event.move is not None:
            if not event.move.is_store:
                self._moved(event, step)
        elif event.sync is not None:
            self._synchronises(event, step)
        elif not self._live:
            return
        elif event.is_copy and event.kind == "store" and event.address is not None:
            for fill in self._fills(_touched(event.address, event.width)):
                fill.full = step
        elif (event.kind, event.space) == ("store", "shared") and event.address is not None:
            self._live -= _touched(event.address, event.width)
        elif event.kind == "load" and event.space == "shared" and event.address is not None:
            there = event.address != NOWHERE
            warps = set((event.threads[there] // WARP).tolist())
            for fill in self._fills(_touched(event.address[there], event.width)):
                fill.reads(step, step, warps)
        elif event.pieces is not None:
            self._multiplies(event, step)

    def _begins(self, event: Event, step: int) -> None:
        """Begin copies of ``cp.async``; those of one group of a warp fill one stage."""
        assert event.target is not None
        threads, target = event.target
        for warp in np.unique(threads // WARP).tolist():
            pieces = _touched(target[threads // WARP == warp], event.width)
            group = self._committed.get(("cp.async", warp), 0)
            self._fill(("cp.async", group, 0), pieces, step, warp)

    def _moved(self, event: Event, step: int) -> None:
        """Record a bulk copy; those before one flip of an mbarrier's parity fill one stage."""
        assert event.move is not None
        move = event.move
        pieces = set(range(move.offset // PIECE, -(-(move.offset + move.size) // PIECE)))
        key = ("mbarrier", -1 if move.barrier is None else move.barrier, move.flips)
        warp = -1 if move.is_from_outside else int(event.threads[0]) // WARP
        fill = self._fill(key, pieces, step, warp)
        fill.full = step

    def _fill(self, key: tuple[str, int, int], pieces: set[int], step: int, warp: int) -> Fill:
        """Record a copy that begins: it continues a filling, or begins one."""
        number = self._filled.get(key, -1)
        if number < 0:
            number = min((self._stage_of[x] for x in pieces if x in self._stage_of), default=-1)
            if number < 0:
                number = len(self.stages)
                self.stages.append(Stage(set(), []))
            self._filled[key] = number
            self.stages[number].fills.append(Fill(step, step))
        stage = self.stages[number]
        stage.pieces |= pieces
        self._live |= pieces
        for piece in pieces:
            self._stage_of.setdefault(piece, number)
        stage.fills[-1].writers.add(warp)
        return stage.fills[-1]

    def _fills(self, pieces: set[int]) -> list[Fill]:
        """Return the last fillings of the stages that some pieces belong to."""
        found = {self._stage_of[piece] for piece in pieces & self._live}
        return [self.stages[number].fills[-1] for number in sorted(found)]

    def _multiplies(self, event: Event, step: int) -> None:
        """Record that ``wgmma`` reads until something has waited for its group."""
        assert event.pieces is not None
        warps = np.unique(event.threads // WARPGROUP) * (WARPGROUP // WARP)
        for at, first in enumerate(warps.tolist()):
            pieces = {int(x) // PIECE for each in event.pieces.values() for x in each[at]}
            group = self._committed.get(("wgmma", first), 0)
            for fill in self._fills(pieces):
                fill.reads(step, step, range(first, first + WARPGROUP // WARP))
                self._multiplied.setdefault(first, []).append((group, fill))

    def _synchronises(self, event: Event, step: int) -> None:
        assert event.sync is not None
        sync = event.sync
        if sync.action == "commit" or sync.is_of_copies:
            for warp in np.unique(event.threads // WARP).tolist():
                key = "cp.async" if sync.is_of_copies else sync.on, warp
                self._committed[key] = self._committed.get(key, 0) + 1
        elif (sync.on, sync.action) == ("wgmma", "wait"):
            for warp in np.unique(event.threads // WARP).tolist():
                done = self._committed.get(("wgmma", warp), 0) - (sync.allowed or 0)
                waiting = self._multiplied.pop(warp, [])
                for group, fill in waiting:
                    if group < done:
                        fill.reads(step, step, ())
                if left := [each for each in waiting if each[0] >= done]:
                    self._multiplied[warp] = left


def _touched(address: Offsets, width: int) -> set[int]:
    """Return the 16-byte pieces that accesses touch."""
    first, last = address // PIECE, (address + max(width, 1) - 1) // PIECE
    return {x for low, high in zip(first.tolist(), last.tolist(), strict=True)
            for x in range(low, high + 1)}  # fmt: skip


def _spans(pieces: set[int]) -> list[tuple[int, int]]:
    """Return the runs of consecutive numbers, each as the first number and the count."""
    each = np.array(sorted(pieces))
    starts = np.flatnonzero(np.diff(each, prepend=each[0] - 2) != 1)
    ends = np.append(starts[1:], len(each))
    return [(int(each[i]), int(j - i)) for i, j in zip(starts, ends, strict=True)]
