"""The log of a race check: accesses, and what orders threads, in their order.

If the same thing happens again, the log gets the same item again. So two logs in which the same
things happened are equal, and a log that was found clean is recognised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.memory.patterns import SharedPattern
from tilewise.devices.emulator.threads.lanes import Geometry, Index
from tilewise.devices.emulator.threads.op import Op

READ, WRITE, ATOMIC = "read", "write", "atomic access"
ISSUE, ARRIVAL = "asynchronous copy", "arrival of a copy"
"""The kinds of a ``cp.async`` that begins, and of the arrival of what it copied; between them
nothing may use the place.
"""
POLL, FLAG = "volatile read", "volatile write"
"""The kinds of accesses that may run beside each other and beside atomics: ``volatile``,
``relaxed``, ``acquire``, ``release``.
"""
CONFLICTS: dict[str, tuple[str, ...]] = {
    READ: (WRITE, ATOMIC, FLAG),
    POLL: (WRITE,),
    ATOMIC: (WRITE, READ),
    FLAG: (WRITE, READ),
    WRITE: (WRITE, ATOMIC, FLAG, READ, POLL),
}
"""The kinds of earlier accesses that each kind of access races with."""

RELEASE, ACQUIRE, FENCE, CLEAR = "release", "acquire", "fence", "clear"
BLOCK, WARP, ADDRESS, MBARRIER, CLUSTER = (number << 60 for number in range(1, 6))
"""The kinds of the variables that order threads: a barrier of a block, of a warp; an address of
global memory; an mbarrier; a cluster's barrier. The number below the kind tells apart variables of
one kind.
"""
VERBS = {
    READ: "reads", POLL: "reads", WRITE: "writes", FLAG: "writes", ATOMIC: "changes atomically",
    ISSUE: "copies to", ARRIVAL: "copies to",
}  # fmt: skip

Names = npt.NDArray[np.int64]
"""The variables by which an instruction's lanes are ordered, one for each lane."""
_MOST = 4096
_ITEM = 512  # the lanes whose accesses are replayed in the time that an item takes by itself
_MOST_REPLAYED = 1 << 21  # such lanes, and _ITEM for each item: a second at most
_WORD = 4


@dataclass(frozen=True, eq=False)
class Access:
    """The places at which the lanes of an instruction access memory.

    Attributes
    ----------
    lanes : ndarray of intp, shape (n,)
    units : ndarray of intp, shape (n,)
        Each lane's address, divided by the access's width.
    width : int
        The width in bytes.
    pattern : SharedPattern or None
        The pattern that this was made from, kept alive so that its ``id`` stays its own.
    is_in_turn : bool
        Whether its lanes count as coming one after another.
    """

    lanes: Index
    units: Index
    kind: str
    op: Op
    width: int
    pattern: SharedPattern | None = None
    is_in_turn: bool = False

    def in_turn(self) -> list[Access]:
        """Return the accesses, of one lane each, that this one represents."""
        if not self.is_in_turn:
            return [self]
        starts = np.flatnonzero(self.lanes[1:] != self.lanes[:-1]) + 1
        both = zip(np.split(self.lanes, starts), np.split(self.units, starts), strict=True)
        return [Access(lanes, units, self.kind, self.op, self.width) for lanes, units in both]

    def granules(self, size: int) -> tuple[Index, Index]:
        """Return the granules that are touched, and for each of them the lane that touches it."""
        pieces = max(1, self.width // size)
        if pieces == 1:
            return self.units, self.lanes
        places = (self.units[:, None] * pieces + np.arange(pieces)).reshape(-1)
        return places, np.repeat(self.lanes, pieces)

    def part(self, chosen: npt.NDArray[np.bool_]) -> Access:
        """Return the access of some of its lanes."""
        return Access(self.lanes[chosen], self.units[chosen], self.kind, self.op, self.width)


@dataclass(frozen=True, eq=False)
class Sync:
    """A release, an acquisition or a fence of lanes, by variables.

    Attributes
    ----------
    kind : str
        :data:`RELEASE`, :data:`ACQUIRE` or :data:`FENCE`; or :data:`CLEAR` if no lane acquires what
        lanes released.
    names : ndarray of int64, shape (lanes,)
        The variable of each lane.
    is_fenced : bool
        Whether a release covers only what a lane did before its last fence.
    clears : bool
        Whether the variables are empty after an acquisition.
    """

    kind: str
    lanes: Index
    names: Names
    is_fenced: bool = False
    clears: bool = False

    def part(self, chosen: npt.NDArray[np.bool_]) -> Sync:
        """Return the same for some of the lanes."""
        return Sync(self.kind, self.lanes[chosen], self.names[chosen], self.is_fenced, self.clears)


Item = Access | Sync


def beginning(log: Sequence[Item]) -> list[Item]:
    """Return a log's first items, which are replayed where a launch is cut.

    The log of an endless loop is long, and all of its iterations are alike.
    """
    taken = 0
    for number, item in enumerate(log):
        taken += _ITEM + len(item.lanes)
        if taken > _MOST_REPLAYED:
            return list(log[:number])
    return list(log)


def granule_of(log: Sequence[Item]) -> int:
    """Return the width of the narrowest access, at most 4 bytes."""
    return min(_WORD, *(item.width for item in log if isinstance(item, Access)))


class Items:
    """The items of logs; a repeated event gets the item that it got before."""

    def __init__(self) -> None:
        self._accesses: dict[tuple[int, str], Access] = {}
        self._syncs: dict[tuple[str, bytes, bytes], Sync] = {}
        self._blocks: dict[Item, Index] = {}

    def forget(self) -> None:
        """Forget all items, because another geometry has other lanes."""
        self._accesses.clear()
        self._syncs.clear()
        self._blocks.clear()

    def access(self, pattern: SharedPattern, kind: str, op: Op) -> Access:
        """Return the access of a pattern."""
        key = (id(pattern), kind)
        found = self._accesses.get(key)
        if found is None:
            if len(self._accesses) == _MOST:
                self.forget()
            lanes, width = pattern.lanes.numbers, op.width
            found = Access(lanes, pattern.gather, kind, op, width, pattern)
            self._accesses[key] = found
        return found

    def sync(self, kind: str, lanes: Index, names: Names) -> Sync:
        """Return a release, an acquisition or a fence; an acquisition empties its variables."""
        key = (kind, lanes.tobytes(), names.tobytes())
        found = self._syncs.get(key)
        if found is None:
            if len(self._syncs) == _MOST:
                self.forget()
            found = self._syncs[key] = Sync(kind, lanes.copy(), names, clears=kind == ACQUIRE)
        return found

    def blocks(self, item: Item, geometry: Geometry) -> Index:
        """Return the numbers of the blocks that an item's lanes belong to."""
        found = self._blocks.get(item)
        if found is None:
            found = self._blocks[item] = np.unique(geometry.block_of[item.lanes])
        return found


def warp_names(warps: npt.NDArray[np.integer[Any]], masks: npt.NDArray[np.uint64]) -> Names:
    """Return for each lane, by its warp, the variable at which it meets the lanes with its mask."""
    return WARP + (warps.astype(np.int64) << 32) + masks.astype(np.int64)


def block_names(blocks: npt.NDArray[np.integer[Any]], number: int) -> Names:
    """Return for each lane, by its block, the variable at which its block meets at a barrier."""
    return BLOCK + (number << 40) + blocks.astype(np.int64)
