"""Find which threads of a log are ordered before which (happens-before), exactly, by classes.

Threads that always meet others together are of one class. A block that only uses
``__syncthreads()`` is one class; with full-warp ``__syncwarp()`` each warp is a class. A vector
clock (C. Fidge, 1988; F. Mattern, 1989) of each class says up to which of its releases each other
class is ordered before it. Two threads of one class are ordered where their class has met since.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.checks.log import ACQUIRE, CLEAR, FENCE, RELEASE, Item, Sync
from tilewise.devices.emulator.threads.lanes import Index

Clocks = npt.NDArray[np.int32]
_MOST_BYTES = 512 << 20


class TooManyClassesError(Exception):
    """The error that clocks would take more than :data:`_MOST_BYTES`."""


class ClassClocks:
    """The clocks of a log's lanes, while a replay goes through the log.

    Parameters
    ----------
    log : sequence
    block_of : ndarray of intp, shape (lanes,)
        The block of each lane; lanes of different blocks are never ordered. Zeros, if lanes of
        different blocks may be ordered.

    Attributes
    ----------
    class_of : ndarray of intp, shape (lanes,)
        The number of each lane's class.
    epoch : ndarray of int32, shape (classes,)
        The clock of each class: its number of releases, plus 1.

    Raises
    ------
    TooManyClassesError
        If there are too many classes, or too many variables that they synchronise by.
    """

    def __init__(self, log: Sequence[Item], block_of: Index) -> None:
        syncs = list(dict.fromkeys(item for item in log if isinstance(item, Sync)))
        self.class_of = _classes(syncs, block_of)
        count = int(self.class_of.max()) + 1
        block = np.zeros(count, np.intp)
        block[self.class_of] = block_of
        first = np.searchsorted(block, np.arange(block.max() + 1))
        self._column = np.arange(count) - first[block]
        width = int(self._column.max()) + 1
        names = np.unique(np.concatenate([sync.names for sync in syncs]))
        self._has_fences = any(sync.kind == FENCE or sync.is_fenced for sync in syncs)
        tables = 3 if self._has_fences else 1
        if tables * (count + len(names)) * width * 4 > _MOST_BYTES:
            raise TooManyClassesError(
                f"{count:,} threads or groups of threads synchronise on their own, by "
                f"{len(names):,} variables"
            )
        self.epoch: Clocks = np.ones(count, np.int32)
        self._known: Clocks = np.zeros((count, width), np.int32)
        self._left: Clocks = np.zeros((len(names), width), np.int32)
        if self._has_fences:
            self._fenced: Clocks = np.zeros_like(self._known)
            self._left_fenced: Clocks = np.zeros_like(self._left)
            # The order of atomics and volatile accesses, which need no fence themselves.
            self._seen: Clocks = np.zeros_like(self._known)
            self._left_seen: Clocks = np.zeros_like(self._left)
        self._of = {sync: self._pairs(sync, names) for sync in syncs}

    def _pairs(self, sync: Sync, names: npt.NDArray[np.int64]) -> tuple[Index, Index]:
        """Return the classes that take part, and the variables that they use."""
        at = np.searchsorted(names, sync.names)
        pairs = np.unique(self.class_of[sync.lanes] * len(names) + at)
        return pairs // len(names), pairs % len(names)

    def epochs(self, lanes: Index) -> Clocks:
        """Return the clocks of accesses that these lanes make now."""
        return self.epoch[self.class_of[lanes]]

    def ordered(
        self, lanes: Index, earlier: Index, epoch: Clocks, is_strong: bool = False
    ) -> npt.NDArray[np.bool_]:
        """Return whether what ``earlier`` lanes did at a clock comes before what ``lanes`` do now.

        If they did it atomically or by volatile accesses (``is_strong``), it needs no fence.
        """
        one, other = self.class_of[lanes], self.class_of[earlier]
        known = self._seen if is_strong and self._has_fences else self._known
        found: npt.NDArray[np.bool_] = known[one, self._column[other]] >= epoch
        return found

    def pass_(self, sync: Sync) -> None:
        """Advance past an item that orders lanes."""
        classes, at = self._of[sync]
        if sync.kind == ACQUIRE:
            np.maximum.at(self._known, classes, self._left[at])
            if self._has_fences:
                np.maximum.at(self._fenced, classes, self._left_fenced[at])
                np.maximum.at(self._seen, classes, self._left_seen[at])
        if sync.clears or sync.kind == CLEAR:
            self._left[at] = 0
            if self._has_fences:
                self._left_fenced[at] = self._left_seen[at] = 0
        if sync.kind in (ACQUIRE, CLEAR):
            return
        rows = self._known[classes]
        rows[np.arange(len(classes)), self._column[classes]] = self.epoch[classes]
        if sync.kind == FENCE:
            self._fenced[classes] = rows
        elif sync.kind == RELEASE:
            if self._has_fences:
                np.maximum.at(self._left_fenced, at, self._fenced[classes])
                np.maximum.at(self._left_seen, at, np.maximum(rows, self._seen[classes]))
            if sync.is_fenced:
                rows = self._fenced[classes]
            np.maximum.at(self._left, at, rows)
        self.epoch[np.unique(classes)] += 1


def _classes(syncs: Sequence[Sync], block_of: Index) -> Index:
    """Return each lane's class; the classes of a block have numbers that follow one another."""
    found = block_of.astype(np.int64)
    for sync in syncs:
        label = np.zeros(len(block_of), np.int64)
        label[sync.lanes] = np.unique(sync.names, return_inverse=True)[1] + 1
        found = np.unique(found * (int(label.max()) + 1) + label, return_inverse=True)[1]
    return found.astype(np.intp)
